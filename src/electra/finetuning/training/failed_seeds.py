"""Runs that learned nothing: their training loss is that of a constant prediction.

Fine-tuning of large encoders on small data sets fails in this way for some seeds. A run has failed if the mean training loss
of its last epoch is at least 1 - MARGIN times the loss of the best constant prediction. The scores of dev have no part in
this, so a new seed in place of a failed one does not select by dev.
"""

from collections.abc import Iterable, Mapping
from typing import Any

MARGIN = 0.02
"""Part of the loss of a constant prediction by which a run must be below it."""


def compute_last_loss(rows: Iterable[Mapping[str, Any]], steps: int, steps_per_epoch: int) -> float | None:
    """Compute the mean training loss of the last epoch from the rows of `metrics.jsonl`; None if no row ends in it.

    A row is the mean over the steps since the one before it.
    """
    total, weight, before = 0.0, 0, 0
    for row in rows:
        if row["step"] > steps - steps_per_epoch:
            total += row["loss"] * (row["step"] - before)
            weight += row["step"] - before
        before = row["step"]
    return total / weight if weight else None


def has_failed(results: Mapping[str, Any]) -> bool:
    """Whether a run, given by its results, has failed; False if its task has no constant prediction to compare with."""
    loss, chance = results.get("training_loss"), results.get("chance_loss")
    return loss is not None and chance is not None and loss >= (1 - MARGIN) * chance
