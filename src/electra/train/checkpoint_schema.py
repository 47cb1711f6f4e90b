"""Check the content of a checkpoint against the model that loads it; checksums detect damage only."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field, FiniteFloat
from torch import Tensor, nn
from torch.optim import Optimizer
from typing_extensions import TypedDict

from electra.errors import RunError

Amount = Annotated[FiniteFloat, Field(ge=0)]


class FileRecord(TypedDict):
    """Size and checksum of a file of a checkpoint."""

    bytes: int
    sha256: str


FileRecords = TypedDict("FileRecords", {"model.safetensors": FileRecord, "optimizer.safetensors": FileRecord})


class CheckpointRecord(TypedDict):
    """`state.json`."""

    step: Annotated[int, Field(ge=0, lt=2**53)]
    seconds: Amount
    tokens: Amount
    flops: Amount
    settings: dict[str, Annotated[int, Field(ge=1, le=10**7)]]
    files: FileRecords


def check_numbers(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Raise a `RunError` if a tensor has other values than finite floating point numbers."""
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise RunError("wrong-type", f"{file}: {name} has the type {tensor.dtype}, expected floating point")
        # Sums since the last log may be infinite: the run stops at that by itself.
        if not name.startswith("sums/") and not torch.isfinite(tensor).all():
            raise RunError(
                "not-finite",
                f"{file}: {name} has values that are not finite numbers; delete {file.parent} to use an older one",
            )


def check_optimizer_state(
    file: Path, tensors: Mapping[str, Tensor], parameters: Mapping[str, nn.Parameter], optimizer: Optimizer
) -> None:
    """Raise a `RunError` unless the tensors are the optimizer's state of each parameter, and metric sums."""
    kinds = {parameter: group["state"] for group in optimizer.param_groups for parameter in group["params"]}
    found: dict[str, set[str]] = {}
    for key, tensor in tensors.items():
        kind, _, name = key.partition("/")
        if kind == "sums":
            continue
        if name not in parameters or kind not in kinds[parameters[name]]:
            raise RunError("unknown-state", f"{file}: holds {key!r}, which is no state of a parameter of this model")
        expected = () if kind == "step" else tuple(parameters[name].shape)
        if tuple(tensor.shape) != expected or tensor.dtype != torch.float32:
            shape = f"{tuple(tensor.shape)} of {tensor.dtype}"
            raise RunError("wrong-shape", f"{file}: {key} is {shape}, expected {expected} of {torch.float32}")
        found.setdefault(name, set()).add(kind)
    for name, kinds_found in found.items():
        if missing := kinds[parameters[name]] - kinds_found:
            raise RunError("missing-state", f"{file}: {min(missing)}/{name} is missing")
