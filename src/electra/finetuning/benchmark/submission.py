"""The test predictions of GLUE for gluebenchmark.com: a file of `index<tab>prediction` for each task."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from electra.finetuning.benchmark.ensemble import average_logits
from electra.finetuning.classification.task import TextClassification
from electra.storage import write_atomically

FILES: dict[tuple[str, str], str] = {
    ("cola", "test"): "CoLA.tsv",
    ("sst2", "test"): "SST-2.tsv",
    ("mrpc", "test"): "MRPC.tsv",
    ("stsb", "test"): "STS-B.tsv",
    ("qqp", "test"): "QQP.tsv",
    ("mnli", "test"): "MNLI-m.tsv",
    ("mnli", "test_mismatched"): "MNLI-mm.tsv",
    ("qnli", "test"): "QNLI.tsv",
    ("rte", "test"): "RTE.tsv",
    ("wnli", "test"): "WNLI.tsv",
    ("mnli", "diagnostic"): "AX.tsv",
}
"""The file of each (task, split)."""


def write_submission(
    tasks: Mapping[str, TextClassification], seeds: Mapping[str, Sequence[int]], out: Path
) -> tuple[list[Path], list[str]]:
    """Write `out/submission/*.tsv` from the runs of these seeds of each task (several are averaged).

    Returns the files written, and the names of those that the site requires and that cannot be written, because their
    task was not run or has no test file.
    """
    written, missing = [], []
    for (name, split), file in FILES.items():
        task = tasks.get(name)
        if task is None or name not in seeds or split not in task.predicted:
            missing.append(file)
            continue
        logits = average_logits(task, out / name, seeds[name], split)
        rows = task.read(split).ids
        lines = [f"{row}\t{answer}\n" for row, answer in zip(rows, format_answers(task, logits), strict=True)]
        path = out / "submission" / file
        write_atomically(path, ("index\tprediction\n" + "".join(lines)).encode())
        written.append(path)
    return written, missing


def format_answers(task: TextClassification, logits: np.ndarray) -> list[str]:
    """Labels as the files write them; similarities within the scale of 0 to 5."""
    if task.kind == "regression":
        return [f"{value:.3f}" for value in np.clip(logits[:, 0], 0.0, 5.0)]
    return [task.labels[number] for number in task.decode(logits)]
