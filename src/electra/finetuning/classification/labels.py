"""Labels of a table: their kind, inferred from all training rows and logged, their names, and targets."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from electra.errors import DataError
from electra.external import decode_json
from electra.finetuning.classification.heads import LabelKind
from electra.finetuning.classification.task import parse_number
from electra.finetuning.readers.tables import Table

log = logging.getLogger(__name__)

MANY_CLASSES = 20
"""Integer labels with more distinct values than this are numbers to predict, not classes."""

Cell = tuple[str, ...] | list[str]
"""The label of a row as a tuple of one string, or its labels as a list of strings (multilabel)."""


@dataclass(frozen=True)
class LabelSpec:
    """Kind and names of the labels of a table."""

    kind: LabelKind
    names: tuple[str, ...]
    """In the order of the logits; empty for regression."""
    shift: float = 0.0
    scale: float = 1.0
    """Regression: mean and standard deviation of the numbers that are trained on."""


def read_labels(
    table: Table, cells: Sequence[Cell], held_out: np.ndarray, kind: LabelKind | None, column: str
) -> LabelSpec:
    """Determine kind and names of the labels from all training rows; mean and deviation without the `held_out` ones [N].

    Raises:
        DataError: a label is not a number (regression), or all rows have the same label (classification).
    """
    given, kind = kind, kind or infer_kind(cells)
    if kind == "regression":
        numbers = np.array([parse_number_cell(cell, table.format_place(i)) for i, cell in enumerate(cells)])[~held_out]
        labels = LabelSpec(kind, (), float(numbers.mean()), float(numbers.std()) or 1.0)
    else:
        labels = LabelSpec(kind, sort_labels({name for names in cells for name in names}))
    if kind == "classification" and len(labels.names) < 2:
        raise DataError(
            "one-label", f"{table.path}: every row has the label {labels.names[0]!r}; there is nothing to learn"
        )
    reason = f"from {len(cells):,} labels; --kind sets another"
    if given is None and (values := count_integers(cells)):
        reason = explain_integers(labels.kind, values)
    log.info(f"{column!r} is read as {describe_labels(labels)} ({reason})", extra={"code": "column-kind"})
    return labels


def count_integers(cells: Sequence[Cell]) -> int:
    """Count the distinct labels if all are integers, else return 0."""
    try:
        numbers = {float(name) for (name,) in cells}
    except ValueError:
        return 0
    return len(numbers) if all(number.is_integer() for number in numbers) else 0


def explain_integers(kind: LabelKind, values: int) -> str:
    """Explain for a message why integer labels with this many distinct values are of this kind, and how to change it."""
    found = f"the labels are integers with {values:,} values"
    if kind == "classification":
        return f"{found}, at most {MANY_CLASSES}; where their order or distance matters (ratings), --kind regression"
    return f"{found}, more than {MANY_CLASSES}; if they are names of classes, --kind classification"


def parse_cell(value: Any, place: str) -> Cell:
    """Parse the label of a row; a list, or a string with a JSON list, is a list of labels."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = decode_json(value, place, DataError)
        except DataError as error:
            if error.code != "not-json":  # not JSON: the name of a class
                raise
    if isinstance(value, list):
        return [str(each) for each in value]
    if value is None or str(value).strip().lower() in ("", "nan"):
        raise DataError("missing-label", f"{place}: the label is missing")
    return (str(value),)


def infer_kind(cells: Sequence[Cell]) -> LabelKind:
    """Infer the kind of labels: multilabel for lists, regression for fractions or many numbers, else classification."""
    if any(isinstance(names, list) for names in cells):
        return "multilabel"
    try:
        numbers = [float(names[0]) for names in cells]
    except ValueError:
        return "classification"
    whole = all(number.is_integer() for number in numbers)
    return "classification" if whole and len(set(numbers)) <= MANY_CLASSES else "regression"


def sort_labels(labels: set[str]) -> tuple[str, ...]:
    """Sort the names of labels, by value if all of them are numbers."""
    try:
        return tuple(sorted(labels, key=float))
    except ValueError:
        return tuple(sorted(labels))


def describe_labels(labels: LabelSpec) -> str:
    """Describe kind and names of labels for a message."""
    names = ", ".join(labels.names[:8]) + (", …" if len(labels.names) > 8 else "")
    return {
        "classification": f"one of {len(labels.names)} classes ({names})",
        "multilabel": f"any of {len(labels.names)} labels ({names})",
        "regression": "a number",
    }[labels.kind]


def parse_number_cell(names: Cell, place: str) -> float:
    """Parse the label of a row as a number. Raises a `DataError` if it is not finite, or if there are several labels."""
    try:
        (name,) = names
        return parse_number(name)
    except ValueError:
        raise DataError("wrong-label", f"{place}: the label is {', '.join(names)!r}, expected a number") from None


def encode_label(names: Cell, labels: LabelSpec, place: str) -> Any:
    """Encode the label of a row as a target: a class index, zeros and ones (a list), or a number.

    Raises:
        DataError: no training row has the label, or it is of another kind.
    """
    if labels.kind == "regression":
        return parse_number_cell(names, place)
    if labels.kind == "classification" and isinstance(names, list):
        raise DataError("label-list", f"{place}: a list of labels; expected one label, as in other rows")
    for name in names:
        if name not in labels.names:
            raise DataError(
                "unknown-label",
                f"{place}: the label is {name!r}; the training rows have {', '.join(labels.names[:8])}; correct the row, or "
                "remove it",
            )
    if labels.kind == "classification":
        return labels.names.index(names[0])
    return [float(name in names) for name in labels.names]
