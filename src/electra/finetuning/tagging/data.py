"""Sentences whose words may have tags, from CoNLL columns and JSONL."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from electra.errors import DataError
from electra.finetuning.readers.lines import get_row_id, read_json_records, read_numbered_lines
from electra.text.files import split_compression

COLUMN_SUFFIXES = (".txt", ".conll", ".iob2", ".tsv")
SUFFIXES = (*COLUMN_SUFFIXES, ".jsonl")
SPLIT_NAMES = {"train": ("train",), "dev": ("dev", "valid", "validation"), "test": ("test",)}
"""Names of the files of a split in a folder, before the suffix."""
DOCUMENT_START = "-DOCSTART-"


@dataclass(frozen=True)
class Sentence:
    """At least one word, each with its tag where tags are known."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    place: str
    """File and line of the first word, or of the record, for messages."""
    id: str = ""
    """Its id in the file; where empty, its number."""


def find_splits(folder: Path) -> dict[str, Path]:
    """The files of "train", "dev" and "test" that are in a folder: train.txt, dev.conll.gz, valid.jsonl, …

    Raises:
        DataError: there is none at all, or there are two for one split.
    """
    if not folder.is_dir():
        raise DataError("missing", f"{folder}: no such folder")
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        stem = Path(split_compression(path)[0])
        split = next((split for split, names in SPLIT_NAMES.items() if stem.stem in names), None)
        if split is None or stem.suffix not in SUFFIXES:
            continue
        if split in found:
            raise DataError(
                "ambiguous-files", f"{folder}: both {found[split].name} and {path.name} could be {split}; keep one"
            )
        found[split] = path
    if not found:
        raise DataError("missing", f"{folder}: no train, dev or test with one of the suffixes {', '.join(SUFFIXES)}")
    return found


def read_sentences(path: Path) -> list[Sentence]:
    """The sentences of a file, at least one.

    Raises:
        DataError: there is none, or what `stream_sentences` raises.
    """
    sentences = list(stream_sentences(path))
    if not sentences:
        raise DataError("no-rows", f"{path}: no sentences; the file is empty or blank")
    return sentences


def stream_sentences(path: Path) -> Iterator[Sentence]:
    """The sentences of a file, read as its suffix says; it may be compressed (.gz, .zst).

    Raises:
        DataError: another suffix, or what `read_conll` and `read_tagging_jsonl` raise.
    """
    suffix = Path(split_compression(path)[0]).suffix.lower()
    if suffix == ".jsonl":
        return read_tagging_jsonl(path)
    if suffix in COLUMN_SUFFIXES:
        return read_conll(path)
    raise DataError(
        "unknown-format", f"{path}: {suffix or 'no suffix'} is not a known kind of tagged text: {', '.join(SUFFIXES)}"
    )


def read_conll(path: Path, tag_column: int = -1, word_column: int = 0) -> Iterator[Sentence]:
    """A word a line with its columns, a blank line after each sentence; `-DOCSTART-` lines are skipped.

    Columns are separated by tabs where the line has a tab (then a word may contain spaces), else by spaces. In a
    file with a single column the words have no tags.

    Raises:
        DataError: a line with another number of columns than the first, a column that does not exist, an empty word,
            or not UTF-8.
    """
    first: tuple[int, int] | None = None  # line number and number of columns of the first word
    for start, rows in split_paragraphs(path):
        first = first or (start, len(rows[0]))
        check_columns(path, start, rows, first)
        single = first[1] == 1
        for column in () if single else (word_column, tag_column):
            if not -first[1] <= column < first[1]:
                raise DataError(
                    "missing-column", f"{path}:{first[0]}: no column {column}; there are {first[1]} columns, from 0"
                )
        words = tuple(row[0 if single else word_column] for row in rows)
        tags = None if single else tuple(row[tag_column] for row in rows)
        yield Sentence(words, tags, f"{path}:{start}")


def split_paragraphs(path: Path) -> Iterator[tuple[int, list[list[str]]]]:
    """The number of its first line, and the columns of each line, of every run of lines between blank ones."""
    rows: list[list[str]] = []
    start = 0
    for number, line in read_numbered_lines(path):
        columns = split_columns(line)
        if columns == [""] or columns[0] == DOCUMENT_START:
            if rows:
                yield start, rows
            rows = []
        else:
            start = start if rows else number
            rows.append(columns)
    if rows:
        yield start, rows


def split_columns(line: str) -> list[str]:
    """The columns of a line; [""] of a blank one."""
    # Not str.split(): a no-break space is a word in some corpora.
    line = line.strip(" ")
    if "\t" in line.strip("\t"):
        return [column.strip(" ") for column in line.split("\t")]
    return re.split(" +", line.strip("\t"))


def check_columns(path: Path, start: int, rows: list[list[str]], first: tuple[int, int]) -> None:
    """Check that every line has as many columns as the first of the file, and none is empty."""
    for number, columns in enumerate(rows, start):
        if len(columns) != first[1]:
            raise DataError(
                "wrong-columns", f"{path}:{number}: {len(columns)} columns, {first[1]} expected as in line {first[0]}"
            )
        if "" in columns:
            raise DataError(
                "empty-column", f"{path}:{number}: column {columns.index('')} is empty (columns are counted from 0)"
            )


def read_tagging_jsonl(path: Path, words: str = "words", tags: str = "tags") -> Iterator[Sentence]:
    """A record a line, with a list of words and a list of as many tags (or no such field); blank lines are skipped.

    Raises:
        DataError: not JSON, not such a record, words and tags of different number, or not UTF-8.
    """
    for number, record in read_json_records(path):
        yield parse_sentence(record, f"{path}:{number}", words, tags)


def parse_sentence(record: dict[str, Any], place: str, words: str, tags: str) -> Sentence:
    """One record."""
    if words not in record:
        raise DataError("wrong-type", f"{place}: not a record with a field {words!r}")
    found = parse_strings(record[words], words, place)
    if not found or "" in found:
        raise DataError(
            "empty-word" if found else "no-words", f"{place}: {words!r} has {'an empty word' if found else 'no words'}"
        )
    if record.get(tags) is None:
        return Sentence(found, None, place, get_row_id(record))
    named = parse_strings(record[tags], tags, place)
    if len(named) != len(found):
        raise DataError("uneven-tags", f"{place}: {len(found)} words and {len(named)} tags; every word has one tag")
    return Sentence(found, named, place, get_row_id(record))


def parse_strings(value: Any, field: str, place: str) -> tuple[str, ...]:
    """A JSON list of strings."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise DataError("wrong-type", f"{place}: {field!r} must be a list of strings")
    return tuple(value)
