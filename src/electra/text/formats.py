"""Text formats: READERS maps the suffix of a file to the function that reads its documents."""

import codecs
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from electra.errors import TextError
from electra.external import check_unicode, decode_json, is_unicode, one_line, replace_surrogates
from electra.text.fields import check_text, choose_column, choose_field, make_missing_error
from electra.text.files import LineBlock, make_read_error, open_decompressed, read_line_blocks, split_compression

Documents = Literal["blank-line", "file", "line"]
Encoding = Literal["strict", "replace"]

PIECE_CHARS = 1 << 20
"""A longer document is split into pieces, so that memory does not grow with its length."""

RECORD_HINT = "; a .jsonl file has one record per line"

TABLE_ROWS = 64
"""Rows decoded at a time; few, because a row can be a book."""


ARROW_MAGIC = b"ARROW1"
"""First bytes of an Arrow file; a stream, which Hugging Face datasets writes, has none."""


class Piece(NamedTuple):
    """A document, or a part of a document longer than PIECE_CHARS, split between lines."""

    lines: list[str]
    """Paragraphs or sentences in order; at least one; stripped and not empty."""
    ends_document: bool
    """Whether the document ends here; otherwise it continues in the next piece."""
    bytes_read: int
    """Compressed bytes of the file read so far (of the corpus, in pieces from Corpus), to show progress."""
    source: int = 0
    """Index in `Corpus.sources`, in pieces from Corpus."""


@dataclass(frozen=True)
class ReadOptions:
    """Options of readers; each reader uses the fields that concern its format."""

    documents: Documents = "blank-line"
    """What ends a document of a .txt file, besides the end of the file: a blank line, nothing else, or every line."""
    text_field: str = "text"
    """Field or column with the text of a record."""
    encoding_errors: Encoding = "strict"
    """Raise TextError for bytes that are not UTF-8, or replace them by U+FFFD."""


class Reader(NamedTuple):
    """A text format; its suffix is its key in READERS."""

    read: Callable[[Path, ReadOptions], Iterator[Piece]]
    """Yields the documents of a file, decompressed by `electra.text.files` if necessary. Raises TextError."""
    description: str
    """Short description for messages."""
    only_compressed: bool = False
    """Whether only compressed files are read. C4, Dolma and others have .json.gz with a record per line; a plain .json beside
    text is mostly a file of settings."""


def read_txt(path: Path, options: ReadOptions) -> Iterator[Piece]:
    """Read lines of text; the end of the file ends its last document."""
    documents, errors = options.documents, options.encoding_errors
    lines: list[str] = []
    chars = bytes_read = 0
    for block in read_line_blocks(path):
        bytes_read = block.bytes_read
        for line in _split_lines(_decode(path, block, errors)):
            # A piece is yielded only when the next line shows whether its document continues, so no piece is empty.
            if not line:
                if lines and documents == "blank-line":
                    yield Piece(lines, True, bytes_read)
                    lines, chars = [], 0
            elif documents == "line":
                yield Piece([line], True, bytes_read)
            else:
                if chars >= PIECE_CHARS:
                    yield Piece(lines, False, bytes_read)
                    lines, chars = [], 0
                lines.append(line)
                chars += len(line)
    if lines:
        yield Piece(lines, True, bytes_read)


def read_jsonl(path: Path, options: ReadOptions) -> Iterator[Piece]:
    """Read a JSON object per line; blank lines are skipped."""
    errors, text_field = options.encoding_errors, None
    for block in read_line_blocks(path):
        records = _decode(path, block, errors).split("\n")
        for number, record in enumerate(records, block.first_line):
            if record and not record.isspace():
                place = f"{path}:{number}"
                value = _parse_record(record, place)
                text_field = text_field or choose_field(value, options.text_field, place, str(path.parent))
                text = _get_json_text(value, text_field, place, errors)
                yield from split_document(text, block.bytes_read)


def read_parquet(path: Path, options: ReadOptions) -> Iterator[Piece]:
    """Read a record per row. A compressed file is first decompressed to a temporary file: the format needs random access."""
    with open_decompressed(path) as source:
        size, rows = path.stat().st_size, 0
        try:
            with pq.ParquetFile(source, pre_buffer=False) as file:
                text_field = choose_column(file.schema_arrow, options.text_field, path)
                for batch in file.iter_batches(TABLE_ROWS, columns=[text_field]):
                    bytes_read = size * (rows + batch.num_rows) // file.metadata.num_rows
                    for row, text in enumerate(batch.column(0).to_pylist(), rows + 1):
                        yield from split_document(check_text(text, text_field, f"{path}: row {row:,}"), bytes_read)
                    rows += batch.num_rows
        except PermissionError as error:
            raise make_read_error(path, error) from error
        except UnicodeDecodeError as error:
            raise TextError("not-utf8", f"{path}: after row {rows:,}: the text is not UTF-8") from error
        except (pa.ArrowException, OSError) as error:
            raise TextError("damaged", f"{path}: not a valid Parquet file ({one_line(error)})") from error


