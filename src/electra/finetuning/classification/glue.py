"""The tasks of GLUE: the layout of their files, and their metrics."""

import logging
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from electra.errors import DataError, UsageError
from electra.finetuning.classification.inference import (
    EXPORT_HINT,
    HEAD,
    SavedClassification,
    export_head,
)
from electra.finetuning.classification.task import LabeledTexts, TextClassification, parse_number
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.readers.tables import Table, read_table
from electra.finetuning.recipe import SMALL_TEXTS, TEXTS, TaskRecipe
from electra.finetuning.task import TaskSpec
from electra.model.checkpoints import Pretrained
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

ENTAILMENT: tuple[str, ...] = ("entailment", "not_entailment")


@dataclass(frozen=True)
class GlueTask:
    """The data of one task of GLUE. Columns are positions in its files, from 0; negative ones count from the end."""

    folder: str
    columns: tuple[int, ...]
    """Columns of the text, or of the two texts."""
    test_columns: tuple[int, ...]
    labels: tuple[str, ...]
    """As the files write them; empty: a number."""
    metrics: tuple[str, ...]
    """The paper's (section 3.1) first, then those of the GLUE site."""
    label_column: int = -1
    recipe: TaskRecipe = TEXTS
    header: bool = True
    """Whether train and dev have a header line (not in CoLA)."""
    dev: str = "dev"
    symmetric: bool = False
    """Whether the order of a pair has no meaning, so that pairs may be swapped (Appendix B)."""
    hub_columns: tuple[str, ...] = ("sentence1", "sentence2")
    """Columns of the texts in the hub's data set `glue`."""


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
"""The order of the labels in the hub's data set, where it is not that of the files."""

OPTIONS = frozenset({"data", "skip_bad_rows", "swap_pairs"})


def glue_spec(name: str) -> TaskSpec:
    """The spec of a task of `GLUE`."""

    def build(
        config: FinetuneConfig, tokenizer: Tokenizer, pretrained: Pretrained, max_length: int
    ) -> TextClassification:
        return build_glue_task(name, config, tokenizer, max_length)

    return TaskSpec(
        build=build,
        recipe=GLUE[name].recipe,
        options=OPTIONS,
        reads_hub=True,
        data_folders=lambda data: data_folders(name, data),
        saved=SavedClassification,
        predict_options=frozenset({"text", "text_pair"}),
        head=HEAD,
        export=export_head,
        export_hint=EXPORT_HINT,
    )


def build_ax(
    config: FinetuneConfig, tokenizer: Tokenizer, pretrained: Pretrained, max_length: int
) -> TextClassification:
    """MNLI, which predicts the diagnostic data set AX alone."""
    return replace(build_glue_task("mnli", config, tokenizer, max_length), predicted=("diagnostic",))


AX = replace(glue_spec("mnli"), build=build_ax)


def build_glue_task(name: str, config: FinetuneConfig, tokenizer: Tokenizer, max_length: int) -> TextClassification:
    """A task of `GLUE` for a fine-tuning run.

    Raises:
        UsageError: --data is missing, or pairs are to be swapped whose order has a meaning.
    """
    if config.data is None:
        raise UsageError(
            "missing-option", f"{config.task} needs --data: a folder in GLUE's layout, or hf://nyu-mll/glue"
        )
    task = load_glue_task(name, config.data, tokenizer, skip_bad_rows=config.skip_bad_rows)
    swap = task.swap_pairs if config.swap_pairs is None else config.swap_pairs
    if swap and not GLUE[name].symmetric:
        raise UsageError("no-swap", f"--swap-pairs: in {name} the order of a pair has a meaning")
    if name == "mnli" and "dev_mismatched" not in task.scored:
        log.warning(
            f"{config.data}: no MNLI/dev_mismatched.tsv here, so MNLI is scored on the matched dev file alone",
            extra={"code": "no-mismatched-dev"},
        )
    return replace(task, max_length=max_length, dropout=config.dropout, swap_pairs=swap)


