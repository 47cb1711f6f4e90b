"""Encode lines to token ids, with one call of the tokenizer for each distinct word.

BERT's tokenizer treats the parts of a text between spaces and ASCII punctuation marks independently. So the ids of a line are
the concatenated ids of its words. Text repeats its words, and looking them up in a table is many times faster than
normalizing and splitting them again (docs/research/log). Lines of other tokenizers are encoded without the table.
"""

import re
from collections.abc import Iterator
from itertools import chain, compress

import numpy as np
from jaxtyping import Int64, UInt

from electra.text.tokenizer import Tokenizer

CAPACITY = 1 << 20
"""Maximum characters of the words in a table; about 130,000 words of English, and 20 MB of memory."""

BATCH_CHARS = 1 << 18
"""Characters encoded at a time: the Python objects of words and ids take many times the memory of the text."""

split_words = re.compile(r"[!-/:-@\[-`{-~]|[^ !-/:-@\[-`{-~]+").findall
"""Split a line into independently encoded words: each ASCII punctuation mark, and the text between these and spaces."""


class LineEncoder:
    """`Tokenizer.encode_lines` to arrays, several times as fast on text with spaces between its words.

    The table of known words affects only the speed, not the ids. It is cleared when it has more than `capacity` characters.
    """

    def __init__(self, tokenizer: Tokenizer, capacity: int = CAPACITY) -> None:
        self.tokenizer = tokenizer
        self._capacity = capacity
        self._table = _WordTable(tokenizer)

    def encode(self, lines: list[str]) -> tuple[UInt[np.ndarray, " T"], Int64[np.ndarray, " L"]]:
        """Return the concatenated tokens of all lines, and the number of tokens of each line."""
        tokens, lengths = [np.zeros(0, self._table.ids.dtype)], [np.zeros(0, np.int64)]
        for batch in _split_batches(lines):
            if not self.tokenizer.pipeline.has_independent_words:
                rows = self.tokenizer.encode_lines(batch)
                tokens.append(np.fromiter(chain.from_iterable(rows), self._table.ids.dtype))
                lengths.append(np.array([len(row) for row in rows], np.int64))
                continue
            words = [split_words(line) for line in batch]
            ids, sizes = self._table.encode(list(chain.from_iterable(words)))
            token_ends = np.append(0, np.cumsum(sizes))
            word_ends = np.cumsum([len(line_words) for line_words in words])
            tokens.append(ids)
            lengths.append(np.diff(token_ends[word_ends], prepend=0))
            if self._table.chars > self._capacity:
                self._table = _WordTable(self.tokenizer)
        return np.concatenate(tokens), np.concatenate(lengths)


class _WordTable(dict[str, int]):
    """Known words: word -> index. The ids of word w are `ids[starts[w] : starts[w] + sizes[w]]`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._continues = np.array([token.startswith("##") for token in tokenizer.vocabulary])
        self._new: list[str] = []
        self.chars = 0
        self.ids = np.zeros(0, np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32)
        self._starts, self._sizes = np.zeros((2, 0), np.int64)

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        self._new.append(word)
        self.chars += len(word)
        return number

    def encode(self, words: list[str]) -> tuple[UInt[np.ndarray, " T"], Int64[np.ndarray, " W"]]:
        """Return the concatenated tokens of all words, and the number of tokens of each word."""
        numbers = np.fromiter(map(self.__getitem__, words), np.int64, len(words))
        if self._new:
            self._add_new_words()
        sizes = self._sizes[numbers]
        total = sizes.sum()
        positions = np.repeat(self._starts[numbers] - (np.cumsum(sizes) - sizes), sizes) + np.arange(total)
        return self.ids[positions], sizes

    def _add_new_words(self) -> None:
        """Encode the new words with the tokenizer.

        Each text has a fixed cost. Words of ASCII letters and digits are never split before the vocabulary is used, so they
        are joined into one text: every token that does not continue a word begins the next one.
        """
        new = self._new
        plain = np.array([word.isascii() and word.isalnum() for word in new])
        joined, *others = self._tokenizer.encode_lines([" ".join(compress(new, plain)), *compress(new, ~plain)])
        ids = np.fromiter(chain(joined, *others), self.ids.dtype)
        sizes, starts = np.empty((2, len(new)), np.int64)
        starts[plain] = begins = np.flatnonzero(~self._continues[ids[: len(joined)]])
        sizes[plain] = np.diff(begins, append=len(joined))
        sizes[~plain] = [len(each) for each in others]
        starts[~plain] = len(joined) + np.cumsum(sizes[~plain]) - sizes[~plain]
        self._starts = np.append(self._starts, len(self.ids) + starts)
        self._sizes = np.append(self._sizes, sizes)
        self.ids = np.append(self.ids, ids)
        self._new = []


def _split_batches(lines: list[str]) -> Iterator[list[str]]:
    start = chars = 0
    for i, line in enumerate(lines, 1):
        chars += len(line)
        if chars >= BATCH_CHARS or i == len(lines):
            yield lines[start:i]
            start, chars = i, 0
