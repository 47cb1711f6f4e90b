"""Checkpoints: written to a temporary directory and renamed, verified by checksums; the newest ones are kept.

    checkpoints/step-00000300/   and checkpoints/stem/step-00000240/, which is kept, with schedule wsd
        model.safetensors      every parameter, once, under its name in the module
        optimizer.safetensors  the optimizer's state and the running sums of the metrics
        state.json             step, seconds, tokens, FLOPs, settings; size and SHA-256 of the two files above, and of itself

`state.json` is written last and contains the checksums, so an incomplete or changed directory is detected. The data order and
the random state are functions of the step (see `electra.seeding`) and are not saved.
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
from electra.train.optimizer import EMA

log = logging.getLogger(__name__)

PREFIX = "step-"
FORMAT = 2
"""Version of the files of a checkpoint, and of the random numbers that a resumed run draws."""
SCALARS = ("step", "seconds", "tokens", "flops")


class DamagedCheckpointError(RunError):
    """A checkpoint that cannot be used; an older one may be intact."""


@dataclass
class TrainingState:
    """The state of a run without its parameters and the optimizer's state."""

    step: int = 0
    """Updates so far."""
    seconds: float = 0.0
    """Training time so far, over all restarts."""
    tokens: float = 0.0
    """Tokens seen so far, by all processes, padding not counted."""
    flops: float = 0.0
    """Floating point operations so far, of all processes."""
    sums: dict[str, Tensor] = field(default_factory=dict)
    """Metric sums since they were last logged."""


class Checkpoints:
    """The checkpoints of one run in `directory`, at most `keep` of them.

    `settings` are saved in each: values that were chosen for the machine and that a resumed run has to keep. Without
    checkpoints in `directory`, the run begins with the newest one of `initial`.
    """

    def __init__(
        self,
        directory: Path,
        keep: int,
        settings: Mapping[str, int] | None = None,
        initial: "Checkpoints | None" = None,
    ) -> None:
        self.directory = directory
        self.keep = keep
        self.settings = dict(settings or {})
        self.initial = initial

    @property
    def stem(self) -> "Checkpoints":
        """The checkpoint at the start of the decay, from which runs with other budgets can continue."""
        return Checkpoints(self.directory / "stem", 1, self.settings)

    def path(self, step: int) -> Path:
        """Return the directory of the checkpoint of a step."""
        return self.directory / f"{PREFIX}{step:08d}"

    def paths(self) -> list[Path]:
        """List all finished checkpoints, oldest first.

        Raises:
            RunError: the directory may not be listed. A glob would find nothing in it, and the run would start from step 0.
        """
        if not self.directory.exists():
            return []
        with convert_permission_errors(self.directory):
            return sorted(path for path in self.directory.iterdir() if path.name.startswith(PREFIX))

    def recorded_settings(self) -> dict[str, int]:
        """Load the settings of the newest checkpoint whose state.json is intact, or of `initial`; empty if there is none."""
        for path in reversed(self.paths()):
            with suppress(DamagedCheckpointError), convert_permission_errors(path):
                return read_state(path)["settings"]
        return self.initial.recorded_settings() if self.initial else {}

    def save(self, module: nn.Module, optimizer: torch.optim.Optimizer, state: TrainingState) -> Path:
        """Write a checkpoint, then remove all but the newest `keep`.

        Raises:
            StorageError: the disk is full or writing is not allowed; earlier checkpoints are unchanged.
        """
        path = self.path(state.step)
        temporary = self.directory / f".writing-{path.name}"
        with convert_os_errors(path):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            try:
                self._write(temporary, module, optimizer, state)
                shutil.rmtree(path, ignore_errors=True)  # a damaged checkpoint of the same step
                temporary.rename(path)
                sync(self.directory)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
        # Newer ones are damaged: the run was resumed from a step before them.
        newer = [other for other in self.paths() if other.name > path.name]
        for old in newer + [other for other in self.paths() if other not in newer][: -self.keep]:
            shutil.rmtree(old, ignore_errors=True)
        return path

    def _write(
        self, directory: Path, module: nn.Module, optimizer: torch.optim.Optimizer, state: TrainingState
    ) -> None:
        tensors = {
            "model.safetensors": {name: p.detach() for name, p in module.named_parameters()},
            "optimizer.safetensors": {
                **{f"{kind}/{name}": t for name, kind, t in list_moments(module, optimizer)},
                **{f"sums/{name}": t for name, t in state.sums.items()},
            },
        }
        needed = sum(t.nbytes for group in tensors.values() for t in group.values())
        if (free := shutil.disk_usage(directory).free) < needed:
            message = f"No space left on device: a checkpoint needs {needed / 1e6:.0f} MB, {free / 1e6:.0f} MB are free"
            raise OSError(errno.ENOSPC, message, str(self.directory))
        files = {}
        for name, group in tensors.items():
            write_tensors(directory / name, {key: t.contiguous().cpu() for key, t in group.items()})
            files[name] = {"bytes": (directory / name).stat().st_size, "sha256": checksum(directory / name)}
            sync(directory / name)
        record = {name: getattr(state, name) for name in SCALARS}
        record |= {"format": FORMAT, "settings": self.settings, "files": files}
        record["sha256"] = seal(record)
        (directory / "state.json").write_text(json.dumps(record, indent=2) + "\n")
        sync(directory / "state.json")
        sync(directory)

    def restore(self, module: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> TrainingState:
        """Load the newest intact checkpoint into `module` and `optimizer`; returns the initial state if there is none.

        Without an optimizer, the module gets the averaged weights if the checkpoint has them (`optimizer.ema`). Damaged
        checkpoints are skipped with a warning.

        Raises:
            RunError: all checkpoints are damaged, one may not be read, or the newest intact one is of another model.
        """
        paths = self.paths()
        for path in reversed(paths):
            if (damage := find_damage(path)) is None:
                return load(path, module, optimizer)
            log.warning(f"{path}: damaged ({damage}); skipped", extra={"code": "damaged-checkpoint"})
        if paths:
            raise RunError(
                "all-damaged",
                f"{self.directory}: every checkpoint is damaged; delete this folder to train from step 0 again",
            )
        return self.initial.restore(module, optimizer) if self.initial else TrainingState()


def list_moments(module: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, str, Tensor]]:
    """Yield (parameter name, kind of moment, tensor) for the whole state of the optimizer."""
    for name, parameter in module.named_parameters():
        for kind, tensor in optimizer.state.get(parameter, {}).items():
            yield name, kind, tensor


