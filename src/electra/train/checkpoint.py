"""Checkpoints that survive anything: written aside and renamed, checked by checksum, the newest few kept.

    checkpoints/step-00000300/
        model.safetensors      every parameter, once, under its name in the module
        optimizer.safetensors  the optimizer's state and the running sums of the metrics
        state.json             step, seconds, tokens, FLOPs, settings; size and SHA-256 of the two files above, and of itself

`state.json` is written last and carries the checksums, so a directory is whole or recognizably not. The data order and
the random state are functions of the step (see `electra.seeding`) and need no file.
"""

import errno
import hashlib
import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from electra.errors import RunError
from electra.schema import check_file, read_object, read_tensors, validate
from electra.storage import convert_os_errors, sync, write_tensors
from electra.train.checkpoint_schema import CheckpointRecord, check_numbers, check_optimizer_state

log = logging.getLogger(__name__)

PREFIX = "step-"
FORMAT = 2
"""Changes with the files of a checkpoint, and with the random numbers of what follows it."""
SCALARS = ("step", "seconds", "tokens", "flops")


class DamagedCheckpointError(RunError):
    """A checkpoint that cannot be used; there may be an older one."""


@dataclass
class TrainingState:
    """The state of a run without its parameters and the optimizer's state."""

    step: int = 0
    """Updates made."""
    seconds: float = 0.0
    """Time spent in training, over all restarts."""
    tokens: float = 0.0
    """Tokens seen so far, by all processes, padding not counted."""
    flops: float = 0.0
    """Floating point operations so far, of all processes."""
    sums: dict[str, Tensor] = field(default_factory=dict)
    """Metric sums since they were last logged."""


class Checkpoints:
    """The checkpoints of one run, in `directory`, at most `keep` of them.

    `settings` are recorded with each: what the configuration leaves to the machine and a resumed run has to keep.
    """

    def __init__(self, directory: Path, keep: int, settings: Mapping[str, int] | None = None) -> None:
        self.directory = directory
        self.keep = keep
        self.settings = dict(settings or {})

    def path(self, step: int) -> Path:
        """The directory of the checkpoint of a step."""
        return self.directory / f"{PREFIX}{step:08d}"

    def paths(self) -> list[Path]:
        """All finished checkpoints, oldest first.

        Raises:
            RunError: the directory cannot be listed; a glob would find nothing there, and the run would begin anew.
        """
        if not self.directory.exists():
            return []
        with reading(self.directory):
            return sorted(path for path in self.directory.iterdir() if path.name.startswith(PREFIX))

    def recorded_settings(self) -> dict[str, int]:
        """The settings of the newest checkpoint whose state.json is whole; none where there is no such checkpoint."""
        for path in reversed(self.paths()):
            with suppress(DamagedCheckpointError), reading(path):
                return read_state(path)["settings"]
        return {}

    def save(self, module: nn.Module, optimizer: torch.optim.Optimizer, state: TrainingState) -> Path:
        """Write a checkpoint, then remove those beyond the newest `keep`.

        Raises:
            StorageError: the disk is full or writing is not allowed; earlier checkpoints are untouched.
        """
        path = self.path(state.step)
        aside = self.directory / f".writing-{path.name}"
        with convert_os_errors(path):
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
            try:
                self._write(aside, module, optimizer, state)
                shutil.rmtree(path, ignore_errors=True)  # a damaged one of the same step
                aside.rename(path)
                sync(self.directory)
            except BaseException:
                shutil.rmtree(aside, ignore_errors=True)
                raise
        newer = [other for other in self.paths() if other.name > path.name]  # damaged, or this step would be later
        for old in newer + [other for other in self.paths() if other not in newer][: -self.keep]:
            shutil.rmtree(old, ignore_errors=True)
        return path

    def _write(self, aside: Path, module: nn.Module, optimizer: torch.optim.Optimizer, state: TrainingState) -> None:
        tensors = {
            "model.safetensors": {name: p.detach() for name, p in module.named_parameters()},
            "optimizer.safetensors": {
                **{f"{kind}/{name}": t for name, kind, t in moments(module, optimizer)},
                **{f"sums/{name}": t for name, t in state.sums.items()},
            },
        }
        need = sum(t.nbytes for group in tensors.values() for t in group.values())
        if (free := shutil.disk_usage(aside).free) < need:
            message = f"No space left on device: a checkpoint needs {need / 1e6:.0f} MB, {free / 1e6:.0f} MB are free"
            raise OSError(errno.ENOSPC, message, str(self.directory))
        files = {}
        for name, group in tensors.items():
            write_tensors(aside / name, {key: t.contiguous().cpu() for key, t in group.items()})
            files[name] = {"bytes": (aside / name).stat().st_size, "sha256": checksum(aside / name)}
            sync(aside / name)
        known = {name: getattr(state, name) for name in SCALARS}
        known |= {"format": FORMAT, "settings": self.settings, "files": files}
        sealed = known | {"sha256": seal(known)}
        (aside / "state.json").write_text(json.dumps(sealed, indent=2) + "\n")
        sync(aside / "state.json")
        sync(aside)

    def restore(self, module: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> TrainingState:
        """Load the newest whole checkpoint into `module` (and `optimizer`); a fresh state if there is none.

        A damaged checkpoint is named in a warning and the one before it is used.

        Raises:
            RunError: all checkpoints are damaged, one cannot be read, or the newest whole one is of another model.
        """
        paths = self.paths()
        for path in reversed(paths):
            if (damage := damaged(path)) is None:
                return load(path, module, optimizer)
            log.warning(f"{path}: damaged ({damage}); it is not used", extra={"code": "damaged-checkpoint"})
        if paths:
            raise RunError(
                "all-damaged",
                f"{self.directory}: every checkpoint is damaged; delete this folder to train from step 0 again",
            )
        return TrainingState()


def moments(module: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, str, Tensor]]:
    """(parameter name, kind of moment, tensor) of everything the optimizer remembers."""
    for name, parameter in module.named_parameters():
        for kind, tensor in optimizer.state[parameter].items():
            yield name, kind, tensor


