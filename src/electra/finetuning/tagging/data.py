"""Sentences with or without tags, from files of CoNLL columns or JSON lines."""

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
"""Split -> names of its file in a folder, without suffix."""
DOCUMENT_START = "-DOCSTART-"
"""First column of the lines that separate documents, as in CoNLL-2003."""


@dataclass(frozen=True)
class Sentence:
    """The words of a sentence and their tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    """Tag of each word; None if unknown."""
    place: str
    """File and line of the first word or of the record, for messages."""
    id: str = ""
    """Id in the file; if empty, the id is the number of the sentence, from 0."""


def find_splits(folder: Path) -> dict[str, Path]:
    """Find the files of "train", "dev" and "test" in a folder (train.txt, dev.conll.gz, valid.jsonl, ...): split -> path.

    Raises:
        DataError: there is no such folder, no such file, or two files for one split.
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
    """Read the sentences of a file, at least one.

    Raises:
        DataError: there are none, or as in `stream_sentences`.
    """
    sentences = list(stream_sentences(path))
    if not sentences:
        raise DataError("no-rows", f"{path}: no sentences; the file is empty or blank")
    return sentences


def stream_sentences(path: Path) -> Iterator[Sentence]:
    """Yield the sentences of a file, plain or compressed (.gz, .zst), in the format of its suffix.

    Raises:
        DataError: another suffix, or as in `read_conll` and `read_tagging_jsonl`.
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
    """Yield the sentences of a file with a word and its columns per line, and a blank line after each sentence.

    Columns are separated by tabs if the line has a tab (then words can contain spaces), else by spaces. In a file with a
    single column, the words have no tags. Lines with `-DOCSTART-` are skipped.

    Args:
        path: The file.
        tag_column: Column of the tags, from 0; negative: from the last.
        word_column: Column of the words.

    Raises:
        DataError: a line has another number of columns than the first one, a column is missing or empty, or not UTF-8.
    """
    first: tuple[int, int] | None = None  # line number and number of columns of the first word
    for start, rows in split_blocks(path):
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


def split_blocks(path: Path) -> Iterator[tuple[int, list[list[str]]]]:
    """Yield (number of the first line, columns of each line) of every block of lines between blank ones."""
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
    """Split a line into columns; those of a blank line are [""]."""
    # Not str.split(), because a no-break space is a word in some corpora.
    line = line.strip(" ")
    if "\t" in line.strip("\t"):
        return [column.strip(" ") for column in line.split("\t")]
    return re.split(" +", line.strip("\t"))


def check_columns(path: Path, start: int, rows: list[list[str]], first: tuple[int, int]) -> None:
    """Check that every line has as many columns as the first one of the file, and that no column is empty.

    Args:
        path: The file, for messages.
        start: Number of the first line of the block.
        rows: Columns of each line.
        first: Line number and number of columns of the first line of the file.

    Raises:
        DataError: a line has another number of columns, or an empty one.
    """
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
    """Yield the sentences of a file with a JSON object per line: a list of words and, optionally, a list of as many tags.

    Blank lines are skipped. `words` and `tags` are the names of the fields.

    Raises:
        DataError: not UTF-8, not JSON, a field of another type, or different numbers of words and tags.
    """
    for number, record in read_json_records(path):
        yield parse_sentence(record, f"{path}:{number}", words, tags)


def parse_sentence(record: dict[str, Any], place: str, words: str, tags: str) -> Sentence:
    """Parse the JSON object of one sentence; `words` and `tags` are the names of its fields.

    Raises:
        DataError: `words` is missing, empty or has an empty word, a field is no list of strings, or the numbers of words and
            tags differ.
    """
    if words not in record:
        raise DataError("wrong-type", f"{place}: not a record with a field {words!r}")
    word_list = parse_strings(record[words], words, place)
    if not word_list or "" in word_list:
        raise DataError("missing-words", f"{place}: {words!r} has {'an empty word' if word_list else 'no words'}")
    if record.get(tags) is None:
        return Sentence(word_list, None, place, get_row_id(record))
    tag_list = parse_strings(record[tags], tags, place)
    if len(tag_list) != len(word_list):
        raise DataError(
            "uneven-tags", f"{place}: {len(word_list)} words and {len(tag_list)} tags; every word has one tag"
        )
    return Sentence(word_list, tag_list, place, get_row_id(record))


def parse_strings(value: Any, field: str, place: str) -> tuple[str, ...]:
    """Check that a field of a JSON object is a list of strings, and return it.

    Raises:
        DataError: it is not.
    """
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise DataError("wrong-type", f"{place}: {field!r} must be a list of strings")
    return tuple(value)
