"""Data-parallel training: gradients, counts and metric sums over several processes."""

import socket
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from electra.errors import RunError
from electra.runtime.setup import Runtime


def parallelize(module: nn.Module, runtime: Runtime) -> nn.Module:
    """Wrap the module by DDP if there are several processes."""
    if runtime.world_size == 1:
        return module
    devices = [runtime.device] if runtime.device.type == "cuda" else None
    return DistributedDataParallel(module, device_ids=devices, gradient_as_bucket_view=True)


def defer_reduction(wrapped: nn.Module, last: bool) -> AbstractContextManager[None]:
    """Return the context of a backward pass: only the last one of a step sums gradients over the processes."""
    if isinstance(wrapped, DistributedDataParallel) and not last:
        return wrapped.no_sync()
    return nullcontext()


def reduce_counts(counts: Mapping[str, float], runtime: Runtime) -> dict[str, float]:
    """Sum counts over all processes. They are on the host, so this does not synchronize with the device."""
    totals = runtime.all_reduce_sum(torch.tensor(list(counts.values()), dtype=torch.float64))
    return dict(zip(counts, totals.tolist(), strict=True))


def reduce_sums(sums: Mapping[str, Tensor], runtime: Runtime) -> dict[str, Tensor]:
    """Sum metric sums over all processes, on the host; only here the host waits for the device."""
    return {name: runtime.all_reduce_sum(tensor.detach().cpu().clone()) for name, tensor in sorted(sums.items())}


def check_alike(facts: Mapping[str, Any], runtime: Runtime) -> None:
    """Check that step, options or data, by name, are equal in all processes.

    Processes that differ would deadlock or train on different data. DDP copies the weights of the main process to all others,
    but neither the moments nor the position in the data.

    Raises:
        RunError: a process differs from the main process; all processes raise the same error.
    """
    if runtime.world_size == 1:
        return
    gathered: list[Any] = [None] * runtime.world_size
    dist.all_gather_object(gathered, (socket.gethostname(), dict(facts)))
    main_host, main = gathered[0]
    for rank, (host, other) in enumerate(gathered):
        for name in main | other:
            if main.get(name) != other.get(name):
                raise RunError(
                    "processes-differ",
                    f"{name} is {main.get(name)} in process 0 on {main_host}, {other.get(name)} in process {rank} on "
                    f"{host}; all processes need the same options, data and run directory (on a file system that all "
                    "hosts share)",
                )
