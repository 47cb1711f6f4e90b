"""Metrics of replaced token detection from two histograms of the scores, of replaced and of original tokens.

Histograms can be summed over micro-batches, steps and processes; training needs no transfer to the host and no sorting.
Bins are 0.01 wide from -10 to 10, with an edge at 0: accuracy, precision and recall are exact, the area under the ROC
curve is exact except for ties within a bin.
"""

import math

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

BINS, WIDTH = 2000, 0.01


def compute_histogram(scores: Float[Tensor, "..."], counted: Bool[Tensor, "..."]) -> Float64[Tensor, " bins"]:
    """Compute a histogram of the scores where `counted`; the upper half of the bins has the scores above 0 (not 0)."""
    scores = scores.float().nan_to_num()  # a diverged model is detected by its gradients, not here
    distance = (scores.abs() / WIDTH).floor().clamp(max=BINS // 2 - 1).long()
    index = torch.where(scores > 0, BINS // 2 + distance, BINS // 2 - 1 - distance)
    histogram = torch.zeros(BINS, dtype=torch.float64, device=scores.device)
    return histogram.index_add_(0, index.flatten(), counted.flatten().double())


def compute_auc(positive: Float64[Tensor, " bins"], negative: Float64[Tensor, " bins"]) -> float:
    """Compute the probability that a positive's score exceeds a negative's (ties count half); nan if either is missing."""
    pairs = float(positive.sum() * negative.sum())
    below = negative.cumsum(0) - negative
    return float((positive * (below + negative / 2)).sum()) / pairs if pairs else math.nan


def compute_detection_metrics(
    replaced: Float64[Tensor, " bins"], original: Float64[Tensor, " bins"]
) -> dict[str, float]:
    """Compute share of replaced tokens, accuracy, majority rate, and precision, recall and AUC of replaced tokens."""
    half = BINS // 2
    true_positives, false_negatives = float(replaced[half:].sum()), float(replaced[:half].sum())
    false_positives, true_negatives = float(original[half:].sum()), float(original[:half].sum())
    positives, negatives = true_positives + false_negatives, false_positives + true_negatives
    predicted = true_positives + false_positives
    tokens = positives + negatives
    return {
        "replaced": positives / tokens,
        "accuracy": (true_positives + true_negatives) / tokens,
        "majority": max(positives, negatives) / tokens,
        # Undefined without positive predictions; 0 because such a detector is useless.
        "precision": true_positives / predicted if predicted else 0.0,
        "recall": true_positives / positives if positives else 0.0,
        "auc": compute_auc(replaced, original),
    }
