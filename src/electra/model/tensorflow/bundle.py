"""Tensors of TensorFlow checkpoints: NAME.index, and NAME.data-00000-of-00001 or several such files."""

import math
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from electra.errors import ModelError
from electra.model.tensorflow.index import Entry, Index, compute_checksum, read_index
from electra.schema import check_file, make_read_error, read_bytes

DTYPES = {
    1: torch.float32,
    3: torch.int32,
    4: torch.uint8,
    5: torch.int16,
    6: torch.int8,
    9: torch.int64,
    14: torch.bfloat16,
    19: torch.float16,
}
"""Numbers in TensorFlow's enum DataType -> types that are read."""
STATE_BYTES = 1 << 20
"""Maximum size of the file `checkpoint`, which names the newest checkpoint of a folder."""


def find_tensorflow_checkpoint(path: Path) -> Path | None:
    """Find the checkpoint that a path names: its name without ending, its index, or its folder; None if it is none.

    Of several checkpoints in a folder, the newest one that the file `checkpoint` names is used.

    Raises:
        ModelError: a folder has several checkpoints, and no file `checkpoint` that names one of them; or data without index.
    """
    if path.suffix == ".index":
        return path.with_suffix("")
    if path.with_name(f"{path.name}.index").exists():
        return path
    if not path.is_dir():
        if path.parent.is_dir() and any(path.parent.glob(f"{glob_escape(path.name)}.data-*-of-*")):
            raise ModelError("no-index", f"{path}: has no {path.name}.index, which lists the tensors of its data files")
        return None
    found = sorted(file.with_suffix("") for file in path.glob("*.index"))
    if not found or (path / "config.json").exists():
        return None
    state = path / "checkpoint"
    if len(found) > 1 and state.exists():
        text = read_bytes(state, ModelError, STATE_BYTES).decode(errors="replace")
        newest = re.search(r'^model_checkpoint_path: "(?:[^"\n]*/)?([^"/\n]+)"', text, re.MULTILINE)
        found = [each for each in found if newest and each.name == newest[1]] or found
    if len(found) > 1:
        names = ", ".join(each.name for each in found[:5])
        raise ModelError("several-checkpoints", f"{path}: has several checkpoints; name one of them: {names}")
    return found[0]


def glob_escape(name: str) -> str:
    """Escape a name for `Path.glob`."""
    return re.sub(r"([*?[])", r"[\1]", name)


@dataclass(frozen=True)
class Bundle:
    """A checkpoint. Its index is read when it is first needed; each tensor when it is asked for."""

    prefix: Path
    """Its name without ending."""

    @cached_property
    def index(self) -> Index:
        """The content of the index. Raises a `ModelError` if it is missing or damaged."""
        return read_index(self.prefix.with_name(f"{self.prefix.name}.index"))

    def get_shape(self, name: str, dimensions: int) -> tuple[int, ...]:
        """Return the shape of a tensor. Raises a `ModelError` unless it is there and has this number of dimensions."""
        shape = self.find(name).shape
        if len(shape) != dimensions:
            raise ModelError("wrong-shape", f"{self.prefix}: {name} has {len(shape)} dimensions, expected {dimensions}")
        return shape

    def find(self, name: str) -> Entry:
        """Return where a tensor is. Raises a `ModelError` if there is none of this name."""
        if name not in self.index.entries:
            raise ModelError("missing-weight", f"{self.prefix}: no variable {name!r}, which an ELECTRA has")
        return self.index.entries[name]

    def read(self, name: str) -> Tensor:
        """Read a tensor, after its place is found to be in its file and before its checksum is compared.

        Raises:
            ModelError: there is none of this name, its file is missing or too short, its type is not in `DTYPES`, it is
                partitioned, or its bytes are not those that were written.
        """
        entry = self.find(name)
        if entry.is_partitioned:
            raise ModelError("partitioned", f"{self.prefix}: {name} is partitioned, which ELECTRA's variables are not")
        if entry.dtype not in DTYPES:
            raise ModelError(
                "wrong-type", f"{self.prefix}: {name} has TensorFlow's type {entry.dtype}, expected numbers"
            )
        dtype = DTYPES[entry.dtype]
        shards = self.index.num_shards
        file = self.prefix.with_name(f"{self.prefix.name}.data-{entry.shard:05d}-of-{shards:05d}")
        if entry.shard >= shards or entry.size != math.prod(entry.shape) * dtype.itemsize:
            raise ModelError("damaged", f"{self.prefix}.index: damaged: the place or size of {name} is impossible")
        check_file(file, ModelError)
        if entry.offset + entry.size > (size := file.stat().st_size):
            raise ModelError(
                "truncated",
                f"{file}: {size:,} bytes, and {name} ends at byte {entry.offset + entry.size:,}; the file is truncated",
            )
        try:
            with file.open("rb") as opened:
                opened.seek(entry.offset)
                content = bytearray(opened.read(entry.size))
        except OSError as problem:
            raise make_read_error(file, problem, ModelError) from problem
        if len(content) != entry.size or compute_checksum(bytes(content)) != entry.checksum:
            raise ModelError("damaged", f"{file}: damaged: the checksum of {name} differs; use another copy")
        return torch.frombuffer(content, dtype=dtype).reshape(entry.shape) if content else torch.empty(entry.shape)
