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
    """Return the seeds of the `number` runs with the best main metric on `split`, best first; ties go to the lower seed."""
    ranked = sorted(results, key=lambda result: (-result["metrics"][split][result["main_metric"]], result["seed"]))
    return [result["seed"] for result in ranked[:number]]


def average_logits(task: TextClassification, out: Path, seeds: Sequence[int], split: str) -> np.ndarray:
    """Average the outputs of the runs `out/seed-N` for a split.

    Returns:
        [N, C]: mean class probabilities for classification, mean logits or numbers for the other kinds of labels.

    Raises:
        RunError: a file of logits is damaged.
    """
    num_examples = len(task.read(split))
    logits = [read_logits(out / f"seed-{seed}" / f"logits-{split}.npy", num_examples) for seed in seeds]
    if task.kind != "classification":
        return np.mean(logits, axis=0)
    return np.mean([softmax(run_logits, axis=1) for run_logits in logits], axis=0)


def read_logits(path: Path, num_examples: int) -> np.ndarray:
    """Read the logits [N, C] of a run as float64.

    Raises:
        RunError: the file is damaged, or has another number of examples than `num_examples`.
    """
    check_file(path, RunError)
    try:
        logits = np.load(
            path, mmap_mode="r", allow_pickle=False
        )  # mapped, because the header of a damaged file can give any size
    except (ValueError, OSError, EOFError) as error:
        raise RunError("not-array", f"{path}: not an array ({one_line(error)})") from None
    if logits.ndim != 2 or len(logits) != num_examples or not np.issubdtype(logits.dtype, np.floating):
        raise RunError(
            "wrong-shape",
            f"{path}: {logits.dtype} of the shape {logits.shape}, expected floats of {num_examples:,} examples",
        )
    return logits.astype(np.float64)


def score_ensemble(task: TextClassification, out: Path, seeds: Sequence[int]) -> dict[str, dict[str, float]]:
    """Score the average of the runs `out/seed-N`: split -> metric -> value in percent."""
    return {
        split: task.score(split, [{"logits": row} for row in average_logits(task, out, seeds, split)])
        for split in task.scored_splits
    }
