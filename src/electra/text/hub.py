"""Streaming of data sets from the Hugging Face hub: `hf://owner/name[:config][@split]`."""

import re
from collections.abc import Iterator
from typing import Any

from electra.errors import TextError, UsageError
from electra.external import one_line, require_extra
from electra.text.fields import check_text, choose_field
from electra.text.formats import Piece, split_document

PREFIX = "hf://"
BATCH_ROWS = 64


def require_hub(source: str) -> None:
    """Check that the packages of the extra `hub` are installed, before `source` is read from the hub.

    Raises:
        UsageError: a package is missing.
    """
    require_extra(source, "hub", "datasets", "huggingface_hub")


def open_dataset(source: str, text_field: str) -> tuple[Any, str]:
    """Open a data set as a streaming `datasets.IterableDataset` with only its text column; return also the column's name.

    Raises:
        UsageError: the name is malformed, or the extra `hub` is not installed.
        TextError: the data set cannot be opened, or has no such column.
    """
    match = re.fullmatch(r"hf://(?P<name>[^:@]+)(:(?P<config>[^:@]+))?(@(?P<split>[^:@]+))?", source)
    if match is None:
        raise UsageError(
            "bad-address",
            f"{source}: expected hf://owner/name, hf://owner/name:config or hf://owner/name@split for a hub data set",
        )
    require_hub(source)
    import datasets

    try:
        dataset = datasets.load_dataset(match["name"], match["config"], split=match["split"] or "train", streaming=True)
        columns = dataset.column_names or list(next(iter(dataset.take(1)), {}))
    except Exception as error:  # the type depends on the file format and the file system
        raise TextError(
            "unreadable", f"{source}: cannot be opened: {type(error).__name__}: {one_line(error, 500)}"
        ) from error
    text_field = choose_field(columns, text_field, source, source)
    return dataset.select_columns([text_field]), text_field


def read_dataset(source: str, text_field: str) -> Iterator[Piece]:
    """Read a document per row. bytes_read is always 0 because the size is unknown."""
    dataset, text_field = open_dataset(source, text_field)
    batches, rows = dataset.iter(BATCH_ROWS), 0
    while True:
        try:
            texts = next(batches)[text_field]
        except StopIteration:
            return
        except Exception as error:
            reason = f"{type(error).__name__}: {one_line(error, 500)}"
            raise TextError("unreadable", f"{source}: reading failed after row {rows:,}: {reason}") from error
        for row, text in enumerate(texts, rows + 1):
            yield from split_document(check_text(text, text_field, f"{source}: row {row:,}"), 0)
        rows += len(texts)
