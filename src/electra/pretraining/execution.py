"""What a run makes of its device: how many rows at once, what is compiled, what is recorded."""

import logging

import torch

from electra.errors import DeviceError, UsageError
from electra.model.layers import TransformerLayer
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.objectives.networks import MaskedLM
from electra.runtime.setup import Runtime

log = logging.getLogger(__name__)


CPU_ROWS = 64
"""Sequences that pass the model at once on a CPU, where larger micro-batches take memory and gain little."""
ACTIVATIONS_PER_GIB = 16 * 128 * 256 * 12
"""Length x width x depth of 16 rows of Small, which are taken to fit into a GiB of a GPU (not measured)."""
GRAPHED_LENGTHS = 32
"""Places from one length of micro-batch to the next, where graphs are recorded."""


def resolve_micro_batch_size(config: PretrainConfig, runtime: Runtime, recorded: int = 0) -> int:
    """The micro-batch size: as given, as `recorded` by the run that is resumed, or what suits the device.

    That is the largest that divides a process's share and fits. On a GPU activations grow with length x width x depth. Graphs
    keep theirs while those of another shape are computed for the first time.

    A resumed run keeps its size, because dropout is drawn for a micro-batch, and because a mean of the micro-batches' means
    depends on it.

    Raises:
        UsageError: processes do not divide the batch, or cannot keep the size that the means of the run depend on.
    """
    rows = config.training.micro_batch_size or micro_batch_size_for(config, runtime, recorded)
    if recorded not in (0, rows):
        log.warning(
            f"micro-batches of {rows} sequences, {recorded} before: dropout differs from that of an undisturbed run from "
            "here on"
        )
    return rows


def micro_batch_size_for(config: PretrainConfig, runtime: Runtime, recorded: int) -> int:
    """The recorded size where the processes can keep it, or else what suits the device; see `resolve_micro_batch_size`."""
    share, rest = divmod(config.training.batch_size, runtime.world_size)
    if rest or not share:
        raise UsageError(
            f"--training.batch-size {config.training.batch_size} cannot be shared evenly by "
            f"{runtime.world_size} processes"
        )
    if recorded and share % recorded == 0:
        return recorded
    if recorded and config.training.means == "local":
        raise UsageError(
            f"training.means is local, so this run's loss depends on its micro-batches of {recorded} sequences, into which "
            f"{runtime.world_size} processes cannot divide a batch of {config.training.batch_size}; start as many as before"
        )
    limit = CPU_ROWS
    if runtime.device.type == "cuda":
        memory = torch.cuda.get_device_properties(runtime.device).total_memory / 2**30
        row = config.seq_len * config.model.hidden_size * config.model.num_layers
        limit = max(1, int(ACTIVATIONS_PER_GIB * memory / row / (2 if config.training.graphs else 1)))
    return max(rows for rows in range(1, min(share, limit) + 1) if share % rows == 0)


COMPILED_VARIANTS = 64
"""Of a layer's code: sizes of the networks, with padding and without, at positions, in training and out of it."""


def compile_parts(model: PretrainingModel, device: torch.device, backend: str = "inductor") -> None:
    """Have torch.compile compile layers, and what is done with logits, when they first compute.

    Layers are alike, so that one of each network is compiled; parameters and their names stay.

    Raises:
        DeviceError: torch.compile does not work here: for a CPU it needs a C++ compiler, for a GPU Triton.
    """
    try:
        torch.compile(torch.sin, backend=backend)(torch.ones(2, device=device))
    except Exception as error:  # of many kinds, from wherever its back end fails
        reason = next(filter(None, str(error).splitlines()), type(error).__name__)
        raise DeviceError(f"--training.compile: torch.compile does not work here ({reason}); leave it out") from None
    # From the limit on, which is 8, a layer would silently stay as it is. (In this thread; what is compiled in a backward
    # pass, by a thread of autograd's, keeps to 8. It needs fewer, as its sizes become variables.)
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, COMPILED_VARIANTS)
    for module in model.modules():
        if isinstance(module, TransformerLayer):
            module.compile(backend=backend)
        elif isinstance(module, MaskedLM):
            module.backend = backend


def check_graphs(config: PretrainConfig, runtime: Runtime) -> None:
    """See that CUDA graphs, if they are asked for, can be had here.

    Raises:
        DeviceError: there is no GPU.
    """
    if config.training.graphs and runtime.device.type != "cuda":
        raise DeviceError("--training.graphs: CUDA graphs need a GPU, and this run has none; leave it out")


def graphed_lengths(seq_len: int) -> list[int]:
    """Lengths of the micro-batches of which there are graphs: few, as each has one of its own."""
    return [*range(GRAPHED_LENGTHS, seq_len, GRAPHED_LENGTHS), seq_len]