def read_arrow(path: Path, options: ReadOptions) -> Iterator[Piece]:
    """Read a record per row of an Arrow file or stream, such as those of `Dataset.save_to_disk` of Hugging Face datasets."""
    with open_decompressed(path) as source:
        size, rows = path.stat().st_size, 0
        try:
            with pa.memory_map(str(source)) if isinstance(source, Path) else pa.PythonFile(source) as file:
                is_stream = file.read(len(ARROW_MAGIC)) != ARROW_MAGIC
                file.seek(0)
                with pa.ipc.open_stream(file) if is_stream else pa.ipc.open_file(file) as reader:
                    text_field = choose_column(reader.schema, options.text_field, path)
                    batches = reader if is_stream else map(reader.get_batch, range(reader.num_record_batches))
                    for batch in batches:
                        column = batch.column(text_field)
                        column.validate(full=True)  # offsets outside the data would be read
                        for start in range(0, len(column), TABLE_ROWS):
                            texts = column.slice(start, TABLE_ROWS).to_pylist()
                            for row, text in enumerate(texts, rows + 1):
                                place = f"{path}: row {row:,}"
                                yield from split_document(check_text(text, text_field, place), size)
                            rows += len(texts)
        except PermissionError as error:
            raise make_read_error(path, error) from error
        except UnicodeDecodeError as error:
            raise TextError("not-utf8", f"{path}: after row {rows:,}: the text is not UTF-8") from error
        except (pa.ArrowException, OSError, ValueError) as error:
            raise TextError("damaged", f"{path}: not a valid Arrow file ({one_line(error)})") from error


READERS: dict[str, Reader] = {
    ".txt": Reader(read_txt, "plain text"),
    ".jsonl": Reader(read_jsonl, "a JSON object per line"),
    ".parquet": Reader(read_parquet, "a table with a text column"),
    ".arrow": Reader(read_arrow, "an Arrow table with a text column"),
    ".json": Reader(read_jsonl, "as .jsonl, only compressed", only_compressed=True),
}
"""Suffix in lower case -> reader; a new format is a new entry."""


def find_reader(path: Path) -> Reader | None:
    """Return the reader for a file's suffix before that of its compression; None for an unknown format."""
    reader = READERS.get(get_text_suffix(path))
    return None if reader and reader.only_compressed and not split_compression(path)[1] else reader


def get_text_suffix(path: Path) -> str:
    """Return the suffix of a file without that of its compression, in lower case."""
    return os.path.splitext(split_compression(path)[0])[1].lower()


def describe_formats() -> str:
    """List the known formats for a message."""
    formats = ", ".join(f"{suffix} ({reader.description})" for suffix, reader in READERS.items())
    return f"{formats}, each plain, .gz or .zst"


def split_document(text: str, bytes_read: int) -> Iterator[Piece]:
    """Split the text of a record, which is one document, into pieces; blank text yields none."""
    lines: list[str] = []
    chars = 0
    for line in _split_lines(text):
        if line:
            if chars >= PIECE_CHARS:
                yield Piece(lines, False, bytes_read)
                lines, chars = [], 0
            lines.append(line)
            chars += len(line)
    if lines:
        yield Piece(lines, True, bytes_read)


def _parse_record(record: str, place: str) -> dict[str, Any]:
    value = decode_json(record, place, TextError, hint=RECORD_HINT, half_surrogates=True)  # allowed in other fields
    if not isinstance(value, dict):
        raise TextError(
            "wrong-type",
            f'{place}: a record must be an object, like {{"text": ...}}, not {_name_json_type(value)}',
        )
    return value


def _get_json_text(value: dict[str, Any], text_field: str, place: str, errors: Encoding) -> str:
    if text_field not in value:
        raise make_missing_error(value, text_field, place)
    text = check_text(value[text_field], text_field, place)
    if errors == "replace":
        return text if is_unicode(text) else replace_surrogates(text)
    return check_unicode(text, f"{place}: {text_field!r}", TextError)


def _decode(path: Path, block: LineBlock, errors: Encoding) -> str:
    if block.offset == 0 and block.data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise TextError("utf16", f"{path}: UTF-16, expected UTF-8: convert the file (iconv -f UTF-16 -t UTF-8)")
    try:
        return block.data.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        raise TextError(
            "not-utf8",
            f"{path}: not UTF-8 at byte offset {block.offset + error.start} "
            f"(0x{block.data[error.start]:02x}): convert the file, or use --encoding-errors replace",
        ) from error


def _split_lines(text: str) -> Iterable[str]:
    # Not str.splitlines: form feeds, U+2028 and others are not line ends in these formats. strip() removes "\r".
    # The final line end is removed because no line follows it; it must not become a blank line between two blocks.
    return map(str.strip, text.removesuffix("\n").split("\n"))


def _name_json_type(value: Any) -> str:
    return {list: "an array", str: "a string", bool: "true or false", type(None): "null"}.get(type(value), "a number")
