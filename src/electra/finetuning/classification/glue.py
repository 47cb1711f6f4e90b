"""The tasks of GLUE: where their files keep what, how they are scored, how long the paper trains on them."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from electra.errors import DataError
from electra.finetuning.classification.rows import Rows, read_rows
from electra.finetuning.classification.task import Sentences, SentenceTask, finite
from electra.text.tokenizer import Tokenizer

ENTAILMENT: tuple[str, ...] = ("entailment", "not_entailment")


@dataclass(frozen=True)
class GlueTask:
    """One task of GLUE. Columns are positions in its files, from 0; negative ones count from the end."""

    folder: str
    columns: tuple[int, ...]
    """Of the sentence, or of the two sentences."""
    test_columns: tuple[int, ...]
    labels: tuple[str, ...]
    """As the files write them; empty: a number."""
    metrics: tuple[str, ...]
    """The paper's (section 3.1) first, then those of the GLUE site."""
    label_column: int = -1
    epochs: float = 3.0
    """Table 7."""
    header: bool = True
    """False: train and dev have none (CoLA)."""
    dev: str = "dev"
    symmetric: bool = False
    """The order of the pair means nothing, so that pairs may be swapped (Appendix B)."""
    hub_columns: tuple[str, ...] = ("sentence1", "sentence2")
    """Names in the hub's data set `glue`."""


GLUE: dict[str, GlueTask] = {
    "cola": GlueTask(
        "CoLA", (3,), (1,), ("0", "1"), ("matthews",), label_column=1, header=False, hub_columns=("sentence",)
    ),
    "sst2": GlueTask("SST-2", (0,), (1,), ("0", "1"), ("accuracy",), hub_columns=("sentence",)),
    "mrpc": GlueTask("MRPC", (3, 4), (3, 4), ("0", "1"), ("accuracy", "f1"), label_column=0, symmetric=True),
    "stsb": GlueTask("STS-B", (-3, -2), (-2, -1), (), ("spearman", "pearson"), epochs=10.0, symmetric=True),
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
    "rte": GlueTask("RTE", (1, 2), (1, 2), ENTAILMENT, ("accuracy",), epochs=10.0),
    "wnli": GlueTask("WNLI", (1, 2), (1, 2), ("0", "1"), ("accuracy",)),
}

# Label order in the hub's data set, where it is not that of the files.
HUB_LABELS: dict[str, tuple[str, ...]] = {"mnli": ("entailment", "neutral", "contradiction")}


def glue_task(name: str, data: str, tokenizer: Tokenizer, *, skip_bad_rows: bool = False) -> SentenceTask:
    """A task of GLUE over the folder `data`, or over `hf://NAME` of the hub (`hf://nyu-mll/glue`).

    Its splits are train, dev and test; MNLI has dev_mismatched and test_mismatched, and `diagnostic` (AX), too.
    """
    task = GLUE[name]

    @lru_cache(maxsize=8)
    def read(split: str) -> Sentences:
        if data.startswith("hf://"):
            return read_hub_split(name, data.removeprefix("hf://"), split)
        return read_split(name, Path(data), split, skip_bad_rows if split == "train" else None)

    def there(*splits: str) -> tuple[str, ...]:
        return tuple(split for split in splits if has_split(name, data, split))

    mismatched = name == "mnli"
    return SentenceTask(
        name,
        "classification" if task.labels else "regression",
        task.labels,
        task.metrics,
        read,
        tokenizer,
        scored=("dev", *(there("dev_mismatched") if mismatched else ())),
        predicted=there("test", *(["test_mismatched", "diagnostic"] if mismatched else [])),
        swap_pairs=name in ("mrpc", "stsb"),  # as the original code; QQP has pairs enough
        scale=1.0 if task.labels else 5.0,
    )


def split_file(name: str, data: Path, split: str) -> Path:
    """The file of a split; the folder may be called as GLUE's download does or by the task's name.

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
    raise DataError(f"{data}: no {folders[0]}/{file} here; it is not a folder in the layout of GLUE's download")


def has_split(name: str, data: str, split: str) -> bool:
    """Is the file of a split there? The hub has all of them."""
    if data.startswith("hf://"):
        return True
    try:
        split_file(name, Path(data), split)
    except DataError:
        return False
    return True


def read_split(name: str, data: Path, split: str, skip_bad_rows: bool | None) -> Sentences:
    """One split of a task out of its file; `skip_bad_rows` as in `read_rows`."""
    task, path = GLUE[name], split_file(name, data, split)
    labeled = split == "train" or split.startswith("dev")
    rows = read_rows(path, header=task.header or not labeled, skip_bad=skip_bad_rows)
    columns = (1, 2) if split == "diagnostic" else task.columns if labeled else task.test_columns
    if (wanted := max(c if c >= 0 else -c - 1 for c in columns)) >= len(rows.names):
        raise DataError(f"{path}: {len(rows.names)} columns where {name} needs more than {wanted}")
    texts = [rows.texts(column) for column in columns]
    labels = read_labels(rows, task) if labeled else None
    ids = [] if labeled else rows.texts(0)
    notes = {"rows_left_out": rows.skipped} if rows.skipped else {}
    return Sentences(texts[0], texts[1] if len(texts) == 2 else None, labels, ids, notes)


def read_labels(rows: Rows, task: GlueTask) -> np.ndarray:
    """[N] class numbers, or numbers.

    Raises:
        DataError: a label is missing or unknown; the message names the place.
    """
    numbers = {label: number for number, label in enumerate(task.labels)}
    found: list[Any] = []
    for i, label in enumerate(rows.column(task.label_column)):
        try:
            found.append(numbers[label] if task.labels else finite(label))
        except (KeyError, ValueError):
            expected = " or ".join(task.labels) or "a number"
            raise DataError(f"{rows.place(i)}: the label is {label!r}, expected {expected}") from None
    return np.array(found, dtype=np.int64 if task.labels else np.float32)


def read_hub_split(name: str, dataset: str, split: str) -> Sentences:
    """One split of a task out of a hub data set (or a local folder of one) with GLUE's configurations."""
    from electra.finetuning.hub import load_split

    task = GLUE[name]
    matched = name == "mnli" and split in ("dev", "test")
    hub_split = split.replace("dev", "validation") + ("_matched" if matched else "")
    config, hub_split = ("ax", "test") if split == "diagnostic" else (name, hub_split)
    table = load_split(dataset, config, hub_split)
    texts = [[str(text) for text in table[column]] for column in task.hub_columns]
    order = HUB_LABELS.get(name, task.labels)
    labeled = split == "train" or split.startswith("dev")
    labels = None
    if labeled:
        if None in table["label"]:
            raise DataError(f"hf://{dataset}: {name}/{hub_split}: a row without a label")
        numbers = [task.labels.index(order[int(y)]) if task.labels else y for y in table["label"]]
        labels = np.array(numbers, dtype=np.int64 if task.labels else np.float32)
    ids = [] if labeled else [str(id) for id in table["idx"]]
    return Sentences(texts[0], texts[1] if len(texts) == 2 else None, labels, ids)
