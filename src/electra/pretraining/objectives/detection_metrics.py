"""How well replaced tokens are told from original ones, from two histograms of the scores.

Histograms add up over micro-batches, steps and processes, and nothing has to be fetched or sorted while training.
Bins are 0.01 wide from -10 to 10, with an edge at 0: accuracy, precision and recall are exact, the area under the ROC
curve is exact but for ties within a bin.
"""

import math

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

BINS, WIDTH = 2000, 0.01


def compute_histogram(scores: Float[Tensor, "..."], counted: Bool[Tensor, "..."]) -> Float64[Tensor, " bins"]:
    """Counts of the scores where `counted`; a score above 0 (not one of 0) falls into the upper half of the bins."""
    scores = scores.float().nan_to_num()  # a diverged model is recognized by its gradients, not here
    distance = (scores.abs() / WIDTH).floor().clamp(max=BINS // 2 - 1).long()
    index = torch.where(scores > 0, BINS // 2 + distance, BINS // 2 - 1 - distance)
    histogram = torch.zeros(BINS, dtype=torch.float64, device=scores.device)
    return histogram.index_add_(0, index.flatten(), counted.flatten().double())


def compute_auc(positive: Float64[Tensor, " bins"], negative: Float64[Tensor, " bins"]) -> float:
    """Probability that a positive's score exceeds a negative's, ties counting half; nan if either is missing."""
    pairs = float(positive.sum() * negative.sum())
    below = negative.cumsum(0) - negative
    return float((positive * (below + negative / 2)).sum()) / pairs if pairs else math.nan


def compute_detection_metrics(
    replaced: Float64[Tensor, " bins"], original: Float64[Tensor, " bins"]
) -> dict[str, float]:
    """Accuracy beside that of always saying "original", precision, recall and AUC of finding replaced tokens."""
    half = BINS // 2
    hits, misses = float(replaced[half:].sum()), float(replaced[:half].sum())
    alarms, passes = float(original[half:].sum()), float(original[:half].sum())
    tokens = hits + misses + alarms + passes
    return {
        "replaced": (hits + misses) / tokens,
        "accuracy": (hits + passes) / tokens,
        "majority": max(hits + misses, alarms + passes) / tokens,
        # A detector that raises no alarm has made no mistake in raising them, but is of no use either.
        "precision": hits / (hits + alarms) if hits + alarms else 0.0,
        "recall": hits / (hits + misses) if hits + misses else 0.0,
        "auc": compute_auc(replaced, original),
    }
