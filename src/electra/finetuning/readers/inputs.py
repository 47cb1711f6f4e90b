"""Inputs of prediction: lines of a file or of standard input, rows of tables, values from Python.

A place is the file and line of an input, or the number of a value from Python, for messages.
"""

import logging
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from electra.errors import DataError
from electra.external import is_unicode
from electra.finetuning.readers.lines import get_row_id, parse_json_record, read_numbered_lines
from electra.finetuning.readers.tables import READERS, get_suffix, stream_rows
from electra.text.files import MAX_LINE_BYTES

log = logging.getLogger(__name__)

STANDARD_INPUT = "-"
"""Name of a file that stands for standard input."""


def read_lines(source: str, meaning: str) -> Iterator[tuple[str, str]]:
    """Yield (place, line) of a plain or compressed text file, or of standard input.

    For standard input it is logged that lines are read, with `meaning`, what a line is.

    Raises:
        DataError: the file cannot be read, is not UTF-8, or a line of standard input has more than MAX_LINE_BYTES characters.
    """
    if source != STANDARD_INPUT:
        for number, line in read_numbered_lines(Path(source)):
            yield f"{source}:{number}", line
        return
    log.info(f"standard input is read as lines, {meaning}", extra={"code": "reading-stdin"})
    number = 0
    try:
        while line := sys.stdin.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise DataError(
                    "too-long", f"standard input, line {number}: more than {MAX_LINE_BYTES:,} characters; break it up"
                )
            if not is_unicode(line):
                raise DataError("not-utf8", f"standard input, line {number}: not UTF-8")
            yield f"standard input, line {number}", line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataError("not-utf8", f"standard input: not UTF-8 ({error})") from None


def read_records(source: str, meaning: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, record) of the rows of a table, or of lines with a JSON object; blank lines are skipped.

    Raises:
        DataError: as in `stream_rows`, `read_lines` and `parse_json_record`.
    """
    if is_table(source):
        yield from stream_rows(Path(source))
        return
    for place, line in read_lines(source, meaning):
        if line.strip():
            yield place, parse_json_record(line, place)


def is_table(source: str) -> bool:
    """Whether the suffix of a file is one of `tables.READERS`."""
    return get_suffix(Path(source)) in READERS


def get_text(record: Mapping[str, Any], name: str, place: str, hint: str = "") -> str:
    """Return a field of a record that must be a string.

    Raises:
        DataError: it is missing or not a string; the message ends with `hint`.
    """
    if name not in record:
        raise DataError(
            "missing-field", f"{place}: {name!r} is missing; there are {', '.join(record) or 'no others'}{hint}"
        )
    if not isinstance(value := record[name], str):
        raise DataError("wrong-type", f"{place}: {name!r} is not a text, but {type(value).__name__}{hint}")
    return value


def iterate_values(values: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield (place, id, value) of every input; the id is that of a mapping (see `get_row_id`), or the number of the input."""
    single = isinstance(values, str | bytes | Mapping)
    for number, value in enumerate([values] if single else values):
        own_id = get_row_id(value) if isinstance(value, Mapping) else ""
        yield f"input {number}", own_id or str(number), value


def build_type_error(value: Any, place: str, expected: str) -> DataError:
    """Build the error for an input of the wrong type, which describes the value and what was expected."""
    items = ""
    if isinstance(value, list | tuple):
        items = f" of {len(value)}: {', '.join(type(each).__name__ for each in value[:3])}{', …' * (len(value) > 3)}"
    return DataError("wrong-type", f"{place}: got {type(value).__name__}{items}; expected {expected}")
