"""Forward and backward of a micro-batch."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from electra.runtime import Runtime, seed_everything
from electra.train.parallel import parallelise, without_reduction


class Backward:
    """Adds a micro-batch's gradients to those of a module, over all processes."""

    def __init__(self, module: nn.Module, runtime: Runtime) -> None:
        self.wrapped = parallelise(module, runtime)
        self.runtime = runtime

    def __call__(self, batch: Any, counts: Mapping[str, float], key: tuple[int, ...], last: bool) -> dict[str, Tensor]:
        """What the module's metrics are made from; `key` seeds, and the `last` micro-batch of a step is the one that meets
        the other processes' gradients."""
        seed_everything(*key)
        with without_reduction(self.wrapped, last):
            return forward_backward(self.wrapped, batch.to(self.runtime.device), counts, self.runtime)


def forward_backward(
    module: nn.Module, batch: Any, counts: Mapping[str, float | Tensor], runtime: Runtime
) -> dict[str, Tensor]:
    """A micro-batch's gradients are added to the parameters'; returns the module's sums."""
    with runtime.autocast():
        loss, sums = module(batch, counts)
    # DDP takes the mean of the processes' gradients; the loss is a share of the global one, so it must sum.
    (loss * runtime.world_size).backward()
    return sums
