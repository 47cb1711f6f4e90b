"""Lines encoded with a cache of words have the same ids as those encoded by the tokenizer."""

import itertools

import numpy as np
import pytest
from support.toy import DIFFICULT_TEXTS, TEXT

from electra.text import cached_encoder
from electra.text.cached_encoder import LineEncoder
from electra.text.tokenizer import Normalization, Tokenizer

LINES = [
    *DIFFICULT_TEXTS,
    *TEXT.split("\n"),
    "",
    " two  spaces ",
    "a\tb\x1cc\x85d\u2028e",
    "don't-stop...now",
    "x" * 500,
    "ab1 1ab",
    "ß ſ ı",
]


def agree(encoder: LineEncoder, lines: list[str]) -> bool:
    expected = encoder.tokenizer.encode_lines(lines)
    tokens, lengths = encoder.encode(lines)
    return tokens.tolist() == list(itertools.chain.from_iterable(expected)) and lengths.tolist() == list(
        map(len, expected)
    )


def test_ids_equal_those_of_the_tokenizer(trained: Tokenizer) -> None:
    encoder = LineEncoder(trained)
    assert agree(encoder, LINES)
    assert agree(encoder, LINES[::-1])  # all words are cached
    assert agree(encoder, [])


@pytest.mark.parametrize("change", [{"split_chinese": False}, {"max_word_chars": 4}, {"strip_accents": False}])
def test_ids_are_equal_for_every_normalization(trained: Tokenizer, change: dict[str, int]) -> None:
    assert agree(LineEncoder(Tokenizer(trained.vocabulary, Normalization(**change))), LINES)


@pytest.mark.slow
def test_ids_are_equal_for_all_of_unicode(trained: Tokenizer) -> None:
    rng = np.random.default_rng(0)
    ascii = list(map(chr, range(128)))
    planes = [chr(i) for i in range(0x20000) if not 0xD800 <= i < 0xE000]
    for alphabet in (
        ascii,
        planes,
        list("ab#,. \u0301é中"),
        [*ascii, *map(chr, range(0x300, 0x370))],
        ascii + planes[:0x3000],
    ):
        lines = ["".join(alphabet[i] for i in rng.integers(len(alphabet), size=rng.integers(60))) for _ in range(400)]
        assert agree(LineEncoder(trained), lines)


def test_batches_and_clearing_the_cache_do_not_change_ids(trained: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_encoder, "BATCH_CHARS", 50)
    encoder = LineEncoder(trained, capacity=100)
    most = 0
    for line in LINES * 2:
        assert agree(encoder, [line])
        most = max(most, encoder._table.chars)
    assert agree(encoder, LINES * 2)
    assert (
        most <= 100 < sum(len(word) for word in {word for line in LINES for word in cached_encoder.split_words(line)})
    )


def test_tokenizer_encodes_each_word_once(trained: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    encode_lines = Tokenizer.encode_lines

    def count(self: Tokenizer, lines: list[str]) -> list[list[int]]:
        asked.extend(word for line in lines for word in line.split())
        return encode_lines(self, lines)

    monkeypatch.setattr(Tokenizer, "encode_lines", count)
    encoder = LineEncoder(trained)
    for line in TEXT.split("\n") * 3:
        encoder.encode([line])
    assert sorted(asked) == sorted(set(cached_encoder.split_words(TEXT.replace("\n", " "))))
