"""Read files as decompressed blocks of bytes or of complete lines; list the files of a folder."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa
from typing_extensions import TypedDict

from electra.errors import TextError
from electra.external import refuse_special_file
from electra.schema import read_json
from electra.storage import convert_os_errors

COMPRESSIONS = {"": None, ".gz": "gzip", ".zst": "zstd"}
"""Suffix -> compression in pyarrow."""

BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 10_000_000
"""Longer lines are most likely not text, and would be in memory several times."""

MAX_UNPACKED_BYTES = 2 << 30
"""Maximum decompressed size of a file that cannot be streamed; a few compressed MB can expand to any size."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SavedFile(TypedDict):
    """File of a saved data set."""

    filename: str


class SavedDataset(TypedDict):
    """Keys of the `state.json` of a data set that Hugging Face datasets saved that are read."""

    _data_files: list[SavedFile]


class LineBlock(NamedTuple):
    """Complete lines of a file, with line ends (the last line of a file may have none)."""

    data: bytes
    offset: int
    """Position of the first byte in the decompressed file."""
    first_line: int
    """Counted from 1."""
    bytes_read: int
    """Bytes read from disk so far."""


def split_compression(path: Path) -> tuple[str, str]:
    """Split `corpus.txt.gz` into `corpus.txt` and `.gz`; the second is empty for an uncompressed file."""
    stem, ending = os.path.splitext(path.name)
    return (stem, ending.lower()) if ending.lower() in COMPRESSIONS else (path.name, "")


def list_files(folder: Path) -> Iterator[Path]:
    """List the files of a folder recursively in sorted order, without hidden files and symbolic links to folders.

    Of a data set that Hugging Face datasets saved, these are the files that its `state.json` lists, because the same folder
    has the cached results of its transformations. Raises TextError.
    """
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise make_read_error(folder, error) from error
    if {"dataset_info.json", "state.json"} <= {entry.name for entry in entries}:
        saved = read_json(folder / "state.json", SavedDataset, TextError)
        yield from (folder / Path(file["filename"]).name for file in saved["_data_files"])
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            if not entry.is_symlink():
                yield from list_files(entry)
        else:
            yield entry


def make_read_error(path: Path, error: OSError) -> TextError:
    """Convert an error of the operating system, such as no such file or no permission."""
    # Arrow's errors contain the number and a text of several lines.
    code = "missing" if isinstance(error, FileNotFoundError) else "unreadable"
    return TextError(code, f"{path}: cannot be read: {os.strerror(error.errno) if error.errno else error}")


def read_blocks(path: Path) -> Iterator[tuple[bytes, int]]:
    """Read decompressed blocks of at most BLOCK_BYTES, each with the number of bytes read from disk so far.

    This uses Arrow's streams, not the modules gzip and zstandard: they read files of several members or frames and windows
    up to 2^27, decompress without the GIL, and detect truncated files, which zstandard's reader does not.
    """
    refuse_special_file(path, TextError)
    compression = COMPRESSIONS[split_compression(path)[1]]
    place = 0  # in the file; a block that fails may have been partly decompressed
    try:
        with (
            pa.OSFile(str(path)) as raw,
            pa.CompressedInputStream(raw, compression) if compression else raw as stream,
        ):
            while block := stream.read(BLOCK_BYTES):
                place = raw.tell()
                yield block, place
    except PermissionError as error:
        raise make_read_error(path, error) from error
    except OSError as error:
        if error.errno is not None or compression is None:
            raise make_read_error(path, error) from error
        size = path.stat().st_size
        where = f"at its end, byte {size:,}" if "Truncated" in str(error) else f"after byte {place:,} of {size:,}"
        raise TextError(
            "damaged",
            f"{path}: broken {compression} data {where} ({error}); "
            "the file is damaged or truncated: copy or download it again",
        ) from error


@contextmanager
def open_decompressed(path: Path) -> Iterator[Path | BinaryIO]:
    """Open a file that needs random access: yields its path, or a temporary decompressed file if it is compressed.

    Raises:
        TextError: it cannot be read, or is larger than MAX_UNPACKED_BYTES decompressed.
        StorageError: there is no space for the temporary file.
    """
    refuse_special_file(path, TextError)
    if not split_compression(path)[1]:
        yield path
        return
    size = 0
    with tempfile.TemporaryFile() as file:
        for data, _ in read_blocks(path):
            size += len(data)
            if size > MAX_UNPACKED_BYTES:
                raise TextError(
                    "too-large",
                    f"{path}: more than {MAX_UNPACKED_BYTES / 1e9:.1f} GB decompressed; decompress it, and give that file",
                )
            with convert_os_errors(Path(tempfile.gettempdir())):
                file.write(data)
        file.seek(0)
        yield file


def read_line_blocks(path: Path) -> Iterator[LineBlock]:
    """Read a file as blocks of complete lines, without a byte order mark.

    A line over MAX_LINE_BYTES raises TextError with its number before all of it is in memory.
    """
    offset, line, bytes_read = 0, 1, 0
    pending: list[bytes] = []  # an incomplete line
    pending_bytes = 0
    for block, bytes_read in read_blocks(path):
        if offset == 0 and not pending and block.startswith(BYTE_ORDER_MARK):
            offset, block = len(BYTE_ORDER_MARK), block[len(BYTE_ORDER_MARK) :]
        first_end = block.find(b"\n")
        if pending_bytes + (first_end if first_end >= 0 else len(block)) > MAX_LINE_BYTES:
            raise TextError(
                "too-long",
                f"{path}:{line}: a line of more than {MAX_LINE_BYTES:,} bytes; "
                "expected lines of a sentence or a paragraph: split it, or omit the file",
            )
        end = block.rfind(b"\n") + 1
        if end:
            data = b"".join([*pending, block[:end]])
            yield LineBlock(data, offset, line, bytes_read)
            offset += len(data)
            line += data.count(b"\n")
            pending, pending_bytes, block = [], 0, block[end:]
        if block:
            pending.append(block)
            pending_bytes += len(block)
    if pending:
        yield LineBlock(b"".join(pending), offset, line, bytes_read)
