"""Questions with a fixed number of choices, from tables in SWAG's layout or with a context and a list of endings."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from electra.errors import DataError
from electra.external import check_unicode, shorten
from electra.finetuning.readers.inputs import build_type_error, get_text, iterate_values, read_records
from electra.finetuning.task import Values
from electra.text.lines import get_row_id

LIST = "endings"
"""Field with all endings as a list, in JSON lines and Parquet, instead of the fields ending0, ending1 and so on."""
ENDING = re.compile(r"ending(0|[1-9][0-9]{0,2})")
CONTEXTS = (("sent1", "sent2"), ("startphrase",), ("context",))
"""Columns of the context, and of the text with which each ending begins; the first pair that a row has is used. In SWAG,
startphrase is sent1 and sent2 together."""
COLUMN_HINT = " (see --text and --text-pair)"


@dataclass(frozen=True)
class Question:
    """A context and its possible endings."""

    id: str
    """The id in the input, or the number of the input, from 0."""
    context: str
    endings: tuple[str, ...]
    """At least two; each with the text that all of them begin with."""
    answer: int | None
    """Index of the right ending; None if unknown."""
    place: str
    """File and line, or number of the input, for messages."""


def read_questions(source: str, columns: tuple[str, ...] | None, label: str | None) -> Iterator[Question]:
    """Yield the questions in a table, or in JSON lines from standard input.

    Args:
        source: A .csv, .tsv, .jsonl or .parquet file; "-" is standard input.
        columns: Columns of the context and of the beginning of the endings; None: those of `CONTEXTS`.
        label: Column of the index of the right ending; None: it is not read.

    Raises:
        DataError: the file cannot be read, or a row is malformed; the message names file and line.
    """
    for number, (place, record) in enumerate(read_records(source, "a JSON object with a context and endings in each")):
        yield parse_question(record, columns, label, str(number), place)


def parse_questions(values: Values, columns: tuple[str, ...] | None) -> Iterator[Question]:
    """Yield the questions in mappings from Python, with the keys of a table.

    Raises:
        DataError: a value is of another type or malformed.
    """
    for place, id, value in iterate_values(values):
        if not isinstance(value, Mapping):
            raise build_type_error(value, place, "a dictionary with a context and endings")
        yield parse_question(value, columns, None, id, place)


def parse_question(
    record: Mapping[str, Any], columns: tuple[str, ...] | None, label: str | None, id: str, place: str
) -> Question:
    """Parse a row; see `read_questions`. Raises a `DataError` if it is malformed."""
    names = columns or next((each for each in CONTEXTS if all(name in record for name in each)), CONTEXTS[-1])
    context, *begin = (check_unicode(get_text(record, name, place, COLUMN_HINT), place, DataError) for name in names)
    endings = [check_unicode(ending, place, DataError) for ending in get_endings(record, place)]
    if begin:
        endings = [f"{begin[0]} {ending}" for ending in endings]
    answer = None if label is None else parse_answer(record, label, len(endings), place)
    return Question(get_row_id(record) or id, context, tuple(endings), answer, place)


def get_endings(record: Mapping[str, Any], place: str) -> list[str]:
    """Return the endings of a row, of its list or of its numbered fields.

    Raises:
        DataError: an ending is missing, blank or not a text, or there are fewer than two.
    """
    if LIST in record:
        values = record[LIST]
        if not isinstance(values, list | tuple):
            raise build_type_error(values, place, f"a list of texts as {LIST!r}")
        found = {f"{LIST}[{i}]": value for i, value in enumerate(values)}
    else:
        numbers = [int(match[1]) for name in record if isinstance(name, str) and (match := ENDING.fullmatch(name))]
        found = {f"ending{i}": record.get(f"ending{i}") for i in range(max(numbers, default=-1) + 1)}
    for name, value in found.items():
        if value is None or value == "" or (isinstance(value, str) and not value.strip()):
            raise DataError("missing-ending", f"{place}: {name!r} is missing; expected a text for each choice")
        if not isinstance(value, str):
            raise DataError("wrong-type", f"{place}: {name!r} is not a text, but {type(value).__name__}")
    if len(found) < 2:
        raise DataError(
            "too-few-endings",
            f"{place}: {len(found)} endings, expected at least 2, as ending0, ending1, ... or as a list {LIST!r}",
        )
    return [str(value) for value in found.values()]


def parse_answer(record: Mapping[str, Any], label: str, choices: int, place: str) -> int:
    """Parse the index of the right ending.

    Raises:
        DataError: it is missing, or not the number of an ending.
    """
    if label not in record:
        raise DataError("missing-field", f"{place}: {label!r} is missing; there are {', '.join(record)} (see --label)")
    value = record[label]
    text = "" if value is None or isinstance(value, bool) else str(value).strip()
    if not re.fullmatch(r"[0-9]{1,3}", text) or int(text) >= choices:
        raise DataError(
            "wrong-label",
            f"{place}: {label!r} is {shorten(str(value)) or 'missing'}, expected the number of an ending, 0 to {choices - 1}",
        )
    return int(text)


def check_choices(questions: Iterable[Question], choices: int | None = None) -> Iterator[Question]:
    """Yield the questions after a check that all have `choices` endings; None: as many as the first one.

    Raises:
        DataError: a question has another number of endings.
    """
    for question in questions:
        choices = choices or len(question.endings)
        if len(question.endings) != choices:
            raise DataError(
                "other-number",
                f"{question.place}: {len(question.endings)} endings, expected {choices} as in the other questions",
            )
        yield question
