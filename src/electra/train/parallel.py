"""Several processes as one: the module wrapped so that gradients are summed, and counts that are global."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from electra.runtime import Runtime


def parallelise(module: nn.Module, runtime: Runtime) -> nn.Module:
    """The module as it is called in training: wrapped by DDP if there are several processes."""
    if runtime.world_size == 1:
        return module
    devices = [runtime.device] if runtime.device.type == "cuda" else None
    return DistributedDataParallel(module, device_ids=devices, gradient_as_bucket_view=True)


def without_reduction(wrapped: nn.Module, last: bool) -> AbstractContextManager[None]:
    """Context of one backward pass: gradients travel between the processes only in the last one of a step."""
    if isinstance(wrapped, DistributedDataParallel) and not last:
        return wrapped.no_sync()
    return nullcontext()


def global_counts(counts: Mapping[str, float], runtime: Runtime) -> dict[str, float]:
    """Counts summed over all processes. They live on the host, so no device waits for them."""
    totals = runtime.sum_over_ranks(torch.tensor(list(counts.values()), dtype=torch.float64))
    return dict(zip(counts, totals.tolist(), strict=True))


def global_sums(sums: Mapping[str, Tensor], runtime: Runtime) -> dict[str, Tensor]:
    """Metric sums over all processes, on the host; the one place where the host waits for the device."""
    return {name: runtime.sum_over_ranks(tensor.detach().cpu().clone()) for name, tensor in sorted(sums.items())}