def data_folders(name: str, data: Path) -> list[Path]:
    """The folders that have, or may have, the files of a task."""
    return [data / each for each in (GLUE[name].folder, name, *(("AX", "diagnostic") if name == "mnli" else ()))]


def load_glue_task(name: str, data: str, tokenizer: Tokenizer, *, skip_bad_rows: bool = False) -> TextClassification:
    """A task of GLUE over the folder `data`, or over `hf://NAME` of the hub (`hf://nyu-mll/glue`).

    Its splits are train, dev and test; MNLI has dev_mismatched and test_mismatched, and `diagnostic` (AX), too.
    """
    task = GLUE[name]

    @lru_cache(maxsize=8)
    def read(split: str) -> LabeledTexts:
        if data.startswith("hf://"):
            return read_hub_split(name, data.removeprefix("hf://"), split)
        return read_split(name, Path(data), split, skip_bad_rows if split == "train" else None)

    def existing(*splits: str) -> tuple[str, ...]:
        return tuple(split for split in splits if has_split(name, data, split))

    mismatched = name == "mnli"
    return TextClassification(
        name,
        "classification" if task.labels else "regression",
        task.labels,
        task.metrics,
        read,
        tokenizer,
        scored=("dev", *(existing("dev_mismatched") if mismatched else ())),
        predicted=existing("test", *(["test_mismatched", "diagnostic"] if mismatched else [])),
        swap_pairs=name in ("mrpc", "stsb"),  # as in the original code; QQP has pairs enough
        scale=1.0 if task.labels else 5.0,
    )


def find_file(name: str, data: Path, split: str) -> Path:
    """The file of a split; the folder of the task has the name in GLUE's download or in `GLUE`.

    Raises:
        DataError: there is no folder of the task.
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
    """Whether the file of a split exists; the hub has all of them."""
    if data.startswith("hf://"):
        return True
    try:
        find_file(name, Path(data), split)
    except DataError:
        return False
    return True


def read_split(name: str, data: Path, split: str, skip_bad_rows: bool | None) -> LabeledTexts:
    """One split of a task from its file; `skip_bad_rows` as in `read_table`."""
    task, path = GLUE[name], find_file(name, data, split)
    labeled = split == "train" or split.startswith("dev")
    table = read_table(path, header=task.header or not labeled, skip_bad=skip_bad_rows)
    columns = (1, 2) if split == "diagnostic" else task.columns if labeled else task.test_columns
    if (wanted := max(c if c >= 0 else -c - 1 for c in columns)) >= len(table.names):
        raise DataError("wrong-columns", f"{path}: {len(table.names)} columns where {name} needs more than {wanted}")
    texts = [table.texts(column) for column in columns]
    labels = read_labels(table, task) if labeled else None
    ids = [] if labeled else table.texts(0)
    counts = {"rows_left_out": table.skipped} if table.skipped else {}
    return LabeledTexts(texts[0], texts[1] if len(texts) == 2 else None, labels, ids, counts)


def read_labels(table: Table, task: GlueTask) -> np.ndarray:
    """[N] class numbers, or numbers.

    Raises:
        DataError: a label is missing or unknown; the message names the place.
    """
    numbers = {label: number for number, label in enumerate(task.labels)}
    found: list[Any] = []
    for i, label in enumerate(table.column(task.label_column)):
        try:
            found.append(numbers[label] if task.labels else parse_number(label))
        except (KeyError, ValueError):
            expected = " or ".join(task.labels) or "a number"
            raise DataError("unknown-label", f"{table.place(i)}: the label is {label!r}, expected {expected}") from None
    return np.array(found, dtype=np.int64 if task.labels else np.float32)


def read_hub_split(name: str, dataset: str, split: str) -> LabeledTexts:
    """One split of a task from a hub data set (or a local folder of one) with GLUE's configurations."""
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
        numbers = [task.labels.index(order[int(y)]) if task.labels else y for y in columns["label"]]
        labels = np.array(numbers, dtype=np.int64 if task.labels else np.float32)
    ids = [] if labeled else [str(id) for id in columns["idx"]]
    return LabeledTexts(texts[0], texts[1] if len(texts) == 2 else None, labels, ids)
