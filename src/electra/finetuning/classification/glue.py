"""The tasks of GLUE: layout of the files, labels and metrics."""

import logging
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from electra.errors import DataError, UsageError
from electra.finetuning.classification.baselines import score_baselines
from electra.finetuning.classification.inference import (
    EXPORT_HINT,
    HEAD_KIND,
    SavedClassification,
    export_head,
)
from electra.finetuning.classification.task import LabeledTexts, TextClassification, parse_number
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.readers.tables import Table, read_table
from electra.finetuning.recipe import SMALL_TEXTS, TEXTS, TaskRecipe, choose_pooling
from electra.finetuning.task import TaskSpec
from electra.model.checkpoints import Pretrained
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

ENTAILMENT: tuple[str, ...] = ("entailment", "not_entailment")


@dataclass(frozen=True)
class GlueTask:
    """Layout and metrics of one task of GLUE. Columns are numbered from 0; negative ones count from the last column."""

    folder: str
    """Folder in GLUE's download."""
    columns: tuple[int, ...]
    """Columns of the text, or of the two texts, in train and dev."""
    test_columns: tuple[int, ...]
    """The same in test."""
    labels: tuple[str, ...]
    """Class names as spelled in the files, in the order of the logits; empty if the label is a number."""
    metrics: tuple[str, ...]
    """The paper's metric (section 3.1) first, then others of the GLUE site."""
    label_column: int = -1
    recipe: TaskRecipe = TEXTS
    header: bool = True
    """Whether train and dev have a header line (those of CoLA have none)."""
    dev: str = "dev"
    """Name of the dev file, without suffix."""
    symmetric: bool = False
    """Whether the order of a pair has no meaning, so that pairs can be swapped (Appendix B)."""
    hub_columns: tuple[str, ...] = ("sentence1", "sentence2")
    """Columns of the texts in the data set `glue` of the Hugging Face hub."""


GLUE: dict[str, GlueTask] = {
    "cola": GlueTask(
        "CoLA", (3,), (1,), ("0", "1"), ("matthews",), label_column=1, header=False, hub_columns=("sentence",)
    ),
    "sst2": GlueTask("SST-2", (0,), (1,), ("0", "1"), ("accuracy",), hub_columns=("sentence",)),
    "mrpc": GlueTask("MRPC", (3, 4), (3, 4), ("0", "1"), ("accuracy", "f1"), label_column=0, symmetric=True),
    "stsb": GlueTask("STS-B", (-3, -2), (-2, -1), (), ("spearman", "pearson"), recipe=SMALL_TEXTS, symmetric=True),
    "qqp": GlueTask(
        "QQP", (3, 4), (1, 2), ("0", "1"), ("accuracy", "f1"), symmetric=True, hub_columns=("question1", "question2")
    ),
    "mnli": GlueTask(
        "MNLI",
        (8, 9),
        (8, 9),
        ("contradiction", "entailment", "neutral"),
        ("accuracy",),
        dev="dev_matched",
        hub_columns=("premise", "hypothesis"),
    ),
    "qnli": GlueTask("QNLI", (1, 2), (1, 2), ENTAILMENT, ("accuracy",), hub_columns=("question", "sentence")),
    "rte": GlueTask("RTE", (1, 2), (1, 2), ENTAILMENT, ("accuracy",), recipe=SMALL_TEXTS),
    "wnli": GlueTask("WNLI", (1, 2), (1, 2), ("0", "1"), ("accuracy",)),
}

HUB_LABELS: dict[str, tuple[str, ...]] = {"mnli": ("entailment", "neutral", "contradiction")}
"""Task -> order of the labels in the data set of the hub, if it differs from `GlueTask.labels`."""

OPTIONS = frozenset({"data", "skip_bad_rows", "pooling", "swap_pairs", "class_weights"})


