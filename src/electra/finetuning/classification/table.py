"""Text classification over one's own table; the kind of task is inferred from the labels, and logged."""

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
from electra.finetuning.classification.heads import Kind
from electra.finetuning.classification.inference import (
    EXPORT_HINT,
    HEAD,
    SavedClassification,
    export_head,
    from_hugging_face,
)
from electra.finetuning.classification.task import LabeledTexts, TextClassification, parse_number
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.readers.tables import Table, read_table
from electra.finetuning.splits import get_files
from electra.finetuning.task import TaskSpec
from electra.model.checkpoints import Pretrained
from electra.seeding import Stream, build_numpy_generator
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


MANY_CLASSES = 20
"""Integers with more distinct values than this are a regression target, not class names."""

METRICS: dict[Kind, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1", "matthews"),
    "multilabel": ("micro_f1", "macro_f1"),
    "regression": ("spearman", "pearson"),
}


@dataclass(frozen=True)
class Columns:
    """The names of the columns that are read."""

    text: str
    pair: str | None
    label: str


@dataclass(frozen=True)
class Labels:
    """What the labels of a table are."""

    kind: Kind
    names: tuple[str, ...]
    shift: float = 0.0
    scale: float = 1.0


def load_table_task(
    files: Mapping[str, Path],
    columns: Columns,
    tokenizer: Tokenizer,
    *,
    kind: Kind | None = None,
    dev_share: float = 0.1,
    split_seed: int = 0,
    skip_bad_rows: bool = False,
) -> TextClassification:
    """A task over the files of "train" and, where they exist, "dev" and "test".

    Without a dev file, a random share of the training rows is held out, by `split_seed`. That, and the kind of the labels,
    which is inferred unless `kind` is given, is logged.

    Raises:
        DataError: a file, column, text or label is missing or broken; the message names the place.
    """
    skip = {split: skip_bad_rows if split == "train" else None for split in files}
    rows = {split: read_table(path, skip_bad=skip[split]) for split, path in files.items()}
    train = rows["train"]
    held_out = np.zeros(len(train), dtype=bool)
    if "dev" not in rows:
        held_out = draw_held_out(train, dev_share, split_seed)
    cells = [parse_cell(value, train.place(i)) for i, value in enumerate(train.column(columns.label))]
    labels = read_labels(train, cells, held_out, kind, columns.label)

    @lru_cache(maxsize=3)
    def read(split: str) -> LabeledTexts:
        if split == "train" or (split == "dev" and "dev" not in rows):
            selected = np.flatnonzero(held_out == (split == "dev")).tolist()
            counts = {"rows_left_out": train.skipped} if train.skipped else {}
            return select_texts(train, selected, columns, labels, counts | {"rows_held_out": int(held_out.sum())})
        return select_texts(rows[split], list(range(len(rows[split]))), columns, labels, {})

    return TextClassification(
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


def draw_held_out(rows: Table, share: float, seed: int) -> np.ndarray:
    """[N] true for the rows that are held out as dev."""
    number = max(1, round(share * len(rows)))
    if number >= len(rows):
        raise DataError("too-few-rows", f"{rows.path}: {len(rows)} rows are too few to hold some out; give --dev")
    held_out = np.zeros(len(rows), dtype=bool)
    held_out[build_numpy_generator(Stream.DEV_SPLIT, seed).permutation(len(rows))[:number]] = True
    log.info(
        f"{number:,} of {len(rows):,} rows of {rows.path} are held out as dev (no --dev was given)",
        extra={"code": "held-out"},
    )
    return held_out


def read_labels(
    rows: Table, cells: Sequence[tuple[str, ...] | list[str]], held_out: np.ndarray, kind: Kind | None, column: str
) -> Labels:
    """What the labels are, from all training rows; the spread of numbers from those that are trained on."""
    given, kind = kind, kind or infer_kind(cells)
    if kind == "regression":
        numbers = np.array([parse_number_cell(cell, rows.place(i)) for i, cell in enumerate(cells)])[~held_out]
        labels = Labels(kind, (), float(numbers.mean()), float(numbers.std()) or 1.0)
    else:
        labels = Labels(kind, sort_labels({name for names in cells for name in names}))
    if kind == "classification" and len(labels.names) < 2:
        raise DataError(
            "one-label", f"{rows.path}: every row has the label {labels.names[0]!r}; there is nothing to learn"
        )
    reason = f"from {len(cells):,} labels; --kind sets another"
    if given is None and (values := count_integers(cells)):
        reason = explain_integers(labels.kind, values)
    log.info(f"{column!r} is read as {describe_labels(labels)} ({reason})", extra={"code": "column-kind"})
    return labels


def count_integers(cells: Sequence[tuple[str, ...] | list[str]]) -> int:
    """The number of distinct labels if all are integers; else 0."""
    try:
        numbers = {float(name) for (name,) in cells}
    except ValueError:
        return 0
    return len(numbers) if all(number.is_integer() for number in numbers) else 0


def explain_integers(kind: Kind, values: int) -> str:
    """Why integer labels are of this kind, and how to choose the other."""
    found = f"the labels are integers with {values:,} values"
    if kind == "classification":
        return f"{found}, at most {MANY_CLASSES}; where their order or distance matters (ratings), --kind regression"
    return f"{found}, more than {MANY_CLASSES}; if they are names of classes, --kind classification"


def select_texts(
    rows: Table, selected: list[int], columns: Columns, labels: Labels, counts: Mapping[str, int]
) -> LabeledTexts:
    """The selected rows; a test file may have no labels."""
    texts = [rows.texts(name) for name in (columns.text, columns.pair) if name is not None]
    first, *second = [[column[i] for i in selected] for column in texts]
    if columns.label not in rows.names:
        return LabeledTexts(first, second[0] if second else None, None, counts=counts)
    cells = rows.column(columns.label)
    targets = [encode_label(parse_cell(cells[i], rows.place(i)), labels, rows.place(i)) for i in selected]
    dtype = np.int64 if labels.kind == "classification" else np.float32
    return LabeledTexts(first, second[0] if second else None, np.array(targets, dtype=dtype), counts=counts)


def parse_cell(value: Any, place: str) -> tuple[str, ...] | list[str]:
    """A cell's label as a tuple of one, or its labels as a list (where the cell is a list, or a JSON list)."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = decode_json(value, place, DataError)
        except DataError as error:
            if not isinstance(error.__cause__, json.JSONDecodeError):  # it may be the name of a class
                raise
    if isinstance(value, list):
        return [str(each) for each in value]
    if value is None or str(value).strip().lower() in ("", "nan"):
        raise DataError("missing-label", f"{place}: the label is missing")
    return (str(value),)


def infer_kind(cells: Sequence[tuple[str, ...] | list[str]]) -> Kind:
    """Lists are multi-label; numbers with a fraction, or with many values, are regression; all else is classification."""
    if any(isinstance(names, list) for names in cells):
        return "multilabel"
    try:
        numbers = [float(names[0]) for names in cells]
    except ValueError:
        return "classification"
    whole = all(number.is_integer() for number in numbers)
    return "classification" if whole and len(set(numbers)) <= MANY_CLASSES else "regression"


def sort_labels(labels: set[str]) -> tuple[str, ...]:
    """Labels in order, by value where all of them are numbers."""
    try:
        return tuple(sorted(labels, key=float))
    except ValueError:
        return tuple(sorted(labels))


def describe_labels(labels: Labels) -> str:
    """The kind and the labels, for a message."""
    names = ", ".join(labels.names[:8]) + (", …" if len(labels.names) > 8 else "")
    return {
        "classification": f"one of {len(labels.names)} classes ({names})",
        "multilabel": f"any of {len(labels.names)} labels ({names})",
        "regression": "a number",
    }[labels.kind]


def parse_number_cell(names: tuple[str, ...] | list[str], place: str) -> float:
    """A cell's label as a number.

    Raises:
        DataError: it is none.
    """
    try:
        (name,) = names
        return parse_number(name)
    except ValueError:
        raise DataError("wrong-label", f"{place}: the label is {', '.join(names)!r}, expected a number") from None


def encode_label(names: tuple[str, ...] | list[str], labels: Labels, place: str) -> Any:
    """A cell's labels as the target of the head.

    Raises:
        DataError: a label that the training rows do not have, or of another kind than theirs.
    """
    if labels.kind == "regression":
        return parse_number_cell(names, place)
    if labels.kind == "classification" and isinstance(names, list):
        raise DataError("label-list", f"{place}: a list of labels, where other rows have one label")
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
    """The columns by their options.

    Raises:
        UsageError: --text or --label is missing.
    """
    if not text or not label:
        raise UsageError("missing-option", "a table needs --text and --label, the names of its columns")
    return Columns(text, pair, label)


def build_table_task(
    config: FinetuneConfig, tokenizer: Tokenizer, pretrained: Pretrained, max_length: int
) -> TextClassification:
    """The task over the files of --train, --dev and --test."""
    columns = check_columns(config.text, config.text_pair, config.label)
    task = load_table_task(
        get_files(config),
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
    head=HEAD,
    export=export_head,
    export_hint=EXPORT_HINT,
    from_hugging_face=from_hugging_face,
)
