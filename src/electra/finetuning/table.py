"""Sentence tasks over one's own table: what is to be predicted is found from the labels, and said."""

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from electra.console import decided, warned
from electra.errors import DataError, UsageError
from electra.finetuning.heads import Kind
from electra.finetuning.rows import Rows, read_rows
from electra.finetuning.sentences import Sentences, SentenceTask
from electra.text.tokenizer import Tokenizer

MANY_CLASSES = 20
"""Whole numbers with more distinct values than this are taken for measurements, not for names of classes."""

METRICS: dict[Kind, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1", "matthews"),
    "multilabel": ("micro_f1", "macro_f1"),
    "regression": ("spearman", "pearson"),
}


def table_task(
    train: Path,
    dev: Path | None,
    test: Path | None,
    columns: tuple[str, str | None, str],
    tokenizer: Tokenizer,
    *,
    dev_share: float = 0.1,
    seed: int = 0,
    skip_bad_rows: bool = False,
) -> SentenceTask:
    """A task over `train` with the columns (text, text of the pair or None, label).

    Without `dev`, a share of the training rows that `seed` draws is held out; both are said.

    Raises:
        DataError: a file, column, text or label is missing or broken; the message names the place.
    """
    text, pair, label = columns
    rows = read_rows(train, skip_bad=skip_bad_rows)
    told(rows)
    raw = [labels_of(value, rows.place(i)) for i, value in enumerate(rows.column(label))]
    kind = kind_of_labels(raw)
    labels = () if kind == "regression" else in_order({name for names in raw for name in names})
    if kind == "classification" and len(labels) < 2:
        raise DataError(f"{train}: every row has the label {labels[0]!r}; there is nothing to learn")
    decided(f"{label!r} is read as {described(kind, labels)}", f"found from {len(raw):,} labels")
    held_out = np.zeros(len(rows), dtype=bool)
    if dev is None:
        number = max(1, round(dev_share * len(rows)))
        if number >= len(rows):
            raise DataError(f"{train}: {len(rows)} rows are too few to hold some out; give --dev")
        held_out[np.random.Generator(np.random.PCG64(seed)).permutation(len(rows))[:number]] = True
        decided(f"{number:,} of {len(rows):,} rows of {train} are held out as dev", "no --dev was given")

    @lru_cache(maxsize=3)
    def read(split: str) -> Sentences:
        if split == "train" or (split == "dev" and dev is None):
            return of_rows(rows, np.flatnonzero(held_out == (split == "dev")).tolist())
        path = dev if split == "dev" else test
        if path is None:
            raise DataError(f"no {split} file was given (--{split})")
        other = read_rows(path, skip_bad=skip_bad_rows)
        told(other)
        return of_rows(other, list(range(len(other))))

    def of_rows(rows: Rows, chosen: list[int]) -> Sentences:
        first = texts(rows, text, chosen)
        second = None if pair is None else texts(rows, pair, chosen)
        if label not in rows.names and rows.path == test:
            return Sentences(first, second, None)
        values = rows.column(label)
        targets = [target(labels_of(values[i], rows.place(i)), kind, labels, rows.place(i)) for i in chosen]
        return Sentences(first, second, np.array(targets, dtype=np.int64 if kind == "classification" else np.float32))

    predicted = ("test",) if test else ()
    shift, scale = 0.0, 1.0
    if kind == "regression":
        numbers = np.array([float(names[0]) for names in raw])
        shift, scale = float(numbers.mean()), float(numbers.std()) or 1.0
    return SentenceTask(
        "table", kind, labels, METRICS[kind], read, tokenizer, predicted=predicted, shift=shift, scale=scale
    )


def told(rows: Rows) -> None:
    """Say how many rows were left out."""
    if rows.skipped:
        warned(f"{rows.path}: {rows.skipped:,} rows with another number of columns are left out (--skip-bad-rows)")


def texts(rows: Rows, column: str, chosen: list[int]) -> list[str]:
    """The texts of a column at the chosen rows."""
    values = rows.column(column)
    for i in chosen:
        if not isinstance(values[i], str):
            raise DataError(f"{rows.place(i)}: {column!r} is {values[i]!r}, not a text")
    return [values[i] for i in chosen]


def labels_of(value: Any, place: str) -> tuple[str, ...] | list[str]:
    """A cell's label as a tuple of one, or its several labels as a list (a list, or one written as JSON)."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            raise DataError(f"{place}: the labels {value!r} are not a JSON list") from None
    if isinstance(value, list):
        return [str(each) for each in value]
    if value is None or value == "":
        raise DataError(f"{place}: the label is missing")
    return (str(value),)


def kind_of_labels(raw: Sequence[tuple[str, ...] | list[str]]) -> Kind:
    """Lists are labels that may go together, numbers with a fraction or of many values are measured, all else classes."""
    if any(isinstance(names, list) for names in raw):
        return "multilabel"
    try:
        numbers = [float(names[0]) for names in raw]
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


def described(kind: Kind, labels: tuple[str, ...]) -> str:
    """A kind in words."""
    names = ", ".join(labels[:8]) + (", …" if len(labels) > 8 else "")
    return {
        "classification": f"one of {len(labels)} classes ({names})",
        "multilabel": f"any of {len(labels)} labels ({names})",
        "regression": "a number",
    }[kind]


def target(names: tuple[str, ...] | list[str], kind: Kind, labels: tuple[str, ...], place: str) -> Any:
    """A cell's labels as the head wants them.

    Raises:
        DataError: a label that the training rows do not have, or of another kind than theirs.
    """
    if kind == "regression":
        try:
            return float(names[0])
        except (ValueError, IndexError):
            raise DataError(f"{place}: the label is {names[0] if names else '[]'!r}, expected a number") from None
    if kind == "classification" and isinstance(names, list):
        raise DataError(f"{place}: a list of labels, where other rows have one label")
    for name in names:
        if name not in labels:
            raise DataError(f"{place}: the label is {name!r}; the training rows have {', '.join(labels[:8])}")
    return labels.index(names[0]) if kind == "classification" else [float(name in names) for name in labels]


def check_columns(text: str | None, label: str | None) -> tuple[str, str]:
    """Both must be told.

    Raises:
        UsageError: one of them is not.
    """
    if not text or not label:
        raise UsageError("a table needs --text and --label, the names of its columns")
    return text, label