def build_glue_spec(name: str) -> TaskSpec:
    """Build the `TaskSpec` of a task of `GLUE`."""

    def build(
        config: FinetuneConfig, tokenizer: Tokenizer, pretrained: Pretrained, max_length: int
    ) -> TextClassification:
        return build_glue_task(name, config, tokenizer, pretrained, max_length)

    return TaskSpec(
        build=build,
        recipe=GLUE[name].recipe,
        options=OPTIONS,
        reads_hub=True,
        list_data_folders=lambda data: list_data_folders(name, data),
        saved=SavedClassification,
        predict_options=frozenset({"text", "text_pair"}),
        score_baselines=score_baselines,
        compute_chance_loss=TextClassification.compute_chance_loss,
        describe_errors=TextClassification.describe_errors,
        head=HEAD_KIND,
        export=export_head,
        export_hint=EXPORT_HINT,
    )


def build_ax(
    config: FinetuneConfig, tokenizer: Tokenizer, pretrained: Pretrained, max_length: int
) -> TextClassification:
    """Build MNLI with the diagnostic data set AX as the only predicted split."""
    return replace(build_glue_task("mnli", config, tokenizer, pretrained, max_length), predicted_splits=("diagnostic",))


AX = replace(build_glue_spec("mnli"), build=build_ax)


def build_glue_task(
    name: str, config: FinetuneConfig, tokenizer: Tokenizer, pretrained: Pretrained, max_length: int
) -> TextClassification:
    """Build a task of `GLUE` for a fine-tuning run, with examples of at most `max_length` tokens.

    Raises:
        UsageError: --data is missing, or --swap-pairs is given and the order of the pairs has a meaning.
    """
    if config.data is None:
        raise UsageError(
            "missing-option", f"{config.task} needs --data: a folder in GLUE's layout, or hf://nyu-mll/glue"
        )
    task = load_glue_task(name, config.data, tokenizer, skip_bad_rows=config.skip_bad_rows)
    swap = task.swap_pairs if config.swap_pairs is None else config.swap_pairs
    if swap and not GLUE[name].symmetric:
        raise UsageError("no-swap", f"--swap-pairs: in {name} the order of a pair has a meaning; leave the option out")
    if name == "mnli" and "dev_mismatched" not in task.scored_splits:
        log.warning(
            f"{config.data}: no MNLI/dev_mismatched.tsv here, so MNLI is scored on the matched dev file alone",
            extra={"code": "no-mismatched-dev"},
        )
    pooling = choose_pooling(config.pooling, pretrained.config)
    task = replace(task, max_length=max_length, dropout=config.dropout, pooling=pooling, swap_pairs=swap)
    return task.weigh_classes(config.class_weights)


def list_data_folders(name: str, data: Path) -> list[Path]:
    """Return the folders that can contain the files of a task, whether they exist or not."""
    return [data / folder for folder in (GLUE[name].folder, name, *(("AX", "diagnostic") if name == "mnli" else ()))]


def load_glue_task(name: str, data: str, tokenizer: Tokenizer, *, skip_bad_rows: bool = False) -> TextClassification:
    """Load a task of GLUE from the folder `data`, or from the hub, as in `hf://nyu-mll/glue`.

    Its splits are train, dev and test, and for MNLI also dev_mismatched, test_mismatched and diagnostic (AX). A split is read
    when it is first used; test splits without a file are left out.
    """
    task = GLUE[name]

    @lru_cache(maxsize=8)
    def read(split: str) -> LabeledTexts:
        if data.startswith("hf://"):
            return read_hub_split(name, data.removeprefix("hf://"), split)
        return read_split(name, Path(data), split, skip_bad_rows if split == "train" else None)

    def select_existing(*splits: str) -> tuple[str, ...]:
        return tuple(split for split in splits if has_split(name, data, split))

    mismatched = name == "mnli"
    return TextClassification(
        name,
        "classification" if task.labels else "regression",
        task.labels,
        task.metrics,
        read,
        tokenizer,
        scored_splits=("dev", *(select_existing("dev_mismatched") if mismatched else ())),
        predicted_splits=select_existing("test", *(["test_mismatched", "diagnostic"] if mismatched else [])),
        swap_pairs=name in ("mrpc", "stsb"),  # as in the original code; QQP is large enough without
        scale=1.0 if task.labels else 5.0,
    )


