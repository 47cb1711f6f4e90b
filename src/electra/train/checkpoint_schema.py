"""Whether a checkpoint holds what a model needs: its checksums do not tell who wrote it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field, FiniteFloat
from torch import Tensor, nn
from typing_extensions import TypedDict

from electra.errors import RunError

MOMENTS = {"step", "exp_avg", "exp_avg_sq"}
"""What AdamW remembers of a parameter."""

Amount = Annotated[FiniteFloat, Field(ge=0)]


class FileRecord(TypedDict):
    """A file of a checkpoint as it was written."""

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
            raise RunError(f"{file}: {name} has the type {tensor.dtype}, expected floating point")
        # Sums since the last log may be infinite: the run stops at that by itself.
        if not name.startswith("sums/") and not torch.isfinite(tensor).all():
            raise RunError(
                f"{file}: {name} has values that are not finite numbers; delete {file.parent} to use an older one"
            )


def check_moments(file: Path, tensors: Mapping[str, Tensor], parameters: Mapping[str, nn.Parameter]) -> None:
    """Raise a `RunError` if these are not AdamW's moments of the parameters, all three of each, and sums."""
    kinds: dict[str, set[str]] = {}
    for key, tensor in tensors.items():
        kind, _, name = key.partition("/")
        if kind == "sums":
            continue
        if kind not in MOMENTS or name not in parameters:
            raise RunError(f"{file}: holds {key!r}, which is no moment of a parameter of this model")
        expected = () if kind == "step" else tuple(parameters[name].shape)
        if tuple(tensor.shape) != expected or tensor.dtype != torch.float32:
            found = f"{tuple(tensor.shape)} of {tensor.dtype}"
            raise RunError(f"{file}: {key} is {found}, expected {expected} of {torch.float32}")
        kinds.setdefault(name, set()).add(kind)
    for name, found_kinds in kinds.items():
        if missing := MOMENTS - found_kinds:
            raise RunError(f"{file}: {min(missing)}/{name} is missing")
