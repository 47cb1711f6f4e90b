"""Experiment trackers, by the names of the option `log_to`. Each receives every row of metrics and the configuration."""

import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import nn

from electra.config.checks import check_choice
from electra.errors import UsageError
from electra.storage import convert_os_errors, write_atomically
from electra.train.callbacks import Callback
from electra.train.checkpoint import TrainingState


class TensorBoard(Callback):
    """Scalars in `directory/events`. On resuming, those of steps after the checkpoint are dropped."""

    def __init__(self, directory: Path, config: Mapping[str, Any]) -> None:
        self.path = directory / "events"

    def on_train_begin(self, module: nn.Module, state: TrainingState) -> None:
        """Open a file of events."""
        from torch.utils.tensorboard import SummaryWriter  # 1 s of imports

        with convert_os_errors(self.path):
            self.events = SummaryWriter(str(self.path), purge_step=state.step + 1)

    def on_log(self, state: TrainingState, metrics: dict[str, float]) -> None:
        """Write the metrics of a step."""
        with convert_os_errors(self.path):
            for name, value in metrics.items():
                self.events.add_scalar(name, value, state.step)

    def on_train_end(self, state: TrainingState) -> None:
        """Close the file of events. A full disk is ignored here, because the write that failed has raised an error already."""
        with suppress(OSError):
            self.events.close()


class HostedTracker(Callback):
    """A run in the project `electra` of Weights & Biases or trackio, whose functions have the same names.

    The environment variable WANDB_PROJECT or TRACKIO_PROJECT selects another project. The run's name consists of the last two
    parts of the directory and an identifier. The identifier is saved in the directory, so that a resumed run continues it.
    """

    def __init__(self, library: str, directory: Path, config: Mapping[str, Any]) -> None:
        self.library = library
        self.directory = directory
        self.config = dict(config)

    def on_train_begin(self, module: nn.Module, state: TrainingState) -> None:
        """Create the run, or resume it."""
        identifier = read_identifier(self.directory / "tracker-id")
        project = os.environ.get(f"{self.library.upper()}_PROJECT", "electra")
        name = "-".join([*self.directory.absolute().parts[-2:], identifier])
        own = {"id": identifier, "dir": str(self.directory)} if self.library == "wandb" else {}
        self.tracker = import_module(self.library)
        self.tracker.init(project=project, name=name, config=self.config, resume="allow", **own)

    def on_log(self, state: TrainingState, metrics: dict[str, float]) -> None:
        """Send the metrics of a step."""
        self.tracker.log(dict(metrics), step=state.step)

    def on_train_end(self, state: TrainingState) -> None:
        """Finish the run; remaining metrics are sent."""
        self.tracker.finish()


TRACKERS: dict[str, Callable[[Path, Mapping[str, Any]], Callback]] = {
    "tensorboard": TensorBoard,
    "wandb": partial(HostedTracker, "wandb"),
    "trackio": partial(HostedTracker, "trackio"),
}
"""Name -> function from the run's directory and configuration to a callback."""
OPTIONAL_PACKAGES = ("wandb", "trackio")
"""Trackers whose package of the same name is not among the dependencies."""


def check_trackers(names: Iterable[str]) -> None:
    """Raise a `UsageError` for a name that is not in `TRACKERS`."""
    for name in names:
        check_choice("--log-to", name, TRACKERS)


def require_trackers(names: Iterable[str]) -> None:
    """Raise a `UsageError` if the package of a tracker is not installed."""
    for name in names:
        if name in OPTIONAL_PACKAGES and find_spec(name) is None:
            raise UsageError(
                "missing-package", f"--log-to {name}: the package {name} is not installed; pip install {name}"
            )


def build_trackers(names: Iterable[str], directory: Path, config: Mapping[str, Any]) -> list[Callback]:
    """Build the callbacks of the named trackers."""
    return [TRACKERS[name](directory, config) for name in names]


def read_identifier(path: Path) -> str:
    """Read the identifier in a file, which is written first if there is none."""
    if not path.exists():
        write_atomically(path, (uuid.uuid4().hex[:8] + "\n").encode())
    return path.read_text().strip()