def find_file(name: str, data: Path, split: str) -> Path:
    """Return the file of a split; the folder of the task is named as in GLUE's download, or as in `GLUE`.

    Raises:
        DataError: the file is missing.
    """
    task = GLUE[name]
    matched = {"dev": task.dev, "test": task.dev.replace("dev", "test")}
    file = f"{matched.get(split, split)}.tsv"
    folders = ["AX", "diagnostic", "MNLI"] if split == "diagnostic" else [task.folder, name]
    for folder in folders:
        if (data / folder / file).exists():
            return data / folder / file
    raise DataError(
        "missing", f"{data}: no {folders[0]}/{file} here; it is not a folder in the layout of GLUE's download"
    )


def has_split(name: str, data: str, split: str) -> bool:
    """Whether a split exists; the hub has all splits."""
    if data.startswith("hf://"):
        return True
    try:
        find_file(name, Path(data), split)
    except DataError:
        return False
    return True


def read_split(name: str, data: Path, split: str, skip_bad_rows: bool | None) -> LabeledTexts:
    """Read one split of a task from its file; `skip_bad_rows` is the argument `skip_bad` of `read_table`.

    Raises:
        DataError: the file is missing or malformed, has too few columns, or an unknown label; the message names the place.
    """
    task, path = GLUE[name], find_file(name, data, split)
    labeled = split == "train" or split.startswith("dev")
    table = read_table(path, header=task.header or not labeled, skip_bad=skip_bad_rows)
    columns = (1, 2) if split == "diagnostic" else task.columns if labeled else task.test_columns
    if (last := max(c if c >= 0 else -c - 1 for c in columns)) >= len(table.names):
        raise DataError("wrong-columns", f"{path}: {len(table.names)} columns where {name} needs more than {last}")
    texts = [table.get_texts(column) for column in columns]
    labels = read_labels(table, task) if labeled else None
    ids = [] if labeled else table.get_texts(0)
    counts = {"rows_left_out": table.skipped} if table.skipped else {}
    return LabeledTexts(texts[0], texts[1] if len(texts) == 2 else None, labels, ids, counts)


def read_labels(table: Table, task: GlueTask) -> np.ndarray:
    """Read the labels [N]: int64 indices in `task.labels`, or float32 numbers.

    Raises:
        DataError: a label is missing or unknown; the message names the place.
    """
    indices = {label: index for index, label in enumerate(task.labels)}
    labels: list[Any] = []
    for i, label in enumerate(table.get_column(task.label_column)):
        try:
            labels.append(indices[label] if task.labels else parse_number(label))
        except (KeyError, ValueError):
            expected = " or ".join(task.labels) or "a number"
            raise DataError(
                "unknown-label", f"{table.format_place(i)}: the label is {label!r}, expected {expected}"
            ) from None
    return np.array(labels, dtype=np.int64 if task.labels else np.float32)


def read_hub_split(name: str, dataset: str, split: str) -> LabeledTexts:
    """Read one split of a task from a data set of the hub (or a local copy of its folder) with GLUE's configurations.

    Raises:
        DataError: the split cannot be read, or a row of train or dev has no label.
    """
    from electra.finetuning.hub import load_split

    task = GLUE[name]
    matched = name == "mnli" and split in ("dev", "test")
    hub_split = split.replace("dev", "validation") + ("_matched" if matched else "")
    config, hub_split = ("ax", "test") if split == "diagnostic" else (name, hub_split)
    columns = load_split(dataset, config, hub_split)
    texts = [[str(text) for text in columns[column]] for column in task.hub_columns]
    order = HUB_LABELS.get(name, task.labels)
    labeled = split == "train" or split.startswith("dev")
    labels = None
    if labeled:
        if None in columns["label"]:
            raise DataError("missing-label", f"hf://{dataset}: {name}/{hub_split}: a row without a label")
        values = [task.labels.index(order[int(y)]) if task.labels else y for y in columns["label"]]
        labels = np.array(values, dtype=np.int64 if task.labels else np.float32)
    ids = [] if labeled else [str(id) for id in columns["idx"]]
    return LabeledTexts(texts[0], texts[1] if len(texts) == 2 else None, labels, ids)
