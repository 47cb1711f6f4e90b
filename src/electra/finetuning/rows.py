"""Rows out of .csv, .tsv, .jsonl and .parquet files, none of them lost silently."""

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from electra.errors import DataError

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

    def place(self, row: int) -> str:
        """Where a row stands, for messages."""
        return f"{self.path}:{self.lines[row]}"


def read_rows(path: Path, *, header: bool = True, skip_bad: bool = False) -> Rows:
    """Read a table. Tab-separated files have no quotes, as GLUE's; comma-separated ones may.

    Raises:
        DataError: no such file, not UTF-8, another kind of file, no rows, or a row with another number of columns than the
            first (`skip_bad` leaves such rows out and counts them).
    """
    readers = {".tsv": read_separated, ".csv": read_separated, ".jsonl": read_jsonl, ".parquet": read_parquet}
    if path.suffix not in readers:
        raise DataError(f"{path}: not a table that can be read; there are {', '.join(readers)}")
    try:
        rows = readers[path.suffix](path, header, skip_bad)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 (at byte {error.start} of what was being read)") from None
    except (OSError, csv.Error, pa.ArrowException) as error:
        raise DataError(f"{path}: cannot be read ({' '.join(str(error).split())})") from None
    if not rows.values:
        raise DataError(f"{path}: no rows")
    return rows


def read_separated(path: Path, header: bool, skip_bad: bool) -> Rows:
    """A .csv or .tsv file."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        # A tab-separated line ends at a newline alone: sentences hold other ends of line, and lone quotes.
        cells = tab_separated(file) if path.suffix == ".tsv" else comma_separated(file)
        first = next(cells, None)
        if first is None:
            raise DataError(f"{path}: empty")
        names = first[1] if header else [str(i) for i in range(len(first[1]))]
        rows = Rows(path, names)
        for line, row in cells if header else chained(first, cells):
            if len(row) == len(names):
                rows.values.append(row)
                rows.lines.append(line)
            elif skip_bad:
                rows.skipped += 1
            else:
                raise DataError(
                    f"{path}:{line}: {len(row)} columns where the first line has {len(names)}; mend the file, "
                    "or leave such rows out with --skip-bad-rows"
                )
        return rows


def chained(first: tuple[int, list[str]], rest: Iterator[tuple[int, list[str]]]) -> Iterator[tuple[int, list[str]]]:
    """`first` and then `rest`."""
    yield first
    yield from rest


def tab_separated(file: Any) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of every line; the last one may lack its newline."""
    for number, line in enumerate(file.read().split("\n"), 1):
        line = line.removesuffix("\r")
        if line:
            yield number, line.split("\t")


def comma_separated(file: Any) -> Iterator[tuple[int, list[str]]]:
    """(line on which the row begins, cells) of every row; quoted cells may hold newlines."""
    reader = csv.reader(file, strict=True)
    begin = 1
    for row in reader:
        if row:
            yield begin, row
        begin = reader.line_num + 1


def read_jsonl(path: Path, header: bool, skip_bad: bool) -> Rows:
    """A .jsonl file: an object a line; the keys of the first are the columns."""
    rows: Rows | None = None
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.isspace():
                continue
            record = json_object(line)
            if rows is None and record is not None:
                rows = Rows(path, list(record))
            if record is not None and rows is not None and set(rows.names) <= set(record):
                rows.values.append([record[name] for name in rows.names])
                rows.lines.append(number)
            elif skip_bad and rows is not None:
                rows.skipped += 1
            else:
                missing = [] if rows is None or record is None else sorted(set(rows.names) - set(record))
                raise DataError(f"{path}:{number}: {f'no {missing[0]!r}' if missing else 'not a JSON object'}")
    return rows or Rows(path, [])


def json_object(line: str) -> dict[str, Any] | None:
    """The object in a line, or None."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def read_parquet(path: Path, header: bool, skip_bad: bool) -> Rows:
    """A .parquet file."""
    table = pq.read_table(path)
    columns: Sequence[list[Any]] = [column.to_pylist() for column in table.columns]
    values = [list(row) for row in zip(*columns, strict=True)]
    return Rows(path, table.column_names, values, list(range(1, len(values) + 1)))
