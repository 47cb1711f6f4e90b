"""The size of a text, estimated from a sample of it."""

import gzip
import json
from itertools import pairwise
from pathlib import Path

import pytest
from support.errors import raises

from electra.errors import TextError, UsageError
from electra.studies.advice import text_sample
from electra.studies.advice.text_sample import choose_files, sample_text
from electra.text.corpus import Corpus
from electra.text.vocabulary import train_tokenizer


def write_numbers(path: Path, start: int, stop: int) -> int:
    """Write lines of different words; returns the number of bytes."""
    words = ("odd", "even", "prime", "round")
    text = "".join(
        f"the number {number * 7919 % 1000} is {words[number // 2 % 4]}" + " and so on" * 16 + "\n"
        for number in range(start, stop)
    )
    path.write_text(text)
    return len(text)


def test_a_small_text_is_counted_exactly(tmp_path: Path) -> None:
    size = write_numbers(tmp_path / "a.txt", 0, 500) + write_numbers(tmp_path / "b.txt", 500, 900)
    corpus = Corpus((str(tmp_path),))
    sample = sample_text(corpus)
    assert (sample.is_complete, sample.text_bytes, len(sample.lines)) == (True, size, 900)
    tokenizer = train_tokenizer(corpus, 300)
    assert sample.estimate_tokens(300, cased=False, keep_accents=False) == pytest.approx(
        sum(map(len, tokenizer.encode_lines(sample.lines)))
    )


def test_the_case_changes_the_tokens(tmp_path: Path) -> None:
    words = [f"{a}{b}{a}" for a in "bcdfghkl" for b in "aeiou"]
    (tmp_path / "a.txt").write_text("".join(f"{word} {word.title()} {word.upper()}\n" * 9 for word in words))
    sample = sample_text(Corpus((str(tmp_path),)))
    uncased, cased = (sample.estimate_tokens(100, each, False) for each in (False, True))
    assert uncased < cased


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".txt", ".txt.gz", ".jsonl"])
def test_a_large_text_is_estimated_from_its_beginning(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_sample, "SAMPLE_BYTES", 100_000)
    size = write_numbers(tmp_path / "plain.txt", 0, 40_000)
    lines = (tmp_path / "plain.txt").read_text()
    path = tmp_path / f"large{suffix}"
    if suffix == ".txt.gz":
        path.write_bytes(gzip.compress(lines.encode(), 1))
    elif suffix == ".jsonl":  # half of the file is another field
        records = ({"text": line, "other": "x" * len(line)} for line in lines.splitlines())
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    else:
        path.write_text(lines)
    sample = sample_text(Corpus((str(path),)))
    assert not sample.is_complete
    assert sum(map(len, sample.lines)) < 110_000
    assert sample.text_bytes == pytest.approx(size, rel=0.05)
    write_numbers(tmp_path / "part.txt", 0, 2_000)  # the lines repeat after 1,000
    tokenizer = train_tokenizer(Corpus((str(tmp_path / "part.txt"),)), 300)
    part = sum(map(len, tokenizer.encode_lines((tmp_path / "part.txt").read_text().splitlines())))
    assert sample.estimate_tokens(300, False, False) == pytest.approx(20 * part, rel=0.06)


def test_files_are_weighted_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file of short words and many small ones of long words."""
    monkeypatch.setattr(text_sample, "SAMPLE_BYTES", 20_000)
    (tmp_path / "a.txt").write_text("a b c d e f g h i j\n" * 10_000)
    for number in range(100):
        (tmp_path / f"b{number:03}.txt").write_text("abcdefghijabcdefghi\n" * 100)
    sample = sample_text(Corpus((str(tmp_path),)))
    short = sum(len(line.split()) == 10 for line in sample.lines) / len(sample.lines)
    assert short == pytest.approx(0.5, abs=0.05)
    assert sample.text_bytes == pytest.approx(400_000, rel=0.02)
    assert not sample.is_complete


def test_files_are_chosen_at_regular_intervals() -> None:
    files = [(str(number), 10) for number in range(1000)]
    chosen = choose_files(files, 10_000)
    assert len(chosen) == text_sample.SAMPLE_FILES
    assert sum(weight for *_, weight in chosen) == pytest.approx(10_000, rel=0.01)
    numbers = [int(name) for name, *_ in chosen]
    assert max(after - before for before, after in pairwise(numbers)) <= 17
    assert choose_files([("small", 1), ("large", 9_999)], 10_000) == [("large", 9_999, 10_000)]
    halves = choose_files([("a", 500), ("none", 0), ("b", 500)], 1000)
    assert halves == [("a", 500, 500), ("b", 500, 500)]


def test_a_text_of_one_line_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_sample, "SAMPLE_BYTES", 100)
    (tmp_path / "a.txt").write_text("the cat sees mice " * 50)
    sample = sample_text(Corpus((str(tmp_path / "a.txt"),)))
    assert sample.estimate_tokens(64, False, False) == 200


def test_texts_without_a_size_or_lines_are_refused(tmp_path: Path) -> None:
    with raises(UsageError, "unknown-size", "hf://owner/name"):
        sample_text(Corpus(("hf://owner/name",)))
    (tmp_path / "a.txt").write_text("\n \n")
    with raises(TextError, "no-text", "a.txt"):
        sample_text(Corpus((str(tmp_path / "a.txt"),)))
