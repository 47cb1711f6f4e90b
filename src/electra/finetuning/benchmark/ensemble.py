"""Ensembles of several runs of one task (Appendix B: the best 10 of 30 seeds)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from electra.errors import RunError
from electra.external import one_line
from electra.finetuning.classification.task import TextClassification
from electra.schema import check_file


def select_best_runs(results: Sequence[dict[str, Any]], number: int, split: str) -> list[int]:
    """The seeds of the `number` runs with the best main metric on `split`, best first; ties go to the lower seed."""
    ranked = sorted(results, key=lambda result: (-result["metrics"][split][result["main_metric"]], result["seed"]))
    return [result["seed"] for result in ranked[:number]]


def average_logits(task: TextClassification, out: Path, seeds: Sequence[int], split: str) -> np.ndarray:
    """The mean over runs of class probabilities [N, C]; of logits or numbers where the task has no classes."""
    examples = len(task.read(split))
    logits = [read_logits(out / f"seed-{seed}" / f"logits-{split}.npy", examples) for seed in seeds]
    if task.kind != "classification":
        return np.mean(logits, axis=0)
    return np.mean([softmax(each, axis=1) for each in logits], axis=0)


def read_logits(path: Path, examples: int) -> np.ndarray:
    """Logits [N, C] of a run.

    Raises:
        RunError: it is damaged, or of another number of examples.
    """
    check_file(path, RunError)
    try:
        logits = np.load(
            path, mmap_mode="r", allow_pickle=False
        )  # mapped: its header could ask for any amount of memory
    except (ValueError, OSError, EOFError) as error:
        raise RunError("not-array", f"{path}: not an array ({one_line(error)})") from None
    if logits.ndim != 2 or len(logits) != examples or not np.issubdtype(logits.dtype, np.floating):
        raise RunError(
            "wrong-shape",
            f"{path}: {logits.dtype} of the shape {logits.shape}, expected floats of {examples:,} examples",
        )
    return logits.astype(np.float64)


def score_ensemble(task: TextClassification, out: Path, seeds: Sequence[int]) -> dict[str, dict[str, float]]:
    """The scores of the averaged runs in `out`, for every scored split."""
    return {
        split: task.score(split, [{"logits": row} for row in average_logits(task, out, seeds, split)])
        for split in task.scored
    }
