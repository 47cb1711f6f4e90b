"""Weights of classes in the loss, and the loss of the best constant prediction under them.

Shapes: C classes.
"""

import logging
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from sklearn.utils.class_weight import compute_class_weight

from electra.errors import UsageError
from electra.external import shorten

log = logging.getLogger(__name__)

BALANCED = "balanced"


def parse_class_weights(given: Sequence[str]) -> tuple[float, ...] | None:
    """Parse the values of --class-weights; None for "balanced", and for no values.

    Raises:
        UsageError: a value is neither "balanced" alone nor a finite number above 0.
    """
    if not given or tuple(given) == (BALANCED,):
        return None
    weights = []
    for text in given:
        try:
            weight = float(text)
        except ValueError:
            raise UsageError(
                "wrong-type",
                f"--class-weights: expected {BALANCED}, or a number for each class, got {shorten(text)}",
            ) from None
        if not (math.isfinite(weight) and weight > 0):
            raise UsageError("out-of-range", f"--class-weights: expected finite numbers above 0, got {shorten(text)}")
        weights.append(weight)
    return tuple(weights)


def resolve_class_weights(given: Sequence[str], labels: Sequence[str], targets: np.ndarray) -> tuple[float, ...] | None:
    """Return the weight of each class; None if no option is given.

    Balanced weights are those of scikit-learn: N / (K n_c) for n_c of N targets and K classes that occur. A class without a
    target, which the loss never uses, has the weight 1.

    Args:
        given: The values of --class-weights: "balanced", or a number for each class in the order of `labels`.
        labels: Names of the classes.
        targets: Index of the class of each training target.

    Raises:
        UsageError: a value is wrong, or there are as many numbers as there are not classes.
    """
    if not given:
        return None
    weights = parse_class_weights(given)
    if weights is None:
        present = np.unique(targets)
        values = np.ones(len(labels))
        values[present] = compute_class_weight(BALANCED, classes=present, y=targets)
        weights = tuple(values.tolist())
    if len(weights) != len(labels):
        shown = ", ".join(labels[:8]) + ", …" * (len(labels) > 8)
        raise UsageError(
            "wrong-count", f"--class-weights: {len(weights)} numbers for {len(labels)} classes, in this order: {shown}"
        )
    pairs = ", ".join(f"{label} {weight:.3g}" for label, weight in list(zip(labels, weights, strict=True))[:20])
    log.info(f"weights of the classes in the loss: {pairs}", extra={"code": "class-weights"})
    return weights


def compute_chance_loss(shares: Float[np.ndarray, " C"], weights: Sequence[float] | None) -> float:
    """Compute the mean cross-entropy, in nats, of the best prediction that is the same for all examples.

    For classes with the shares f and the weights w it predicts p proportional to w f, with the loss -sum of w f log p. Without
    weights this is the entropy of the shares.
    """
    mass = shares * (1.0 if weights is None else np.array(weights))
    mass = mass[mass > 0]
    return float(-(mass * np.log(mass / mass.sum())).sum())
