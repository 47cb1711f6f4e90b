"""Forward and backward of a micro-batch as a CUDA graph: one launch where there are thousands of kernels.

A small model's kernels take a GPU a few microseconds each, less than the host needs to launch the next; so without graphs the
host sets the pace. A graph is recorded for each shape of micro-batch when it first comes up, and replayed from then on: the
same kernels on the same memory. So whatever differs between two micro-batches of a shape is copied to where the recorded
kernels read it, numbers of the host included, and gradients stay where they are from step to step. What processes tell
each other is not recorded.

Not measured yet: there was no GPU. Tests have everything but CUDA's own part, by a recorder that computes again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn

from electra.errors import DeviceError
from electra.runtime.memory import move_to_device
from electra.runtime.setup import Runtime
from electra.seeding import Stream, seed_everything
from electra.train.backward import forward_backward

Sums = dict[str, Tensor]
ALIGNMENT = 64
"""Numbers from one place in the buffer of gradients to the next where one may begin: 256 bytes, as memory of its own."""
WARM_UPS = 3
"""Times that a step is computed before it is recorded: libraries allocate, torch.compile compiles."""


class CudaRecorder:
    """Makes repeatable what a function does on the current GPU.

    All graphs share one pool of memory: none of them runs beside another.
    """

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.pool = torch.cuda.graph_pool_handle()

    def warm_up(self, step: Callable[[], Sums]) -> None:
        """Compute the step until it does what it will do from then on; on the stream that records, as autograd wants."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(WARM_UPS):
                step()
        torch.cuda.current_stream().wait_stream(self.stream)

    def record(self, step: Callable[[], Sums]) -> tuple[Callable[[], None], Sums]:
        """What computes the step again, and the tensors that hold its result then. Nothing is computed here."""
        graph = torch.cuda.CUDAGraph()
        # Only this thread's calls are watched: NCCL's watchdog makes some of its own meanwhile.
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
            sums = step()
        return graph.replay, sums


@dataclass(frozen=True)
class Recorded:
    """A recorded step, and the memory that it reads and writes."""

    batch: Any
    counts: Tensor
    """Counts by the order of their names, in float64."""
    sums: Sums
    replay: Callable[[], None]


class GraphedBackward:
    """What `Backward` does, recorded once for each shape of micro-batch.

    Batches have `tensors()`, all that they consist of. All gradients lie in one buffer, which several processes add up
    at once, when a step's last backward pass is over. Each process brings the same parameters: they are drawn from one
    seed, or read from one file.

    Raises:
        DeviceError: something in the step cannot be recorded.
    """

    def __init__(self, module: nn.Module, runtime: Runtime, recorder: CudaRecorder) -> None:
        self.module = module
        self.runtime = runtime
        self.recorder = recorder
        self.recorded: dict[tuple[torch.Size, ...], Recorded] = {}
        self.gradients = torch.empty(0)

    def __call__(self, batch: Any, counts: Mapping[str, float], key: tuple[int, ...], last: bool) -> Sums:
        """Add a micro-batch's gradients to those that are there; the sums stand where the next call overwrites them."""
        batch = batch.to(self.runtime.device)
        shapes = tuple(tensor.shape for tensor in batch.tensors())
        if shapes not in self.recorded:
            self.recorded[shapes] = self.record(batch, list(counts))
        known = self.recorded[shapes]
        for place, tensor in zip(known.batch.tensors(), batch.tensors(), strict=True):
            place.copy_(tensor)
        numbers = torch.tensor(list(counts.values()), dtype=torch.float64)
        known.counts.copy_(move_to_device(numbers, self.runtime.device))
        seed_everything(Stream.DROPOUT, *key)  # a replay draws as the seed of the moment says
        known.replay()
        if last:
            self.runtime.all_reduce_sum(self.gradients)
        return known.sums

    def clear(self, optimizer: torch.optim.Optimizer) -> None:
        """Forget the gradients; they stay where they are."""
        self.gradients.zero_()

    def record(self, batch: Any, names: list[str]) -> Recorded:
        """Record the step for micro-batches of the shape of `batch`, in its memory; no gradient is different after it."""
        counts = torch.ones(len(names), dtype=torch.float64, device=self.runtime.device)
        named = dict(zip(names, counts.unbind(), strict=True))

        def step() -> Sums:
            return forward_backward(self.module, batch, named, self.runtime)

        parameters = list(self.module.parameters())
        before = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        self.recorder.warm_up(step)
        if not self.recorded:
            # A parameter that takes no part keeps having no gradient, not even zeros: the optimizer leaves it as it is.
            self.gradients = in_one_buffer([each for each in parameters if each.grad is not None])
        else:
            for parameter, gradient in zip(parameters, before, strict=True):
                parameter.grad = gradient
        try:
            replay, sums = self.recorder.record(step)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            reason = next(filter(None, str(error).splitlines()), "no reason given")
            raise DeviceError(
                "no-graph", f"--training.graphs: no graph can be recorded here ({reason}); leave it out"
            ) from error
        return Recorded(batch, counts, sums, replay)


def in_one_buffer(parameters: list[nn.Parameter]) -> Tensor:
    """The buffer in which the parameters have their gradients from now on, zeros to begin with."""
    ends = list(accumulate(-(-parameter.numel() // ALIGNMENT) * ALIGNMENT for parameter in parameters))
    buffer = torch.zeros(ends[-1], device=parameters[0].device)
    for parameter, start in zip(parameters, [0, *ends], strict=False):
        parameter.grad = buffer[start : start + parameter.numel()].view_as(parameter)
    return buffer
