"""Unknown tokens and words split into characters are counted; a vocabulary that does not fit the text causes a warning."""

import logging

import numpy as np
import pytest
from support.errors import notices

from electra.text.coverage import Coverage, CoverageCounter, report_coverage
from electra.text.tokenizer import SPECIAL_TOKENS, Normalization, Tokenizer

TOKENIZER = Tokenizer((*SPECIAL_TOKENS, "a", "b", "##a", "##b", "ab", "##ab", "##c", "."), Normalization())


def ids_of(text: str) -> np.ndarray:
    (ids,) = TOKENIZER.encode_lines([text])
    return np.array(ids, dtype=np.uint16)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", (0, 0, 0, 0)),
        ("ab ab.", (3, 0, 3, 0)),
        ("ba a .", (4, 0, 3, 1)),  # b ##a
        ("babaa", (4, 0, 1, 0)),  # b ##ab ##a ##a
        ("aba", (2, 0, 1, 0)),  # ab ##a
        ("bac baa ab", (7, 0, 3, 2)),
        ("x ab xyz", (3, 2, 3, 0)),
    ],
)
def test_words_and_tokens_are_counted(text: str, expected: tuple[int, ...]) -> None:
    assert CoverageCounter(TOKENIZER).count(ids_of(text)).counts == expected


def test_counts_equal_those_of_single_words() -> None:
    draw = np.random.default_rng(0)
    for _ in range(200):
        words = ["".join(draw.choice(list("abcx"), draw.integers(1, 5))) for _ in range(draw.integers(30))]
        pieces = [[TOKENIZER.vocabulary[i].removeprefix("##") for i in each] for each in map(ids_of, words)]
        expected = (
            sum(map(len, pieces)),
            sum(each == ["[UNK]"] for each in pieces),
            len(words),
            sum(len(each) > 1 and max(map(len, each)) == 1 for each in pieces),
        )
        assert CoverageCounter(TOKENIZER).count(ids_of(" ".join(words))).counts == expected


def test_special_tokens_are_not_counted() -> None:
    cls, sep, pad = TOKENIZER.cls_id, TOKENIZER.sep_id, TOKENIZER.pad_id
    ids = np.array([cls, *ids_of("ba x"), sep, *ids_of("ab ."), sep, pad, pad])
    assert CoverageCounter(TOKENIZER).count(ids).counts == (5, 1, 4, 1)


@pytest.mark.parametrize(
    ("coverage", "poor"),
    [
        (Coverage(1000, 20, 900, 0), False),
        (Coverage(1000, 21, 900, 0), True),
        (Coverage(1000, 0, 1000, 31), True),
        (Coverage(1000, 0, 1000, 30), False),
        (Coverage(4, 1, 4, 2), False),  # an emoji in a short text
        (Coverage(4, 4, 4, 0), True),
        (Coverage(), False),
    ],
)
def test_poor_coverage_is_a_warning(coverage: Coverage, poor: bool, caplog: pytest.LogCaptureFixture) -> None:
    assert coverage.is_poor == poor
    report_coverage(coverage, "the text", "train one on it")
    if not coverage.tokens:
        assert not caplog.records
        return
    (line,) = notices(caplog, "unknown-tokens" if poor else "coverage")
    assert caplog.records[0].levelno == (logging.WARNING if poor else logging.INFO)
    assert line.startswith("the text: ")
    assert f"{coverage.unknown_share:.1%}" in line
    assert ("train one on it" in line) == poor
