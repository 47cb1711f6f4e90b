"""Our training loop without logs and checkpoints, which are not measured."""

from pathlib import Path

from torch import nn, optim

from electra.train.checkpoint import Checkpoints, TrainingState


class Silent:
    """An observer without output."""

    def started(self, state: TrainingState) -> None: ...

    def stepped(self, state: TrainingState) -> None: ...

    def logged(self, state: TrainingState, metrics: dict[str, float]) -> None: ...


class Unsaved(Checkpoints):
    """Checkpoints that are never written or read."""

    def __init__(self) -> None:
        super().__init__(Path("no checkpoints"), 1, print)

    def paths(self) -> list[Path]:
        return []

    def save(self, module: nn.Module, optimizer: optim.Optimizer, state: TrainingState) -> Path:
        return self.directory