def load(path: Path, module: nn.Module, optimizer: torch.optim.Optimizer | None) -> TrainingState:
    """Load one checkpoint, whose tensors are not compared with their checksums.

    Raises:
        RunError: its parameters, moments or sums do not match `module`.
    """
    weights = read_tensors(path / "model.safetensors", RunError)
    optimizer_tensors = read_tensors(path / "optimizer.safetensors", RunError)
    if optimizer is None:
        prefix = f"{EMA}/"
        weights |= {key.removeprefix(prefix): t for key, t in optimizer_tensors.items() if key.startswith(prefix)}
    parameters = dict(module.named_parameters())
    if {n: p.shape for n, p in parameters.items()} != {n: t.shape for n, t in weights.items()}:
        raise RunError("other-model", f"{path}: holds the parameters of another model")
    check_numbers(path / "model.safetensors", weights)
    check_numbers(path / "optimizer.safetensors", optimizer_tensors)
    if optimizer is not None:
        check_optimizer_state(path / "optimizer.safetensors", optimizer_tensors, parameters, optimizer)
    record = read_state(path)
    state = TrainingState(record["step"], record["seconds"], record["tokens"], record["flops"])
    with torch.no_grad():
        for name, tensor in weights.items():
            parameters[name].copy_(tensor)
    for key, tensor in optimizer_tensors.items():
        kind, name = key.split("/", 1)
        if kind == "sums":
            state.sums[name] = tensor
        elif optimizer is not None:
            parameter = parameters[name]
            optimizer.state[parameter][kind] = tensor.to(parameter.device)
    return state


def find_damage(path: Path) -> str | None:
    """Describe the damage of a checkpoint; None if its files are unchanged.

    Raises:
        RunError: the permission to read it is missing, so it may be intact.
    """
    try:
        with convert_permission_errors(path):
            return find_changed_file(path)
    except DamagedCheckpointError as error:
        return str(error).removeprefix(f"{path}/")
    except OSError as error:
        return f"{type(error).__name__}: {error}"


def find_changed_file(path: Path) -> str | None:
    """Describe how a file of a checkpoint differs from its record; None if none does."""
    for name, expected in read_state(path)["files"].items():
        assert isinstance(expected, dict)
        check_file(path / name, DamagedCheckpointError)
        if (size := (path / name).stat().st_size) != expected["bytes"]:
            return f"{name} has {size} bytes, expected {expected['bytes']}"
        if checksum(path / name) != expected["sha256"]:
            return f"{name} does not have the recorded checksum"
    return None


def read_state(path: Path) -> CheckpointRecord:
    """Read `state.json` of a checkpoint.

    Raises:
        DamagedCheckpointError: it was changed, is invalid, or belongs to another step.
        RunError: it was written by a version of electra that draws other random numbers.
    """
    file = path / "state.json"
    content = read_object(file, DamagedCheckpointError)
    if content.pop("sha256", None) != seal(content):
        raise DamagedCheckpointError("wrong-checksum", f"{file}: does not have the recorded checksum")
    if (found := content.pop("format", 1)) != FORMAT:
        raise RunError(
            "other-version",
            f"{file}: format {found}, expected {FORMAT}: written by another version of electra, which draws other random "
            "numbers; finish the run with that version, or start a new one with --init or another --out",
        )
    record = validate(content, CheckpointRecord, str(file), DamagedCheckpointError)
    if path.name != f"{PREFIX}{record['step']:08d}":
        raise DamagedCheckpointError("other-step", f"{file}: belongs to step {record['step']:,}")
    return record


@contextmanager
def convert_permission_errors(path: Path) -> Iterator[None]:
    """Convert missing permissions to read into a `RunError`."""
    try:
        yield
    except (PermissionError, DamagedCheckpointError) as error:
        cause = error if isinstance(error, PermissionError) else error.__cause__
        if not isinstance(cause, PermissionError):
            raise
        raise RunError(
            "no-permission",
            f"{cause.filename or path}: no permission to read it, so it is unknown whether it is intact; "
            "change the permissions and run the same command again",
        ) from error


def seal(content: dict[str, Any]) -> str:
    """Compute the SHA-256 of the content of `state.json`."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def checksum(path: Path) -> str:
    """Compute the SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()
