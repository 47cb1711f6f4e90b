"""The lines of a data file, numbered, from a plain or compressed file."""

from collections.abc import Iterator
from pathlib import Path

from electra.errors import DataError, TextError
from electra.text.files import line_blocks


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Every line with its number from 1, without its end; a byte order mark is passed over.

    Raises:
        DataError: the file cannot be read, or a line is not UTF-8.
    """
    try:
        for block in line_blocks(path):
            # Not splitlines: a form feed or U+2028 may be a word of a corpus, and ends no line.
            for number, line in enumerate(block.data.removesuffix(b"\n").split(b"\n"), block.first_line):
                yield number, decoded(line.removesuffix(b"\r"), f"{path}:{number}")
    except TextError as error:
        raise DataError(str(error)) from error


def decoded(line: bytes, place: str) -> str:
    """A line as text."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        byte = f"0x{line[error.start]:02x}"
        raise DataError(
            f"{place}: not UTF-8 at byte {error.start + 1} of the line ({byte}); convert the file"
        ) from error
