"""The field or column of a record that holds the text, and checks of it."""

import logging
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from electra.errors import TextError

log = logging.getLogger(__name__)

DEFAULT_FIELD = "text"
OTHER_FIELDS = ("raw_content", "content")
"""Fields with the text in public corpora whose field is not called text, such as RedPajama 2 and The Stack."""


def choose_field(names: Iterable[str], text_field: str, place: str, corpus: str) -> str:
    """Return the field or column with the text: `text_field`, or the only one of OTHER_FIELDS if the default is not there.

    The choice is logged once for each `corpus`, a folder or address. Raises TextError.
    """
    names = list(names)
    if text_field in names:
        return text_field
    others = [name for name in OTHER_FIELDS if name in names]
    if text_field != DEFAULT_FIELD or len(others) != 1:
        raise make_missing_error(names, text_field, place)
    _log_field(corpus, others[0])
    return others[0]


def make_missing_error(names: Iterable[str], text_field: str, place: str) -> TextError:
    """Build the error for a record or table without the field of the text."""
    return TextError(
        "missing-column",
        f"{place}: no field or column {text_field!r}; it has {format_names(names)}: choose with --text-field",
    )


@cache
def _log_field(corpus: str, name: str) -> None:
    log.info(
        f"{corpus}: the text is read from the field {name!r}, because there is none called {DEFAULT_FIELD!r}",
        extra={"code": "text-field"},
    )


def choose_column(schema: pa.Schema, text_field: str, path: Path) -> str:
    """Choose the column with the text of a table, and check that it holds text. Raises TextError."""
    place, text_field = str(path), choose_field(schema.names, text_field, str(path), str(path.parent))
    if schema.names.count(text_field) > 1:
        raise TextError("repeated-column", f"{place}: two columns are called {text_field!r}: rename one")
    kind = schema.field(text_field).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise TextError(
            "wrong-type", f"{place}: column {text_field!r} holds {kind}, not text: choose another with --text-field"
        )
    return text_field


def check_text(text: Any, text_field: str, place: str) -> str:
    if not isinstance(text, str):
        kind = "null" if text is None else type(text).__name__
        raise TextError("wrong-type", f"{place}: field {text_field!r} is {kind}, not a string")
    return text


def format_names(names: Iterable[str], limit: int = 10) -> str:
    names = list(names)
    return (
        ", ".join(map(repr, names[:limit])) + (f" and {len(names) - limit} more" if len(names) > limit else "")
        or "none"
    )
