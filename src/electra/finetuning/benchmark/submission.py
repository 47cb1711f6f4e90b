"""The test predictions of GLUE in the form that gluebenchmark.com takes: one `index<tab>prediction` file a task."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from electra.finetuning.benchmark.ensemble import averaged_logits
from electra.finetuning.classification.task import SentenceTask
from electra.storage import write_atomically

# (task, split) -> file.
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


def write_submission(
    tasks: Mapping[str, SentenceTask], chosen: Mapping[str, Sequence[int]], out: Path
) -> tuple[list[Path], list[str]]:
    """Write `out/submission/*.tsv` from the runs of the chosen seeds of each task (several are averaged).

    Returns the files written, and the names of those that the site asks for and that cannot be written: their task was
    not run, or has no test file.
    """
    written, missing = [], []
    for (name, split), file in FILES.items():
        task = tasks.get(name)
        if task is None or name not in chosen or split not in task.predicted:
            missing.append(file)
            continue
        logits = averaged_logits(task, out / name, chosen[name], split)
        rows = task.read(split).ids
        lines = [f"{row}\t{answer}\n" for row, answer in zip(rows, answers(task, logits), strict=True)]
        path = out / "submission" / file
        write_atomically(path, ("index\tprediction\n" + "".join(lines)).encode())
        written.append(path)
    return written, missing


def answers(task: SentenceTask, logits: np.ndarray) -> list[str]:
    """Labels as the files write them; similarities within the scale of 0 to 5."""
    if task.kind == "regression":
        return [f"{value:.3f}" for value in np.clip(logits[:, 0], 0.0, 5.0)]
    return [task.labels[number] for number in task.decide(logits)]
