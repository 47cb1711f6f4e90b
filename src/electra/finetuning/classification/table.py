"""Text classification over a table of the user; the kind of labels is inferred from them and logged."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from electra.errors import DataError, UsageError
from electra.external import decode_json
from electra.finetuning.classification.heads import LabelKind
from electra.finetuning.classification.inference import (
    EXPORT_HINT,
    HEAD_KIND,
    SavedClassification,
    export_head,
    from_hugging_face,
)
from electra.finetuning.classification.task import LabeledTexts, TextClassification, parse_number
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.readers.tables import Table, read_table
from electra.finetuning.splits import get_split_files
from electra.finetuning.task import TaskSpec
from electra.model.checkpoints import Pretrained
from electra.seeding import Stream, build_numpy_generator
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

MANY_CLASSES = 20
"""Integer labels with more distinct values than this are numbers to predict, not classes."""

METRICS: dict[LabelKind, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1", "matthews"),
    "multilabel": ("micro_f1", "macro_f1"),
    "regression": ("spearman", "pearson"),
}
"""Kind of labels -> names in `metrics.METRICS`, the main metric first."""

Cell = tuple[str, ...] | list[str]
"""The label of a row as a tuple of one string, or its labels as a list of strings (multilabel)."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns of the text, of the second text of a pair, and of the label."""

    text: str
    pair: str | None
    label: str


@dataclass(frozen=True)
class LabelSpec:
    """Kind and names of the labels of a table."""

    kind: LabelKind
    names: tuple[str, ...]
    """In the order of the logits; empty for regression."""
    shift: float = 0.0
    scale: float = 1.0
    """Regression: mean and standard deviation of the numbers that are trained on."""


def load_table_task(
    files: Mapping[str, Path],
    columns: Columns,
    tokenizer: Tokenizer,
    *,
    kind: LabelKind | None = None,
    dev_share: float = 0.1,
    split_seed: int = 0,
    skip_bad_rows: bool = False,
) -> TextClassification:
    """Load a task from the tables of "train" and, optionally, "dev" and "test".

    Without a dev file, the share `dev_share` of the training rows is held out at random by `split_seed`, and logged. If `kind`
    is None, the kind of labels is inferred (see `infer_kind`), and logged.

    Raises:
        DataError: a file, column, text or label is missing or malformed; the message names the place.
    """
    skip = {split: skip_bad_rows if split == "train" else None for split in files}
    tables = {split: read_table(path, skip_bad=skip[split]) for split, path in files.items()}
    train = tables["train"]
    held_out = np.zeros(len(train), dtype=bool)
    if "dev" not in tables:
        held_out = draw_held_out(train, dev_share, split_seed)
    cells = [parse_cell(value, train.format_place(i)) for i, value in enumerate(train.get_column(columns.label))]
    labels = read_labels(train, cells, held_out, kind, columns.label)

    @lru_cache(maxsize=3)
    def read(split: str) -> LabeledTexts:
        if split == "train" or (split == "dev" and "dev" not in tables):
            selected = np.flatnonzero(held_out == (split == "dev")).tolist()
            counts = {"rows_left_out": train.skipped} if train.skipped else {}
            return select_texts(train, selected, columns, labels, counts | {"rows_held_out": int(held_out.sum())})
        return select_texts(tables[split], list(range(len(tables[split]))), columns, labels, {})

    return TextClassification(
        "table",
        labels.kind,
        labels.names,
        METRICS[labels.kind],
        read,
        tokenizer,
        columns=tuple(name for name in (columns.text, columns.pair) if name is not None),
        predicted_splits=("test",) if "test" in tables else (),
        shift=labels.shift,
        scale=labels.scale,
    )


def draw_held_out(table: Table, share: float, seed: int) -> np.ndarray:
    """Draw the rows that are held out as dev: a mask [N] that is True for `share` of the rows, at least for one."""
    number = max(1, round(share * len(table)))
    if number >= len(table):
        raise DataError("too-few-rows", f"{table.path}: {len(table)} rows are too few to hold some out; give --dev")
    held_out = np.zeros(len(table), dtype=bool)
    held_out[build_numpy_generator(Stream.DEV_SPLIT, seed).permutation(len(table))[:number]] = True
    log.info(
        f"{number:,} of {len(table):,} rows of {table.path} are held out as dev (no --dev was given)",
        extra={"code": "held-out"},
    )
    return held_out


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


def select_texts(
    table: Table, selected: list[int], columns: Columns, labels: LabelSpec, counts: Mapping[str, int]
) -> LabeledTexts:
    """Return the texts and labels of the rows with the numbers `selected`; a table without a label column has no labels."""
    texts = [table.get_texts(name) for name in (columns.text, columns.pair) if name is not None]
    first, *second = [[column[i] for i in selected] for column in texts]
    if columns.label not in table.names:
        return LabeledTexts(first, second[0] if second else None, None, counts=counts)
    cells, place = table.get_column(columns.label), table.format_place
    targets = [encode_label(parse_cell(cells[i], place(i)), labels, place(i)) for i in selected]
    dtype = np.int64 if labels.kind == "classification" else np.float32
    return LabeledTexts(first, second[0] if second else None, np.array(targets, dtype=dtype), counts=counts)


def parse_cell(value: Any, place: str) -> Cell:
    """Parse the label of a row; a list, or a string with a JSON list, is a list of labels."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = decode_json(value, place, DataError)
        except DataError as error:
            if not isinstance(error.__cause__, json.JSONDecodeError):  # not JSON: the name of a class
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


def check_columns(text: str | None, pair: str | None, label: str | None) -> Columns:
    """Return the columns that the options name.

    Raises:
        UsageError: --text or --label is missing.
    """
    if not text or not label:
        raise UsageError("missing-option", "a table needs --text and --label, the names of its columns")
    return Columns(text, pair, label)


def build_table_task(
    config: FinetuneConfig, tokenizer: Tokenizer, pretrained: Pretrained, max_length: int
) -> TextClassification:
    """Build the task over the tables of --train, --dev and --test."""
    columns = check_columns(config.text, config.text_pair, config.label)
    task = load_table_task(
        get_split_files(config),
        columns,
        tokenizer,
        kind=config.kind,
        dev_share=config.dev_share,
        split_seed=config.split_seed,
        skip_bad_rows=config.skip_bad_rows,
    )
    return replace(task, max_length=max_length, dropout=config.dropout, swap_pairs=bool(config.swap_pairs))


TABLE = TaskSpec(
    build=build_table_task,
    options=frozenset({"train", "dev", "test", "text", "text_pair", "label", "kind", "skip_bad_rows", "swap_pairs"}),
    saved=SavedClassification,
    predict_options=frozenset({"text", "text_pair"}),
    head=HEAD_KIND,
    export=export_head,
    export_hint=EXPORT_HINT,
    from_hugging_face=from_hugging_face,
)
