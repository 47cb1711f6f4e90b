"""Execution on the device: micro-batch size, torch.compile, CUDA graphs."""

import logging

import torch

from electra.errors import DeviceError, UsageError
from electra.model.encoder import Encoder
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.objectives.networks import MaskedLM
from electra.runtime.setup import Runtime

log = logging.getLogger(__name__)


CPU_MICRO_BATCH = 64
"""Largest default micro-batch on a CPU. Larger ones take more memory and are hardly faster."""
ACTIVATIONS_PER_GIB = 16 * 128 * 256 * 12
"""Rows x length x width x depth of 16 rows of Small, which are assumed to fit into 1 GiB of GPU memory (not measured)."""
GRAPH_LENGTH_STEP = 32
"""Step between the micro-batch lengths for which CUDA graphs are captured."""


def resolve_micro_batch_size(config: PretrainConfig, runtime: Runtime, recorded: int = 0) -> int:
    """Return the configured micro-batch size, else the `recorded` one of the resumed run, else a default.

    The default is the largest size that divides a process's share of the batch and fits the device. On a GPU, activations
    grow with length x width x depth; CUDA graphs keep theirs while a graph of another shape is captured.

    A resumed run keeps its size: dropout is drawn per micro-batch, and a mean of micro-batch means depends on the size.

    Raises:
        UsageError: the processes cannot share the batch evenly, or cannot keep a size that the run's means depend on.
    """
    rows = config.training.micro_batch_size or choose_micro_batch_size(config, runtime, recorded)
    if config.sequence_contrast.weight:
        check_negatives(config, rows)
    if recorded not in (0, rows):
        log.warning(
            f"micro-batches of {rows} sequences, {recorded} before: from here on dropout differs from that of an "
            "uninterrupted run",
            extra={"code": "other-micro-batches"},
        )
    return rows


def check_negatives(config: PretrainConfig, rows: int) -> None:
    """Check that a micro-batch has negatives for sequence contrast; log a warning if they are not the whole batch's."""
    if rows == 1:
        raise UsageError(
            "too-few-negatives",
            "sequence_contrast.weight needs other sequences of the micro-batch as negatives, and micro-batches have one; "
            "raise --training.micro-batch-size",
        )
    if rows < config.training.batch_size:
        log.warning(
            f"sequence contrast: the negatives of a sequence are those of its micro-batch of {rows}, not of the batch of "
            f"{config.training.batch_size} (--training.micro-batch-size)",
            extra={"code": "negatives-of-micro-batch"},
        )


def choose_micro_batch_size(config: PretrainConfig, runtime: Runtime, recorded: int) -> int:
    """Return the recorded size if the processes can keep it, else the default; see `resolve_micro_batch_size`."""
    share, rest = divmod(config.training.batch_size, runtime.world_size)
    if rest or not share:
        raise UsageError(
            "uneven-batch",
            f"--training.batch-size {config.training.batch_size} cannot be shared evenly by "
            f"{runtime.world_size} processes",
        )
    if recorded and share % recorded == 0:
        return recorded
    if recorded and config.reason_for_micro_batches:
        raise UsageError(
            "uneven-batch",
            f"{config.reason_for_micro_batches}, so the loss of this run depends on its micro-batches of {recorded} "
            f"sequences; {runtime.world_size} processes cannot divide a batch of {config.training.batch_size} into these; "
            "start as many processes as before",
        )
    limit = CPU_MICRO_BATCH
    if runtime.device.type == "cuda":
        memory = torch.cuda.get_device_properties(runtime.device).total_memory / 2**30
        row = config.seq_len * config.model.hidden_size * config.model.num_layers
        limit = max(1, int(ACTIVATIONS_PER_GIB * memory / row / (2 if config.training.graphs else 1)))
    return max(rows for rows in range(1, min(share, limit) + 1) if share % rows == 0)


COMPILED_VARIANTS = 64
"""Compiled variants of a layer: by network size, with or without padding, at all or some positions, in training or not."""


def compile_parts(model: PretrainingModel, device: torch.device, backend: str = "inductor") -> None:
    """Compile the layers and the chunked softmax with torch.compile, at their first call.

    Layers of a network share their compiled code. Parameters and their names do not change.

    Raises:
        DeviceError: torch.compile does not work here: it needs a C++ compiler on a CPU, Triton on a GPU.
    """
    try:
        torch.compile(torch.sin, backend=backend)(torch.ones(2, device=device))
    except Exception as error:  # back ends raise many types
        reason = next(filter(None, str(error).splitlines()), type(error).__name__)
        raise DeviceError(
            "no-compiler", f"--training.compile: torch.compile does not work here ({reason}); leave it out"
        ) from None
    # Beyond the limit, by default 8, a layer silently runs uncompiled. The setting holds for this thread only: the backward
    # pass, compiled by an autograd thread, keeps the default. It needs fewer variants, as its sizes become variables.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, COMPILED_VARIANTS)
    for module in model.modules():
        if isinstance(module, Encoder):
            for layer in module.layers:
                layer.compile(backend=backend)
        elif isinstance(module, MaskedLM):
            module.backend = backend


def check_graphs(config: PretrainConfig, runtime: Runtime) -> None:
    """Raise a `DeviceError` if CUDA graphs are requested without a GPU."""
    if config.training.graphs and runtime.device.type != "cuda":
        raise DeviceError("no-gpu", "--training.graphs: CUDA graphs need a GPU, and this run has none; leave it out")


def list_graph_lengths(seq_len: int) -> list[int]:
    """List the micro-batch lengths for which CUDA graphs are captured: few, because each has its own graph."""
    return [*range(GRAPH_LENGTH_STEP, seq_len, GRAPH_LENGTH_STEP), seq_len]