def load(path: Path, module: nn.Module, optimizer: torch.optim.Optimizer | None) -> TrainingState:
    """Load one whole checkpoint.

    Raises:
        RunError: its parameters, moments or sums are not those of `module`, whatever the checksums are.
    """
    weights = read_tensors(path / "model.safetensors", RunError)
    parameters = dict(module.named_parameters())
    if {n: p.shape for n, p in parameters.items()} != {n: t.shape for n, t in weights.items()}:
        raise RunError("other-model", f"{path}: holds the parameters of another model")
    check_numbers(path / "model.safetensors", weights)
    remembered = read_tensors(path / "optimizer.safetensors", RunError)
    check_numbers(path / "optimizer.safetensors", remembered)
    if optimizer is not None:
        check_optimizer_state(path / "optimizer.safetensors", remembered, parameters, optimizer)
    record = read_state(path)
    state = TrainingState(record["step"], record["seconds"], record["tokens"], record["flops"])
    with torch.no_grad():
        for name, tensor in weights.items():
            parameters[name].copy_(tensor)
    for key, tensor in remembered.items():
        kind, name = key.split("/", 1)
        if kind == "sums":
            state.sums[name] = tensor
        elif optimizer is not None:
            parameter = parameters[name]
            optimizer.state[parameter][kind] = tensor.to(parameter.device)
    return state


def damaged(path: Path) -> str | None:
    """What is wrong with a checkpoint, or None if its files are those that were written.

    Raises:
        RunError: the system does not let it be read, which says nothing about the checkpoint.
    """
    try:
        with reading(path):
            return difference(path)
    except DamagedCheckpointError as error:
        return str(error).removeprefix(f"{path}/")
    except OSError as error:
        return f"{type(error).__name__}: {error}"


def difference(path: Path) -> str | None:
    """How the files of a checkpoint differ from those that were written."""
    for name, expected in read_state(path)["files"].items():
        assert isinstance(expected, dict)
        check_file(path / name, DamagedCheckpointError)
        if (size := (path / name).stat().st_size) != expected["bytes"]:
            return f"{name} has {size} bytes, expected {expected['bytes']}"
        if checksum(path / name) != expected["sha256"]:
            return f"{name} does not have the checksum that was written"
    return None


def read_state(path: Path) -> CheckpointRecord:
    """`state.json` of a checkpoint.

    Raises:
        DamagedCheckpointError: it is not what was written, or not what a checkpoint of this step has.
        RunError: it was written by a version of this program that drew other random numbers.
    """
    file = path / "state.json"
    written = read_object(file, DamagedCheckpointError)
    if written.pop("sha256", None) != seal(written):
        raise DamagedCheckpointError("wrong-checksum", f"{file}: does not have the checksum that was written")
    if (found := written.pop("format", 1)) != FORMAT:
        raise RunError(
            "other-version",
            f"{file}: format {found}, expected {FORMAT}: another version of electra wrote this checkpoint and drew other "
            "random numbers; finish the run with that version, or begin another one with --init or another --out",
        )
    record = validate(written, CheckpointRecord, str(file), DamagedCheckpointError)
    if path.name != f"{PREFIX}{record['step']:08d}":
        raise DamagedCheckpointError("other-step", f"{file}: is that of step {record['step']:,}")
    return record


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn a refusal of the system within into a `RunError`."""
    try:
        yield
    except (PermissionError, DamagedCheckpointError) as error:
        cause = error if isinstance(error, PermissionError) else error.__cause__
        if not isinstance(cause, PermissionError):
            raise
        raise RunError(
            "no-permission",
            f"{cause.filename or path}: no permission to read it; nothing is known to be damaged: "
            "give the permission and run the same command again",
        ) from error


def seal(known: dict[str, Any]) -> str:
    """SHA-256 of the content of `state.json`."""
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()
