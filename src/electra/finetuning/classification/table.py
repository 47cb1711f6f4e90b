"""Sentence tasks over one's own table: what is to be predicted is found from the labels, and said."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from electra.errors import DataError, UsageError
from electra.external import decode_json
from electra.finetuning.classification.heads import Kind
from electra.finetuning.classification.rows import Rows, read_rows
from electra.finetuning.classification.task import Sentences, SentenceTask, finite
from electra.seeding import Stream, numpy_generator
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


MANY_CLASSES = 20
"""Whole numbers with more distinct values than this are taken for measurements, not for names of classes."""

METRICS: dict[Kind, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1", "matthews"),
    "multilabel": ("micro_f1", "macro_f1"),
    "regression": ("spearman", "pearson"),
}


@dataclass(frozen=True)
class Columns:
    """The columns of a table that matter, by name."""

    text: str
    pair: str | None
    label: str


@dataclass(frozen=True)
class Labels:
    """What the labels of a table turned out to be."""

    kind: Kind
    names: tuple[str, ...]
    shift: float = 0.0
    scale: float = 1.0


def table_task(
    files: Mapping[str, Path],
    columns: Columns,
    tokenizer: Tokenizer,
    *,
    kind: Kind | None = None,
    dev_share: float = 0.1,
    split_seed: int = 0,
    skip_bad_rows: bool = False,
) -> SentenceTask:
    """A task over the files of "train" and, where there are such, "dev" and "test".

    Without a dev file, a share of the training rows that `split_seed` draws is held out. That, and what the labels are
    taken for (unless `kind` says it), is told.

    Raises:
        DataError: a file, column, text or label is missing or broken; the message names the place.
    """
    skip = {split: skip_bad_rows if split == "train" else None for split in files}
    rows = {split: read_rows(path, skip_bad=skip[split]) for split, path in files.items()}
    train = rows["train"]
    held_out = np.zeros(len(train), dtype=bool)
    if "dev" not in rows:
        held_out = drawn(train, dev_share, split_seed)
    cells = [cell_labels(value, train.place(i)) for i, value in enumerate(train.column(columns.label))]
    labels = read_labels(train, cells, held_out, kind, columns.label)

    @lru_cache(maxsize=3)
    def read(split: str) -> Sentences:
        if split == "train" or (split == "dev" and "dev" not in rows):
            chosen = np.flatnonzero(held_out == (split == "dev")).tolist()
            notes = {"rows_left_out": train.skipped} if train.skipped else {}
            return sentences_of(train, chosen, columns, labels, notes | {"rows_held_out": int(held_out.sum())})
        return sentences_of(rows[split], list(range(len(rows[split]))), columns, labels, {})

    return SentenceTask(
        "table",
        labels.kind,
        labels.names,
        METRICS[labels.kind],
        read,
        tokenizer,
        columns=tuple(name for name in (columns.text, columns.pair) if name is not None),
        predicted=("test",) if "test" in rows else (),
        shift=labels.shift,
        scale=labels.scale,
    )


def drawn(rows: Rows, share: float, seed: int) -> np.ndarray:
    """[N] true for the rows that are held out."""
    number = max(1, round(share * len(rows)))
    if number >= len(rows):
        raise DataError(f"{rows.path}: {len(rows)} rows are too few to hold some out; give --dev")
    held_out = np.zeros(len(rows), dtype=bool)
    held_out[numpy_generator(Stream.DEV_SPLIT, seed).permutation(len(rows))[:number]] = True
    log.info(f"{number:,} of {len(rows):,} rows of {rows.path} are held out as dev (no --dev was given)")
    return held_out


def read_labels(
    rows: Rows, cells: Sequence[tuple[str, ...] | list[str]], held_out: np.ndarray, kind: Kind | None, column: str
) -> Labels:
    """What the labels are, from all training rows; the spread of numbers from those that are trained on."""
    given, kind = kind, kind or kind_of_labels(cells)
    if kind == "regression":
        numbers = np.array([as_number(cell, rows.place(i)) for i, cell in enumerate(cells)])[~held_out]
        labels = Labels(kind, (), float(numbers.mean()), float(numbers.std()) or 1.0)
    else:
        labels = Labels(kind, in_order({name for names in cells for name in names}))
    if kind == "classification" and len(labels.names) < 2:
        raise DataError(f"{rows.path}: every row has the label {labels.names[0]!r}; there is nothing to learn")
    why = f"from {len(cells):,} labels; --kind says otherwise"
    if given is None and (values := count_whole_numbers(cells)):
        why = explain_whole_numbers(labels.kind, values)
    log.info(f"{column!r} is read as {described(labels)} ({why})")
    return labels


def count_whole_numbers(cells: Sequence[tuple[str, ...] | list[str]]) -> int:
    """How many values labels have that are all whole numbers; 0 if one is something else."""
    try:
        numbers = {float(name) for (name,) in cells}
    except ValueError:
        return 0
    return len(numbers) if all(number.is_integer() for number in numbers) else 0


def explain_whole_numbers(kind: Kind, values: int) -> str:
    """Why labels that are whole numbers are taken for this, and how to choose the other."""
    found = f"the labels are whole numbers of {values:,} values"
    if kind == "classification":
        return f"{found}, at most {MANY_CLASSES}; where their order or distance matters (ratings), --kind regression"
    return f"{found}, more than {MANY_CLASSES}; if they are names of classes, --kind classification"


def sentences_of(
    rows: Rows, chosen: list[int], columns: Columns, labels: Labels, notes: Mapping[str, int]
) -> Sentences:
    """The chosen rows; a test file may lack the labels."""
    texts = [rows.texts(name) for name in (columns.text, columns.pair) if name is not None]
    first, *second = [[column[i] for i in chosen] for column in texts]
    if columns.label not in rows.names:
        return Sentences(first, second[0] if second else None, None, notes=notes)
    cells = rows.column(columns.label)
    targets = [target(cell_labels(cells[i], rows.place(i)), labels, rows.place(i)) for i in chosen]
    dtype = np.int64 if labels.kind == "classification" else np.float32
    return Sentences(first, second[0] if second else None, np.array(targets, dtype=dtype), notes=notes)


def cell_labels(value: Any, place: str) -> tuple[str, ...] | list[str]:
    """A cell's label as a tuple of one, or its several labels as a list (a list, or one written as JSON)."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = decode_json(value, place, DataError)
        except DataError as error:
            if not isinstance(error.__cause__, json.JSONDecodeError):  # it may be a name like any other
                raise
    if isinstance(value, list):
        return [str(each) for each in value]
    if value is None or str(value).strip().lower() in ("", "nan"):
        raise DataError(f"{place}: the label is missing")
    return (str(value),)


