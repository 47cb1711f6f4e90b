"""Tokenization of sentences, in overlapping windows if they are too long, and decoding of their tags."""

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
    """Consecutive words of a sentence as token ids; each word of a sentence is scored in one of its windows."""

    sentence: int
    """Index of the sentence in its split."""
    input_ids: list[int]
    """Token ids of `[CLS] words [SEP]`."""
    scored_words: dict[int, int]
    """Index of the word in the sentence -> position of its first token in `input_ids`."""


def build_windows(sentences: Sequence[Sentence], tokenizer: Tokenizer, max_length: int) -> list[Window]:
    """Tokenize sentences into windows of at most `max_length` tokens; short sentences have one window.

    Every word is scored in exactly one window. A word of more tokens than half a window is truncated.
    """
    unique = sorted({word for sentence in sentences for word in sentence.words})
    # A word without tokens (a control character, a combining accent alone) has a tag too: encode it as [UNK].
    empty = [tokenizer.mask_id if tokenizer.unk_id is None else tokenizer.unk_id]
    pieces = {word: ids or empty for word, ids in zip(unique, tokenizer.encode_lines(unique), strict=True)}
    capacity = max_length - 2
    windows = []
    for number, sentence in enumerate(sentences):
        # Half of a window overlaps the next one, so that a word must fit into the other half.
        words = [pieces[word][: capacity - capacity // 2] for word in sentence.words]
        lengths = [len(word) for word in words]
        ranges = compute_word_ranges(lengths, capacity)
        for word_range, scored in zip(ranges, assign_scored_words(lengths, ranges), strict=True):
            starts = list(accumulate((lengths[i] for i in word_range), initial=1))
            ids = [tokenizer.cls_id, *(id for i in word_range for id in words[i]), tokenizer.sep_id]
            windows.append(Window(number, ids, {i: starts[i - word_range.start] for i in scored}))
    return windows


def compute_word_ranges(lengths: Sequence[int], capacity: int) -> list[range]:
    """Compute the words of each window of a sentence.

    A window has as many words as fit into `capacity` tokens, and the next one starts with those of its last words that fit
    into `capacity // 2` tokens. `lengths` are the numbers of tokens of the words, at most `capacity - capacity // 2`, so
    that every window has a new word.
    """
    ranges = []
    start = 0
    while True:
        stop, size = start, 0
        while stop < len(lengths) and size + lengths[stop] <= capacity:
            size += lengths[stop]
            stop += 1
        ranges.append(range(start, stop))
        if stop == len(lengths):
            return ranges
        start, shared = stop, 0
        while shared + lengths[start - 1] <= capacity // 2:
            start -= 1
            shared += lengths[start]


def assign_scored_words(lengths: Sequence[int], ranges: Sequence[range]) -> list[list[int]]:
    """Assign each word to the window in which it is scored, that with its maximum context; return the words of each window.

    The context of a word in a window is the smaller of the numbers of tokens before and after it, as in BERT; of equal
    windows, the first is taken.

    Args:
        lengths: Number of tokens of each word.
        ranges: Words of each window.
    """
    starts = list(accumulate(lengths, initial=0))
    scored: list[list[int]] = [[] for _ in ranges]
    first = 0  # the first window that can still have the word
    for word in range(len(lengths)):
        while word not in ranges[first]:
            first += 1
        context = {
            i: min(starts[word] - starts[ranges[i].start], starts[ranges[i].stop] - starts[word + 1])
            for i in range(first, len(ranges))
            if word in ranges[i]
        }
        scored[max(context, key=context.__getitem__)].append(word)
    return scored


def encode_windows(windows: Sequence[Window], targets: Mapping[str, list[list[int]]] | None = None) -> EncodedExamples:
    """Build examples of one segment from windows, with their targets by name."""
    input_ids = [window.input_ids for window in windows]
    return EncodedExamples(input_ids, [len(ids) for ids in input_ids], targets or {})


def decode_windows(
    sentences: Sequence[Sentence], windows: Sequence[Window], outputs: Outputs, labels: Sequence[str]
) -> list[list[str]]:
    """Return the most probable tag of every word of every sentence, from the outputs of the head for the windows."""
    tags = [["O"] * len(sentence.words) for sentence in sentences]
    for window, output in zip(windows, outputs, strict=True):
        best = np.asarray(output["logits"]).argmax(-1)
        for word, position in window.scored_words.items():
            tags[window.sentence][word] = labels[best[position]]
    return tags
