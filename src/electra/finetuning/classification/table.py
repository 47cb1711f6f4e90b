"""Text classification over a table of the user."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from electra.errors import DataError, UsageError
from electra.finetuning.classification.baselines import score_baselines
from electra.finetuning.classification.heads import LabelKind
from electra.finetuning.classification.inference import (
    EXPORT_HINT,
    HEAD_KIND,
    SavedClassification,
    export_head,
    from_hugging_face,
)
from electra.finetuning.classification.labels import LabelSpec, encode_label, parse_cell, read_labels
from electra.finetuning.classification.task import LabeledTexts, TextClassification
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.readers.tables import Table, read_table
from electra.finetuning.recipe import choose_pooling
from electra.finetuning.splits import get_split_files
from electra.finetuning.task import TaskSpec
from electra.model.checkpoints import Pretrained
from electra.seeding import Stream, build_numpy_generator
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

METRICS: dict[LabelKind, tuple[str, ...]] = {
    "classification": ("accuracy", "macro_f1", "matthews"),
    "multilabel": ("micro_f1", "macro_f1"),
    "regression": ("spearman", "pearson"),
}
"""Kind of labels -> names in `metrics.METRICS`, the main metric first."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns of the text, of the second text of a pair, and of the label."""

    text: str
    pair: str | None
    label: str


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
    return replace(
        task,
        max_length=max_length,
        dropout=config.dropout,
        pooling=choose_pooling(config.pooling, pretrained.config),
        swap_pairs=bool(config.swap_pairs),
    ).weigh_classes(config.class_weights)


OPTIONS = frozenset(
    {
        *("train", "dev", "test", "text", "text_pair", "label", "kind"),
        *("skip_bad_rows", "pooling", "swap_pairs", "class_weights"),
    }
)
TABLE = TaskSpec(
    build=build_table_task,
    options=OPTIONS,
    saved=SavedClassification,
    predict_options=frozenset({"text", "text_pair"}),
    score_baselines=score_baselines,
    compute_chance_loss=TextClassification.compute_chance_loss,
    describe_errors=TextClassification.describe_errors,
    head=HEAD_KIND,
    export=export_head,
    export_hint=EXPORT_HINT,
    from_hugging_face=from_hugging_face,
)
