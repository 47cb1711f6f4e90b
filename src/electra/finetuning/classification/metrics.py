"""Metrics of text classification, computed by scikit-learn and SciPy."""

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

Targets = Sequence[float] | np.ndarray


def compute_correlation(measure: Callable[[Targets, Targets], float], predicted: Targets, targets: Targets) -> float:
    """Compute a correlation; 0 if predictions or targets are constant, so that it is undefined."""
    if np.ptp(predicted) == 0 or np.ptp(targets) == 0:
        return 0.0
    with warnings.catch_warnings():  # about nearly constant predictions, as of an untrained model
        warnings.simplefilter("ignore")
        return float(measure(predicted, targets))


METRICS: dict[str, Callable[[Targets, Targets], float]] = {
    "accuracy": lambda predicted, targets: float(accuracy_score(targets, predicted)),
    "f1": lambda predicted, targets: float(f1_score(targets, predicted, zero_division=0.0)),
    "macro_f1": lambda predicted, targets: float(f1_score(targets, predicted, average="macro", zero_division=0.0)),
    "micro_f1": lambda predicted, targets: float(f1_score(targets, predicted, average="micro", zero_division=0.0)),
    "matthews": lambda predicted, targets: compute_correlation(matthews_corrcoef, predicted, targets),
    "pearson": lambda predicted, targets: compute_correlation(
        lambda *both: pearsonr(*both).statistic, predicted, targets
    ),
    "spearman": lambda predicted, targets: compute_correlation(
        lambda *both: spearmanr(*both).statistic, predicted, targets
    ),
}


def compute_scores(names: Sequence[str], predicted: Targets, targets: Targets) -> dict[str, float]:
    """Compute metrics of METRICS by name, in percent."""
    return {name: 100 * METRICS[name](predicted, targets) for name in names}
