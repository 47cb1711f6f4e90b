"""Test predictions of GLUE for gluebenchmark.com: for each task a file with lines `index<tab>prediction`."""

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
"""(task, split) -> file name."""


def write_submission(
    tasks: Mapping[str, TextClassification], seeds: Mapping[str, Sequence[int]], out: Path
) -> tuple[list[Path], list[str]]:
    """Write `out/submission/*.tsv` from the runs `out/TASK/seed-N` of the given seeds, averaged if there are several.

    Args:
        tasks: Task by name.
        seeds: Task name -> seeds.
        out: Directory of the grid.

    Returns:
        The files written, and the names of required files that are missing because their task was not run or has no test file.
    """
    written, missing = [], []
    for (name, split), file in FILES.items():
        task = tasks.get(name)
        if task is None or name not in seeds or split not in task.predicted_splits:
            missing.append(file)
            continue
        logits = average_logits(task, out / name, seeds[name], split)
        ids, answers = task.read(split).ids, format_answers(task, logits)
        lines = [f"{id}\t{answer}\n" for id, answer in zip(ids, answers, strict=True)]
        path = out / "submission" / file
        write_atomically(path, ("index\tprediction\n" + "".join(lines)).encode())
        written.append(path)
    return written, missing


def format_answers(task: TextClassification, logits: np.ndarray) -> list[str]:
    """Format predictions from logits [N, C]: labels as GLUE's files spell them, similarities clipped to the range 0 to 5."""
    if task.kind == "regression":
        return [f"{value:.3f}" for value in np.clip(logits[:, 0], 0.0, 5.0)]
    return [task.labels[number] for number in task.decode(logits)]
