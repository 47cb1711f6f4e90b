"""Sentences as token ids, in overlapping windows where they are longer than the limit, and back to tags."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from electra.finetuning.batching import EncodedExamples
from electra.finetuning.tagging.data import Sentence
from electra.finetuning.task import Outputs
from electra.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Window:
    """Consecutive words of a sentence as token ids, and those words that are scored."""

    sentence: int
    """Number of the sentence in its split."""
    input_ids: list[int]
    """[CLS], the tokens of the words, [SEP]."""
    scored: dict[int, int]
    """Number of the word in the sentence -> position of its first token in `input_ids`."""


def split_into_windows(sentences: Sequence[Sentence], tokenizer: Tokenizer, max_length: int) -> list[Window]:
    """Every sentence in order, as one window if it fits into `max_length` tokens, else as several.

    Every word is scored in exactly one window.
    """
    unique = sorted({word for sentence in sentences for word in sentence.words})
    # A word without tokens (a control character, a lone accent) still has a tag.
    pieces = {word: ids or [tokenizer.unk_id] for word, ids in zip(unique, tokenizer.encode_lines(unique), strict=True)}
    capacity = max_length - 2
    windows = []
    for number, sentence in enumerate(sentences):
        # Half a window overlaps the next one; a word of more tokens than the other half would never fit.
        words = [pieces[word][: capacity - capacity // 2] for word in sentence.words]
        lengths = [len(word) for word in words]
        spans = compute_word_spans(lengths, capacity)
        for span, scored in zip(spans, assign_scored_words(lengths, spans), strict=True):
            starts = list(accumulate((lengths[i] for i in span), initial=1))
            ids = [tokenizer.cls_id, *(id for i in span for id in words[i]), tokenizer.sep_id]
            windows.append(Window(number, ids, {i: starts[i - span.start] for i in scored}))
    return windows


def compute_word_spans(lengths: Sequence[int], capacity: int) -> list[range]:
    """Words of each window: as many as fit; the next window starts within the last `capacity // 2` tokens of this one.

    `lengths` are the numbers of tokens of each word, at most `capacity - capacity // 2`, so that every window has a new word.
    """
    spans = []
    start = 0
    while True:
        stop, size = start, 0
        while stop < len(lengths) and size + lengths[stop] <= capacity:
            size += lengths[stop]
            stop += 1
        spans.append(range(start, stop))
        if stop == len(lengths):
            return spans
        start, shared = stop, 0
        while shared + lengths[start - 1] <= capacity // 2:
            start -= 1
            shared += lengths[start]


def assign_scored_words(lengths: Sequence[int], spans: Sequence[range]) -> list[list[int]]:
    """The words that are scored in each span: those with more context there than in any other, the first on a tie.

    The context is BERT's: the smaller of the numbers of tokens before and after the word in the window.
    """
    starts = list(accumulate(lengths, initial=0))
    scored: list[list[int]] = [[] for _ in spans]
    first = 0  # the first window that may still have the word
    for word in range(len(lengths)):
        while word not in spans[first]:
            first += 1
        context = {
            i: min(starts[word] - starts[spans[i].start], starts[spans[i].stop] - starts[word + 1])
            for i in range(first, len(spans))
            if word in spans[i]
        }
        scored[max(context, key=context.__getitem__)].append(word)
    return scored


def encode_windows(windows: Sequence[Window], targets: Mapping[str, list[list[int]]] | None = None) -> EncodedExamples:
    """Windows as examples of one segment."""
    input_ids = [window.input_ids for window in windows]
    return EncodedExamples(input_ids, [len(ids) for ids in input_ids], targets or {})


def decode_windows(
    sentences: Sequence[Sentence], windows: Sequence[Window], outputs: Outputs, labels: Sequence[str]
) -> list[list[str]]:
    """The most probable tag of every word, from the outputs for the windows."""
    tags = [["O"] * len(sentence.words) for sentence in sentences]
    for window, output in zip(windows, outputs, strict=True):
        best = np.asarray(output["logits"]).argmax(-1)
        for word, position in window.scored.items():
            tags[window.sentence][word] = labels[best[position]]
    return tags
