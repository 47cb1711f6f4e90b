"""Tables in .csv, .tsv, .jsonl and .parquet files; no row is skipped without a message.

`pyarrow.csv` and `pyarrow.json` are not used: their errors have no line number (rows of several lines are not counted, and
parallel readers have no row numbers), their type inference turns the label "007" into the number 7 and "NA" into null, and
they accept bytes that are not UTF-8.
"""

import csv
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from electra.errors import DataError, TextError
from electra.external import one_line, refuse_special_file
from electra.finetuning.readers.lines import read_json_records, read_numbered_lines
from electra.text.files import open_decompressed, split_compression

log = logging.getLogger(__name__)

csv.field_size_limit(1 << 30)  # a cell can be a long document

PARQUET_ROWS = 1024
"""Rows of a Parquet file in memory at a time."""

Cells = Iterator[tuple[int, list[Any]]]
"""(line of the file at which the row starts, from 1; cells of the row); for Parquet, the number of the row."""


@dataclass
class Table:
    """A table in memory."""

    path: Path
    names: list[str]
    """Names of the columns; "0", "1", ... if the file has no header."""
    values: list[list[Any]] = field(default_factory=list)
    """Cells of each row."""
    lines: list[int] = field(default_factory=list)
    """Line at which each row starts, as in `Cells`."""
    skipped: int = 0
    """Number of rows that were skipped by `skip_bad`."""

    def __len__(self) -> int:
        return len(self.values)

    def get_column(self, name: str | int) -> list[Any]:
        """Return a column, by name or by position (from 0; from the end if negative).

        Raises:
            DataError: there is no column of this name.
        """
        if isinstance(name, int):
            return [row[name] for row in self.values]
        if name not in self.names:
            raise DataError("missing-column", f"{self.path}: no column {name!r}; there are {', '.join(self.names)}")
        index = self.names.index(name)
        return [row[index] for row in self.values]

    def get_texts(self, name: str | int) -> list[str]:
        """Return a column in which every cell must be a string.

        Raises:
            DataError: there is no such column, or a cell is not a string.
        """
        column = self.get_column(name)
        for i, value in enumerate(column):
            if not isinstance(value, str):
                found = "missing" if value is None else f"{value!r}, not a text"
                raise DataError("wrong-type", f"{self.format_place(i)}: {name!r} is {found}")
        return column

    def format_place(self, row: int) -> str:
        """Format file and line of a row, for messages."""
        return f"{self.path}:{self.lines[row]}"


def read_table(path: Path, *, header: bool = True, skip_bad: bool | None = None) -> Table:
    """Read a table, plain or compressed (.gz, .zst). Quotes have no meaning in .tsv files, as in GLUE's, but do in .csv files.

    Args:
        path: A .tsv, .csv, .jsonl or .parquet file.
        header: Whether the first line has the names of the columns.
        skip_bad: Skip rows whose number of columns differs from that of the first line, and log how many. None: rows cannot be
            skipped, because the file is scored or predicted.

    Raises:
        DataError: no such file, not UTF-8, another format, no rows, or a row with another number of columns.
    """
    cells = read_cells(path, header)
    table = Table(path, check_names(path, next(cells)[1]))
    for line, row in cells:
        if skip_bad and len(row) != len(table.names):
            table.skipped += 1
            continue
        check_width(path, line, row, table.names, skip_bad)
        table.values.append(row)
        table.lines.append(line)
    if table.skipped:
        log.warning(
            f"{path}: {table.skipped:,} rows with another number of columns are left out (--skip-bad-rows)",
            extra={"code": "skipped-rows"},
        )
    if not table.values:
        raise DataError("no-rows", f"{path}: no rows")
    return table


