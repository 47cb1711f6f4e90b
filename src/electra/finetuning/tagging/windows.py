"""Sentences as token ids, in overlapping windows where they are longer than the limit."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from electra.finetuning.tagging.data import Sentence
from electra.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Window:
    """Consecutive words of a sentence as the network reads them, and those of them that it is asked about."""

    sentence: int
    """Number of the sentence in its split."""
    ids: list[int]
    """[CLS], the pieces of the words, [SEP]."""
    scored: dict[int, int]
    """Number of the word in the sentence -> position of its first piece in `ids`."""


def windows_of(sentences: Sequence[Sentence], tokenizer: Tokenizer, max_length: int) -> list[Window]:
    """Every sentence in order, as one window if it fits into `max_length` tokens, else as several.

    Every word is scored in exactly one window.
    """
    unique = sorted({word for sentence in sentences for word in sentence.words})
    # What leaves no piece at all (a control character, a lone accent) is still a word that has a tag.
    pieces = {word: ids or [tokenizer.unk_id] for word, ids in zip(unique, tokenizer.encode_lines(unique), strict=True)}
    capacity = max_length - 2
    windows = []
    for number, sentence in enumerate(sentences):
        # Half a window is shared with the next one; a word of more pieces than the rest would never fit.
        words = [pieces[word][: capacity - capacity // 2] for word in sentence.words]
        lengths = [len(word) for word in words]
        spans = word_spans(lengths, capacity)
        for span, scored in zip(spans, scored_words(lengths, spans), strict=True):
            starts = list(accumulate((lengths[i] for i in span), initial=1))
            ids = [tokenizer.cls_id, *(id for i in span for id in words[i]), tokenizer.sep_id]
            windows.append(Window(number, ids, {i: starts[i - span.start] for i in scored}))
    return windows


def word_spans(lengths: Sequence[int], capacity: int) -> list[range]:
    """Words of each window: as many as fit, the next beginning within the last `capacity // 2` pieces of this one.

    `lengths` are the pieces of each word, at most `capacity - capacity // 2`, so that every window has a new word.
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


def scored_words(lengths: Sequence[int], spans: Sequence[range]) -> list[list[int]]:
    """The words that are scored in each span: those with more context there than in any other, the first on a tie.

    Context is what BERT's code calls so: the smaller number of pieces before and after the word within the window.
    """
    starts = list(accumulate(lengths, initial=0))
    scored: list[list[int]] = [[] for _ in spans]
    first = 0  # the first window that may still hold the word
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