def kind_of_labels(cells: Sequence[tuple[str, ...] | list[str]]) -> Kind:
    """Lists are labels that may go together, numbers with a fraction or of many values are measured, all else classes."""
    if any(isinstance(names, list) for names in cells):
        return "multilabel"
    try:
        numbers = [float(names[0]) for names in cells]
    except ValueError:
        return "classification"
    whole = all(number.is_integer() for number in numbers)
    return "classification" if whole and len(set(numbers)) <= MANY_CLASSES else "regression"


def in_order(labels: set[str]) -> tuple[str, ...]:
    """Labels sorted, as numbers where all of them are."""
    try:
        return tuple(sorted(labels, key=float))
    except ValueError:
        return tuple(sorted(labels))


def described(labels: Labels) -> str:
    """A kind in words."""
    names = ", ".join(labels.names[:8]) + (", …" if len(labels.names) > 8 else "")
    return {
        "classification": f"one of {len(labels.names)} classes ({names})",
        "multilabel": f"any of {len(labels.names)} labels ({names})",
        "regression": "a number",
    }[labels.kind]


def as_number(names: tuple[str, ...] | list[str], place: str) -> float:
    """A cell's label as a number.

    Raises:
        DataError: it is none.
    """
    try:
        (name,) = names
        return finite(name)
    except ValueError:
        raise DataError(f"{place}: the label is {', '.join(names)!r}, expected a number") from None


def target(names: tuple[str, ...] | list[str], labels: Labels, place: str) -> Any:
    """A cell's labels as the head wants them.

    Raises:
        DataError: a label that the training rows do not have, or of another kind than theirs.
    """
    if labels.kind == "regression":
        return as_number(names, place)
    if labels.kind == "classification" and isinstance(names, list):
        raise DataError(f"{place}: a list of labels, where other rows have one label")
    for name in names:
        if name not in labels.names:
            raise DataError(f"{place}: the label is {name!r}; the training rows have {', '.join(labels.names[:8])}")
    if labels.kind == "classification":
        return labels.names.index(names[0])
    return [float(name in names) for name in labels.names]


def check_columns(text: str | None, pair: str | None, label: str | None) -> Columns:
    """Text and label must be told.

    Raises:
        UsageError: one of them is not.
    """
    if not text or not label:
        raise UsageError("a table needs --text and --label, the names of its columns")
    return Columns(text, pair, label)
