"""Forward and backward of a micro-batch."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from electra.runtime.setup import Runtime
from electra.seeding import Stream, seed_everything
from electra.train.parallel import defer_reduction, parallelize


class Backward:
    """Adds a micro-batch's gradients to those of a module, over all processes."""

    def __init__(self, module: nn.Module, runtime: Runtime) -> None:
        self.wrapped = parallelize(module, runtime)
        self.runtime = runtime

    def __call__(self, batch: Any, counts: Mapping[str, float], key: tuple[int, ...], last: bool) -> dict[str, Tensor]:
        """Return the sums for the module's metrics.

        `key` seeds dropout. With the `last` micro-batch of a step, gradients are summed over the processes.
        """
        seed_everything(Stream.DROPOUT, *key)
        batch = batch.to(self.runtime.device)
        with defer_reduction(self.wrapped, last):
            # DDP takes the mean of the processes' gradients; the loss is a share of the global one, so it must sum.
            return forward_backward(self.wrapped, batch, counts, self.runtime, times=self.runtime.world_size)

    def clear(self, optimizer: torch.optim.Optimizer) -> None:
        """Clear the gradients."""
        optimizer.zero_grad()


def forward_backward(
    module: nn.Module, batch: Any, counts: Mapping[str, float | Tensor], runtime: Runtime, times: int = 1
) -> dict[str, Tensor]:
    """Add a micro-batch's gradients, `times` as large, to those of the parameters; return the module's sums."""
    with runtime.autocast():
        loss, sums = module(batch, counts)
    (loss * times).backward()
    return sums
