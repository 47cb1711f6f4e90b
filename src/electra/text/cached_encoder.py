"""Lines to token ids, with the tokenizer asked once for each word.

Nothing that BERT's tokenizer does to a text reaches over a space or an ASCII punctuation mark. So the ids of a line are those
of its parts, one after the other; and text repeats its words, which are found in a table many times faster than they are
normalized and split again (docs/research/log).
"""

import re
from collections.abc import Iterator
from itertools import chain, compress

import numpy as np
from jaxtyping import Int64, UInt

from electra.text.tokenizer import Tokenizer

CAPACITY = 1 << 20
"""Characters of the words in a table; of English some 130,000 words, and about 20 MB of memory."""

BATCH_CHARS = 1 << 18
"""Characters encoded at a time, because the Python objects that stand for words and ids take many times their memory."""

split_words = re.compile(r"[!-/:-@\[-`{-~]|[^ !-/:-@\[-`{-~]+").findall
"""What of a line is encoded by itself: each ASCII punctuation mark, and what stands between those and spaces."""


class LineEncoder:
    """`Tokenizer.encode_lines` into arrays, several times as fast on text with spaces between its words.

    What it keeps of the words it has met changes its speed and never its ids. When these are more than `capacity`
    characters in all, it begins anew.
    """

    def __init__(self, tokenizer: Tokenizer, capacity: int = CAPACITY) -> None:
        self.tokenizer = tokenizer
        self._capacity = capacity
        self._table = _WordTable(tokenizer)

    def encode(self, lines: list[str]) -> tuple[UInt[np.ndarray, " T"], Int64[np.ndarray, " L"]]:
        """The tokens of all lines, end to end, and how many each line has."""
        tokens, lengths = [np.zeros(0, self._table.ids.dtype)], [np.zeros(0, np.int64)]
        for batch in _split_batches(lines):
            words = [split_words(line) for line in batch]
            ids, sizes = self._table.encode(list(chain.from_iterable(words)))
            token_ends = np.append(0, np.cumsum(sizes))
            word_ends = np.cumsum([len(of_line) for of_line in words])
            tokens.append(ids)
            lengths.append(np.diff(token_ends[word_ends], prepend=0))
            if self._table.chars > self._capacity:
                self._table = _WordTable(self.tokenizer)
        return np.concatenate(tokens), np.concatenate(lengths)


class _WordTable(dict[str, int]):
    """The number of each word it has met. Word w is `ids[starts[w] : starts[w] + sizes[w]]`."""

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
        """The tokens of all words, end to end, and how many each has."""
        numbers = np.fromiter(map(self.__getitem__, words), np.int64, len(words))
        if self._new:
            self._add_new_words()
        sizes = self._sizes[numbers]
        total = sizes.sum()
        positions = np.repeat(self._starts[numbers] - (np.cumsum(sizes) - sizes), sizes) + np.arange(total)
        return self.ids[positions], sizes

    def _add_new_words(self) -> None:
        """Ask the tokenizer for the new words.

        It takes its time for each text it is given. What is letters and digits of ASCII is always one word to it, so that all
        such words can stand in one text: wherever a token does not continue a word, the next one begins.
        """
        new = self._new
        plain = np.array([word.isascii() and word.isalnum() for word in new])
        together, *others = self._tokenizer.encode_lines([" ".join(compress(new, plain)), *compress(new, ~plain)])
        ids = np.fromiter(chain(together, *others), self.ids.dtype)
        sizes, starts = np.empty((2, len(new)), np.int64)
        starts[plain] = begins = np.flatnonzero(~self._continues[ids[: len(together)]])
        sizes[plain] = np.diff(begins, append=len(together))
        sizes[~plain] = [len(each) for each in others]
        starts[~plain] = len(together) + np.cumsum(sizes[~plain]) - sizes[~plain]
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
