"""Forward and backward of a micro-batch as a CUDA graph, which launches thousands of kernels at once.

A kernel of a small model takes a few microseconds on a GPU, less than the host needs to launch the next one, so without graphs
the host limits the speed. A graph is recorded for each shape of micro-batch at its first use and replayed later: the same
kernels on the same memory. Everything that differs between two micro-batches of a shape, including numbers of the host, is
therefore copied to the memory that the recorded kernels read, and gradients keep their memory from step to step.
Communication between processes is not recorded.

The speed was not measured yet. The tests use a recorder that computes the step again, so they cover everything but the calls
of CUDA.
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
"""Elements to which the start of each gradient in the buffer is aligned: 256 bytes, as in separate allocations."""
WARM_UPS = 3
"""Times that a step is computed before it is recorded: libraries allocate memory and torch.compile compiles."""


class CudaRecorder:
    """Records the kernels of a function on the current GPU.

    All graphs share one memory pool, because no two of them run at the same time.
    """

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.pool = torch.cuda.graph_pool_handle()

    def warm_up(self, step: Callable[[], Sums]) -> None:
        """Compute the step several times before it is recorded, on the recording stream, as autograd requires."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(WARM_UPS):
                step()
        torch.cuda.current_stream().wait_stream(self.stream)

    def record(self, step: Callable[[], Sums]) -> tuple[Callable[[], None], Sums]:
        """Record the step without computing it; returns its replay and the tensors to which a replay writes the sums."""
        graph = torch.cuda.CUDAGraph()
        # Only calls of this thread can invalidate the capture: NCCL's watchdog thread calls CUDA meanwhile.
        with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
            sums = step()
        return graph.replay, sums


@dataclass(frozen=True)
class RecordedStep:
    """A recorded step, and the memory that it reads and writes."""

    batch: Any
    counts: Tensor
    """Counts in the order of their names, in float64."""
    sums: Sums
    replay: Callable[[], None]


class GraphedBackward:
    """Same as `Backward`, but recorded once for each shape of micro-batch.

    The method `tensors` of a batch returns all of its content. All gradients are in one buffer, which is summed over the
    processes after the last backward pass of a step. All processes start with equal parameters, from one seed or one file.

    Raises:
        DeviceError: something in the step cannot be recorded.
    """

    def __init__(self, module: nn.Module, runtime: Runtime, recorder: CudaRecorder) -> None:
        self.module = module
        self.runtime = runtime
        self.recorder = recorder
        self.recorded: dict[tuple[torch.Size, ...], RecordedStep] = {}
        self.gradients = torch.empty(0)

    def __call__(self, batch: Any, counts: Mapping[str, float], key: tuple[int, ...], last: bool) -> Sums:
        """Add a micro-batch's gradients to the existing ones; the next call overwrites the returned sums."""
        batch = batch.to(self.runtime.device)
        shapes = tuple(tensor.shape for tensor in batch.tensors())
        if shapes not in self.recorded:
            self.recorded[shapes] = self.record(batch, list(counts))
        step = self.recorded[shapes]
        for recorded, tensor in zip(step.batch.tensors(), batch.tensors(), strict=True):
            recorded.copy_(tensor)
        numbers = torch.tensor(list(counts.values()), dtype=torch.float64)
        step.counts.copy_(move_to_device(numbers, self.runtime.device))
        seed_everything(Stream.DROPOUT, *key)  # a replay uses the current seed, not that of the recording
        step.replay()
        if last:
            self.runtime.all_reduce_sum(self.gradients)
        return step.sums

    def clear(self, optimizer: torch.optim.Optimizer) -> None:
        """Set the gradients to zero; they keep their memory."""
        self.gradients.zero_()

    def record(self, batch: Any, names: list[str]) -> RecordedStep:
        """Record the step for micro-batches of the shape of `batch`, in its memory; gradients are the same afterwards."""
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
            # Unused parameters keep None as their gradient, not zeros, so the optimizer skips them.
            self.gradients = allocate_gradients([each for each in parameters if each.grad is not None])
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
        return RecordedStep(batch, counts, sums, replay)


def allocate_gradients(parameters: list[nn.Parameter]) -> Tensor:
    """Allocate the gradients of all parameters, zeros, in one buffer; returns the buffer."""
    ends = list(accumulate(-(-parameter.numel() // ALIGNMENT) * ALIGNMENT for parameter in parameters))
    buffer = torch.zeros(ends[-1], device=parameters[0].device)
    for parameter, start in zip(parameters, [0, *ends], strict=False):
        parameter.grad = buffer[start : start + parameter.numel()].view_as(parameter)
    return buffer
