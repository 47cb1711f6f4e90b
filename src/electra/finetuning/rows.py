"""Rows out of .csv, .tsv, .jsonl and .parquet files, none of them lost silently."""

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from electra.console import warned
from electra.errors import DataError
from electra.finetuning.lines import json_record, numbered_lines
from electra.text.files import split_compression

csv.field_size_limit(1 << 30)  # a cell may be a long document


@dataclass
class Rows:
    """A table read: named columns, or numbered ones ("0", "1", …) where a file has no header."""

    path: Path
    names: list[str]
    values: list[list[Any]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    """The line of the file, from 1, on which each row begins (parquet: the number of the row)."""
    skipped: int = 0
    """Rows left out because `skip_bad` allowed it."""

    def __len__(self) -> int:
        return len(self.values)

    def column(self, name: str | int) -> list[Any]:
        """One column, by name or by position (from 0; from the end if negative).

        Raises:
            DataError: there is none of that name.
        """
        if isinstance(name, int):
            return [row[name] for row in self.values]
        if name not in self.names:
            raise DataError(f"{self.path}: no column {name!r}; there are {', '.join(self.names)}")
        index = self.names.index(name)
        return [row[index] for row in self.values]

    def texts(self, name: str | int) -> list[str]:
        """One column, every cell of which must be a text.

        Raises:
            DataError: there is no such column, or a cell is none.
        """
        column = self.column(name)
        for i, value in enumerate(column):
            if not isinstance(value, str):
                what = "missing" if value is None else f"{value!r}, not a text"
                raise DataError(f"{self.place(i)}: {name!r} is {what}")
        return column

    def place(self, row: int) -> str:
        """Where a row stands, for messages."""
        return f"{self.path}:{self.lines[row]}"


def read_rows(path: Path, *, header: bool = True, skip_bad: bool = False) -> Rows:
    """Read a table, plain, .gz or .zst. Tab-separated files have no quotes, as GLUE's; comma-separated ones may.

    Raises:
        DataError: no such file, not UTF-8, another kind of file, no rows, or a row with another number of columns than the
            first (`skip_bad` leaves such rows out and says how many).
    """
    readers: dict[str, Callable[[Path, bool, bool], Rows]] = {
        ".tsv": read_separated,
        ".csv": read_separated,
        ".jsonl": read_jsonl,
        ".parquet": read_parquet,
    }
    suffix = suffix_of(path)
    if suffix not in readers:
        raise DataError(f"{path}: not a table that can be read; there are {', '.join(readers)}")
    if not path.exists():
        raise DataError(f"{path}: no such file")
    rows = readers[suffix](path, header, skip_bad)
    if rows.skipped:
        warned(f"{path}: {rows.skipped:,} rows with another number of columns are left out (--skip-bad-rows)")
    if not rows.values:
        raise DataError(f"{path}: no rows")
    return rows


def suffix_of(path: Path) -> str:
    """The kind of file, whether it is compressed or not, in small letters."""
    return Path(split_compression(path)[0]).suffix.lower()


def read_separated(path: Path, header: bool, skip_bad: bool) -> Rows:
    """A .csv or .tsv file. A blank line at the end means nothing; elsewhere it is a bad row."""
    cells = tab_separated(path) if suffix_of(path) == ".tsv" else comma_separated(path)
    first = next(cells, None)
    if first is None or not first[1]:
        raise DataError(f"{path}: empty, or its first line is")
    rows = Rows(path, first[1] if header else [str(i) for i in range(len(first[1]))])
    blank: list[tuple[int, list[str]]] = []
    for line, row in cells if header else chain([first], cells):
        if not row:
            blank.append((line, row))
            continue
        for number, each in [*blank, (line, row)]:
            add_row(rows, number, each, skip_bad)
        blank = []
    return rows


def add_row(rows: Rows, line: int, row: list[str], skip_bad: bool) -> None:
    """Take a row in, if it has as many columns as the first line."""
    if len(row) == len(rows.names):
        rows.values.append(row)
        rows.lines.append(line)
    elif skip_bad:
        rows.skipped += 1
    else:
        raise DataError(
            f"{rows.path}:{line}: {len(row)} columns where the first line has {len(rows.names)}; mend the file, "
            "or leave such rows of a training file out with --skip-bad-rows"
        )


def tab_separated(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of every line; a blank one has none."""
    for number, line in numbered_lines(path):
        yield number, line.split("\t") if line else []


def comma_separated(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line on which the row begins, cells) of every row; quoted cells may hold newlines."""
    reader = csv.reader((f"{line}\n" for _, line in numbered_lines(path)), strict=True)
    begin = 1
    try:
        for row in reader:
            yield begin, row
            begin = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}:{begin}: not comma-separated values ({error})") from None


def read_jsonl(path: Path, header: bool, skip_bad: bool) -> Rows:
    """A .jsonl file: an object a line. The columns are all keys; where a row lacks one, its cell is None."""
    records = [(number, json_record(line, f"{path}:{number}")) for number, line in numbered_lines(path) if line.strip()]
    names = list(dict.fromkeys(name for _, record in records for name in record))
    values = [[record.get(name) for name in names] for _, record in records]
    return Rows(path, names, values, [number for number, _ in records])


def read_parquet(path: Path, header: bool, skip_bad: bool) -> Rows:
    """A .parquet file."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: cannot be read ({' '.join(str(error).split())})") from None
    columns: Sequence[list[Any]] = [column.to_pylist() for column in table.columns]
    values = [list(row) for row in zip(*columns, strict=True)]
    return Rows(path, table.column_names, values, list(range(1, len(values) + 1)))
