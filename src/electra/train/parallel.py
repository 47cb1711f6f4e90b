"""Several processes as one: the module wrapped so that gradients are summed, and counts that are global."""

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
    totals = runtime.all_reduce_sum(torch.tensor(list(counts.values()), dtype=torch.float64))
    return dict(zip(counts, totals.tolist(), strict=True))


def global_sums(sums: Mapping[str, Tensor], runtime: Runtime) -> dict[str, Tensor]:
    """Metric sums over all processes, on the host; the one place where the host waits for the device."""
    return {name: runtime.all_reduce_sum(tensor.detach().cpu().clone()) for name, tensor in sorted(sums.items())}


def check_alike(facts: Mapping[str, Any], runtime: Runtime) -> None:
    """Compare what every process is about to do with what the main one is: its step, options, data, by name.

    Processes that differ would wait for each other in vain, or train on what the others do not have. DDP copies the
    main process's weights to all; moments and the position in the data it does not.

    Raises:
        RunError: a process differs; the same error in all processes.
    """
    if runtime.world_size == 1:
        return
    every: list[Any] = [None] * runtime.world_size
    dist.all_gather_object(every, (socket.gethostname(), dict(facts)))
    main_host, main = every[0]
    for rank, (host, other) in enumerate(every):
        for name in main | other:
            if main.get(name) != other.get(name):
                raise RunError(
                    "processes-differ",
                    f"{name} is {main.get(name)} in process 0 on {main_host}, {other.get(name)} in process {rank} on "
                    f"{host}; all processes need the same options, data and run directory (on a file system that all "
                    "hosts share)",
                )
