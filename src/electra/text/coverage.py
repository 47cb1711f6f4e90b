"""How well a vocabulary covers a text: the share of [UNK], and of words that are split into single characters.

Both are counted from token ids, which costs almost nothing compared with tokenizing.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from jaxtyping import Bool, Integer

from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


MIN_COUNT = 3
"""Minimum number of tokens or words for a warning: one emoji in a short text is no evidence about the vocabulary."""
ROWS_PER_COUNT = 4096
"""Texts counted at a time, to limit the memory of the array of their tokens."""
MAX_UNKNOWN = 0.02
"""Share of [UNK] among the tokens above which a warning is logged. Wikipedia in English, German and Korean has at most
0.13 % with a vocabulary of 2,048 trained on it, Chinese 1.7 % with one of 8,192; Korean has 79 % with an English one."""
MAX_SPELLED = 0.03
"""Share of words split into single characters above which a warning is logged. The same vocabularies split at most 1.3 %;
Korean has 58 % with BERT's, which has the letters of Korean and none of its words."""


@dataclass(frozen=True)
class Coverage:
    """Counts of a text."""

    tokens: int = 0
    """Tokens without special tokens; [UNK] is included."""
    unknown: int = 0
    """Tokens that are [UNK]."""
    words: int = 0
    """Parts of the text before the vocabulary is used: words, punctuation marks, Chinese characters."""
    spelled: int = 0
    """Words of several characters that are split into single characters."""

    def __add__(self, other: "Coverage") -> "Coverage":
        return Coverage(*(a + b for a, b in zip(self.counts, other.counts, strict=True)))

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """All fields in order."""
        return self.tokens, self.unknown, self.words, self.spelled

    @property
    def unknown_share(self) -> float:
        """Share of [UNK] among the tokens."""
        return self.unknown / self.tokens if self.tokens else 0.0

    @property
    def spelled_share(self) -> float:
        """Share of the words that are split into single characters."""
        return self.spelled / self.words if self.words else 0.0

    @property
    def is_poor(self) -> bool:
        """Whether the vocabulary does not fit the text."""
        too_many_unknown = self.unknown >= MIN_COUNT and self.unknown_share > MAX_UNKNOWN
        return too_many_unknown or (self.spelled >= MIN_COUNT and self.spelled_share > MAX_SPELLED)

    def __str__(self) -> str:
        return (
            f"{self.unknown_share:.1%} of the tokens are [UNK], {self.spelled_share:.1%} of the words are split into single "
            "characters"
        )


@dataclass(frozen=True)
class CoverageCounter:
    """Counter for the tokens of one tokenizer."""

    tokenizer: Tokenizer

    def count(self, ids: Integer[np.ndarray, " T"]) -> Coverage:
        """Count a sequence of complete words; special tokens between words are not counted."""
        counts = np.bincount(ids, minlength=self.tokenizer.vocab_size)
        special = counts[list(self.tokenizer.special_ids)].sum()
        starts, single = self._starts[ids], self._single[ids]
        # Few words begin with two single characters, so the ends of words are looked up only for these.
        spelled = np.flatnonzero(starts[:-1] & single[:-1] & ~starts[1:] & single[1:])
        begins, others = np.flatnonzero(starts), np.flatnonzero(~starts & ~single)
        ends = np.append(begins, len(ids))[np.searchsorted(begins, spelled, side="right")]
        next_other = np.append(others, len(ids))[np.searchsorted(others, spelled)]
        return Coverage(
            tokens=int(len(ids) - special),
            unknown=0 if self.tokenizer.unk_id is None else int(counts[self.tokenizer.unk_id]),
            words=int(len(begins) - special),
            spelled=int(np.count_nonzero(next_other >= ends)),
        )

    def count_rows(self, rows: Sequence[Sequence[int]]) -> Coverage:
        """Count many encoded texts, with or without special tokens."""
        found = Coverage()
        for start in range(0, len(rows), ROWS_PER_COUNT):
            some = rows[start : start + ROWS_PER_COUNT]
            found += self.count(np.fromiter(chain.from_iterable(some), np.int64))
        return found

    @cached_property
    def _starts(self) -> Bool[np.ndarray, " V"]:
        starts = np.ones(self.tokenizer.vocab_size, np.bool_)
        starts[list(self.tokenizer.continuation_ids)] = False
        return starts

    @cached_property
    def _single(self) -> Bool[np.ndarray, " V"]:
        count = self.tokenizer.pipeline.mark.count_characters
        return np.array([count(token) <= 1 for token in self.tokenizer.vocabulary])  # 0: the mark of a word alone


def report_coverage(coverage: Coverage, text: str, advice: str) -> None:
    """Log the shares for the text called `text`; a warning with `advice` if the vocabulary does not fit."""
    if coverage.is_poor:
        log.warning(
            f"{text}: {coverage}: the vocabulary does not fit this text; {advice}", extra={"code": "unknown-tokens"}
        )
    elif coverage.tokens:
        log.info(f"{text}: {coverage}", extra={"code": "coverage"})


class CoverageMonitor:
    """Coverage of a stream of texts: logs a warning as soon as the vocabulary does not fit, and the shares at the end."""

    def __init__(self, tokenizer: Tokenizer, text: str, advice: str) -> None:
        self._counter = CoverageCounter(tokenizer)
        self._text, self._advice = text, advice
        self._warned = False
        self.total = Coverage()

    def add(self, rows: Sequence[Sequence[int]]) -> None:
        """Count encoded texts; log at most one warning."""
        self.total += self._counter.count_rows(rows)
        if self.total.is_poor and not self._warned:
            self._warned = True
            report_coverage(self.total, self._text, self._advice)

    def finish(self) -> None:
        """Log the shares, unless a warning contained them."""
        if not self._warned:
            report_coverage(self.total, self._text, self._advice)
