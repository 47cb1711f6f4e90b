"""Losses of an objective by name: training step, metrics and report use the same dict."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from torch import Tensor

Value = TypeVar("Value", Tensor, float)


class LossTerm(NamedTuple):
    """How a loss enters the total."""

    mean_over: str
    """Name of the count to divide its sum by: tokens, masked, others or sequences."""
    weight: float = 1.0


@dataclass(frozen=True)
class Loss(Generic[Value]):
    """A loss, summed over one or more batches."""

    sum: Value
    mean_over: str
    weight: float


def build_losses(sums: Mapping[str, Value], terms: Mapping[str, LossTerm]) -> dict[str, Loss[Value]]:
    """Build the losses from `sums` in the order of `terms`; a term may be absent (the sentence loss on held-out text)."""
    return {name: Loss(sums[name], *term) for name, term in terms.items() if name in sums}


def sum_losses(losses: Mapping[str, Loss[Value]], counts: Mapping[str, float | Tensor]) -> Value:
    """Return the weighted sum of the means, added in the order of the dict."""
    # Weight before mean: the traces under tests/golden depend on the rounding of this order.
    total, *rest = [loss.weight * loss.sum / counts[loss.mean_over] for loss in losses.values()]
    for mean in rest:
        total = total + mean
    return total  # type: ignore[return-value]
