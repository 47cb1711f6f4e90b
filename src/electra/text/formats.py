"""Text formats: READERS maps the suffix of a file to the function that reads its documents."""

import codecs
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from electra.errors import TextError
from electra.external import check_unicode, decode_json, is_unicode, one_line, replace_surrogates
from electra.text.files import LineBlock, make_read_error, open_decompressed, read_line_blocks, split_compression

Documents = Literal["blank-line", "file", "line"]
Encoding = Literal["strict", "replace"]

PIECE_CHARS = 1 << 20
"""A longer document is split into pieces, so that memory does not grow with its length."""

RECORD_HINT = "; a .jsonl file has one record per line"

PARQUET_ROWS = 64
"""Rows decoded at a time; few, because a row can be a book."""


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
    text_field, errors = options.text_field, options.encoding_errors
    for block in read_line_blocks(path):
        records = _decode(path, block, errors).split("\n")
        for number, record in enumerate(records, block.first_line):
            if record and not record.isspace():
                text = _get_json_text(record, text_field, f"{path}:{number}", errors)
                yield from split_document(text, block.bytes_read)


def read_parquet(path: Path, options: ReadOptions) -> Iterator[Piece]:
    """Read a record per row. A compressed file is first decompressed to a temporary file: the format needs random access."""
    text_field = options.text_field
    with open_decompressed(path) as source:
        size, rows = path.stat().st_size, 0
        try:
            with pq.ParquetFile(source, pre_buffer=False) as file:
                check_column(file.schema_arrow, text_field, str(path))
                for batch in file.iter_batches(PARQUET_ROWS, columns=[text_field]):
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


READERS: dict[str, Reader] = {
    ".txt": Reader(read_txt, "plain text"),
    ".jsonl": Reader(read_jsonl, "a JSON object per line"),
    ".parquet": Reader(read_parquet, "a table with a text column"),
}
"""Suffix in lower case -> reader; a new format is a new entry."""


def find_reader(path: Path) -> Reader | None:
    """Return the reader for a file's suffix before that of its compression; None for an unknown format."""
    return READERS.get(get_text_suffix(path))


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


def check_column(schema: pa.Schema, text_field: str, place: str) -> None:
    if text_field not in schema.names:
        raise TextError(
            "missing-column",
            f"{place}: no column {text_field!r}; it has {format_names(schema.names)}: choose with --text-field",
        )
    if schema.names.count(text_field) > 1:
        raise TextError("repeated-column", f"{place}: two columns are called {text_field!r}: rename one")
    kind = schema.field(text_field).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise TextError(
            "wrong-type", f"{place}: column {text_field!r} holds {kind}, not text: choose another with --text-field"
        )


def check_text(text: Any, text_field: str, place: str) -> str:
    if not isinstance(text, str):
        kind = "null" if text is None else type(text).__name__
        raise TextError("wrong-type", f"{place}: field {text_field!r} is {kind}, not a string")
    return text


def _get_json_text(record: str, text_field: str, place: str, errors: Encoding) -> str:
    value = decode_json(record, place, TextError, hint=RECORD_HINT, half_surrogates=True)  # allowed in other fields
    if not isinstance(value, dict):
        raise TextError(
            "wrong-type",
            f"{place}: a record must be an object, like {{{json.dumps(text_field)}: ...}}, not {_name_json_type(value)}",
        )
    if text_field not in value:
        raise TextError(
            "missing-column",
            f"{place}: no field {text_field!r}; it has {format_names(value)}: choose with --text-field",
        )
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


def format_names(names: Iterable[str], limit: int = 10) -> str:
    names = list(names)
    return (
        ", ".join(map(repr, names[:limit])) + (f" and {len(names) - limit} more" if len(names) > limit else "")
        or "none"
    )
