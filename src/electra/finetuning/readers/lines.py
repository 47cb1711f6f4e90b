"""Numbered lines and JSON records of a plain or compressed (.gz, .zst) file."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from electra.errors import DataError, TextError
from electra.external import decode_json
from electra.text.files import read_line_blocks
from electra.text.formats import RECORD_HINT


def read_numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, line without its end) of every line; a byte order mark is skipped.

    Raises:
        DataError: the file cannot be read, or a line is not UTF-8.
    """
    try:
        for block in read_line_blocks(path):
            text = decode_lines(block.data.removesuffix(b"\n"), path, block.first_line)
            # Not str.splitlines: a form feed or U+2028 does not end a line, and can be a word of a corpus.
            for number, line in enumerate(text.split("\n"), block.first_line):
                yield number, line.removesuffix("\r")
    except TextError as error:
        raise DataError(error.code, str(error)) from error


def decode_lines(lines: bytes, path: Path, first_line: int) -> str:
    """Decode lines, of which the first has the number `first_line`.

    Raises:
        DataError: a line is not UTF-8; the message has its number, and the position and value of the byte.
    """
    try:
        return lines.decode()
    except UnicodeDecodeError as error:
        number = first_line + lines.count(b"\n", 0, error.start)
        column = error.start - lines.rfind(b"\n", 0, error.start)
        byte = f"0x{lines[error.start]:02x}"
        raise DataError(
            "not-utf8", f"{path}:{number}: not UTF-8 at byte {column} of the line ({byte}); convert the file"
        ) from error


def read_json_records(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number of the line, JSON object) of every line that is not blank.

    Raises:
        DataError: as in `read_numbered_lines` and `parse_json_record`.
    """
    for number, line in read_numbered_lines(path):
        if line.strip():
            yield number, parse_json_record(line, f"{path}:{number}")


def parse_json_record(line: str, place: str) -> dict[str, Any]:
    """Parse a line of a .jsonl file; `place` is its file and line for messages.

    Raises:
        DataError: not JSON, or not an object.
    """
    record = decode_json(line, place, DataError, RECORD_HINT)
    if not isinstance(record, dict):
        raise DataError("wrong-type", f"{place}: not a JSON object, but {type(record).__name__}")
    return record


def get_row_id(record: Mapping[str, Any]) -> str:
    """Return the id of a row: the first of its columns id, idx and index that has a value, or an empty string."""
    return next((str(record[name]) for name in ("id", "idx", "index") if record.get(name) is not None), "")