def stream_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, column name -> cell) of every row of a table with a header; the table is not held in memory.

    Raises:
        DataError: as in `read_table`, when the row is reached; a file without rows is not an error.
    """
    if get_suffix(path) == ".jsonl":
        for line, record in read_json_records(path):
            yield f"{path}:{line}", record
        return
    cells = read_cells(path)
    names = check_names(path, next(cells)[1])
    for line, row in cells:
        check_width(path, line, row, names)
        yield f"{path}:{line}", dict(zip(names, row, strict=True))


def get_suffix(path: Path) -> str:
    """Return the suffix of a file in lower case, without that of its compression: .csv of a.CSV.gz."""
    return Path(split_compression(path)[0]).suffix.lower()


def read_cells(path: Path, header: bool = True) -> Cells:
    """Yield the names of the columns, as the first row, then every row.

    Raises:
        DataError: no such file, or another format.
    """
    if (suffix := get_suffix(path)) not in READERS:
        raise DataError("unknown-format", f"{path}: not a table that can be read; there are {', '.join(READERS)}")
    refuse_special_file(path, DataError)
    if not path.exists():
        raise DataError("missing", f"{path}: no such file")
    return READERS[suffix](path, header)


def check_names(path: Path, names: list[str]) -> list[str]:
    """Return the names after a check that they differ; several can be empty, as in exports of spreadsheets.

    Raises:
        DataError: two columns have the same name.
    """
    if repeated := next((name for name in names if name and names.count(name) > 1), None):
        raise DataError("repeated-column", f"{path}: two columns are called {repeated!r}; rename one")
    return names


def check_width(path: Path, line: int, row: list[Any], names: list[str], skip_bad: bool | None = None) -> None:
    """Check that a row has as many columns as the first line.

    Raises:
        DataError: it has not; unless `skip_bad` is None, the message has the option that skips such rows.
    """
    if len(row) != len(names):
        found = f"{path}:{line}: {len(row)} columns where the first line has {len(names)}; correct the file"
        if skip_bad is None:
            raise DataError(
                "bad-row", f"{found}: rows may be left out of a training file only, not of what is scored or predicted"
            )
        raise DataError("bad-row", f"{found}, or leave such rows out with --skip-bad-rows")


def read_separated(path: Path, header: bool) -> Cells:
    """Read a .csv or .tsv file. Blank lines at the end are ignored; elsewhere they are rows without cells.

    Raises:
        DataError: the first line is missing or blank.
    """
    cells = read_tab_separated(path) if get_suffix(path) == ".tsv" else read_comma_separated(path)
    first = next(cells, None)
    if first is None or not first[1]:
        raise DataError("no-rows", f"{path}: empty, or its first line is blank")
    yield 0, first[1] if header else [str(i) for i in range(len(first[1]))]
    blank: list[int] = []
    for line, row in cells if header else chain([first], cells):
        if row:
            yield from ((number, []) for number in blank)
            yield line, row
        blank = [] if row else [*blank, line]


def read_tab_separated(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number, cells) of every line; a blank line has no cells."""
    for number, line in read_numbered_lines(path):
        yield number, line.split("\t") if line else []


def read_comma_separated(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line number at which the row starts, cells) of every row; quoted cells can have newlines.

    Raises:
        DataError: a row is malformed.
    """
    reader = csv.reader((f"{line}\n" for _, line in read_numbered_lines(path)), strict=True)
    first_line = 1
    try:
        for row in reader:
            yield first_line, row
            first_line = reader.line_num + 1
    except csv.Error as error:
        raise DataError("bad-row", f"{path}:{first_line}: not comma-separated values ({error})") from None


def read_jsonl(path: Path, header: bool) -> Cells:
    """Read a .jsonl file with an object per line. The columns are the keys of all rows; a missing cell is None."""
    records = list(read_json_records(path))
    names = list(dict.fromkeys(name for _, record in records for name in record))
    yield 0, names
    for line, record in records:
        yield line, [record.get(name) for name in names]


def read_parquet(path: Path, header: bool) -> Cells:
    """Read a .parquet file in batches of PARQUET_ROWS rows.

    Raises:
        DataError: the file is damaged, or has text that is not UTF-8.
    """
    try:
        with open_decompressed(path) as source, pq.ParquetFile(source) as file:
            yield 0, file.schema_arrow.names
            batches = (
                zip(*(column.to_pylist() for column in batch.columns), strict=True)
                for batch in file.iter_batches(PARQUET_ROWS)
            )
            for number, row in enumerate(chain.from_iterable(batches), 1):
                yield number, list(row)
    except TextError as error:
        raise DataError(error.code, str(error)) from None
    except UnicodeDecodeError as error:
        raise DataError("not-utf8", f"{path}: a text that is not UTF-8 ({error})") from None
    except (OSError, pa.ArrowException) as error:
        raise DataError("unreadable", f"{path}: cannot be read ({one_line(error)})") from None


READERS: dict[str, Callable[[Path, bool], Cells]] = {
    ".tsv": read_separated,
    ".csv": read_separated,
    ".jsonl": read_jsonl,
    ".parquet": read_parquet,
}
"""Suffix -> function from path and `header` (see `read_table`) to the names of the columns and the rows."""
