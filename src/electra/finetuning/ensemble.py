"""Several runs of one task as one prediction (Appendix B: the best 10 of 30 seeds)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax

from electra.finetuning.sentences import SentenceTask


def best_runs(results: Sequence[dict[str, Any]], number: int, split: str) -> list[int]:
    """The seeds of the `number` runs with the best main metric on `split`, best first; ties go to the lower seed."""
    ranked = sorted(results, key=lambda result: (-result["metrics"][split][result["main_metric"]], result["seed"]))
    return [result["seed"] for result in ranked[:number]]


def averaged_logits(task: SentenceTask, out: Path, seeds: Sequence[int], split: str) -> np.ndarray:
    """[N, C] the mean over runs of class probabilities; of logits or numbers where the task has no classes."""
    logits = [np.load(out / f"seed-{seed}" / f"logits-{split}.npy").astype(np.float64) for seed in seeds]
    if task.kind != "classification":
        return np.mean(logits, axis=0)
    return np.mean([softmax(each, axis=1) for each in logits], axis=0)


def ensemble_scores(task: SentenceTask, out: Path, seeds: Sequence[int]) -> dict[str, dict[str, float]]:
    """The scores of the averaged runs in `out`, for every scored split."""
    return {
        split: task.score(split, [{"logits": row} for row in averaged_logits(task, out, seeds, split)])
        for split in task.scored
    }
