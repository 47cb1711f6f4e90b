"""Detection metrics against scikit-learn."""

import pytest
import torch
from sklearn.metrics import accuracy_score, precision_score, recall_score, roc_auc_score

from electra.pretraining.objectives.targets.detection_metrics import (
    compute_auc,
    compute_detection_metrics,
    compute_histogram,
)


@pytest.mark.parametrize("shift", [-2.0, 0.0, 1.5])
def test_metrics_equal_scikit_learn(shift: float) -> None:
    torch.manual_seed(0)
    labels = torch.rand(20_000) < 0.15
    scores = torch.randn(20_000) + labels.float() + shift
    metrics = compute_detection_metrics(compute_histogram(scores, labels), compute_histogram(scores, ~labels))
    predicted = scores > 0
    assert metrics["accuracy"] == pytest.approx(accuracy_score(labels, predicted), abs=1e-12)
    assert metrics["precision"] == pytest.approx(precision_score(labels, predicted), abs=1e-12)
    assert metrics["recall"] == pytest.approx(recall_score(labels, predicted), abs=1e-12)
    assert metrics["auc"] == pytest.approx(roc_auc_score(labels, scores), abs=2e-4)
    assert metrics["replaced"] == pytest.approx(float(labels.double().mean()), abs=1e-12)
    assert metrics["majority"] == pytest.approx(float((~labels).double().mean()), abs=1e-12)


def test_auc_of_close_scores() -> None:
    torch.manual_seed(0)
    labels = torch.rand(20_000) < 0.15
    scores = -1.7 + 0.1 * (torch.randn(20_000) + labels.float())
    metrics = compute_detection_metrics(compute_histogram(scores, labels), compute_histogram(scores, ~labels))
    assert metrics["auc"] == pytest.approx(roc_auc_score(labels, scores), abs=2e-3)
    assert metrics["recall"] == metrics["precision"] == 0.0


def test_score_zero_is_original_and_extremes_are_counted() -> None:
    scores = torch.tensor([0.0, 1e-9, -1e-9, 500.0, -500.0])
    everything = compute_histogram(scores, torch.ones(5, dtype=torch.bool))
    assert everything.sum() == 5
    assert everything[1000:].sum() == 2
    assert everything[-1] == everything[0] == 1


def test_nan_scores_are_counted() -> None:
    scores = torch.tensor([float("nan"), float("inf"), -float("inf")])
    assert compute_histogram(scores, torch.ones(3, dtype=torch.bool)).sum() == 3


def test_auc_of_one_class_is_nan() -> None:
    histogram = compute_histogram(torch.randn(9), torch.ones(9, dtype=torch.bool))
    assert compute_auc(histogram, torch.zeros_like(histogram)) != compute_auc(histogram, histogram)
    assert torch.tensor(compute_auc(histogram, torch.zeros_like(histogram))).isnan()
