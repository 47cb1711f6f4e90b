"""Checkpoints for benchmarks of the training loop: nothing is saved."""

from pathlib import Path

from torch import nn, optim

from electra.train.checkpoint import Checkpoints, TrainingState


class Unsaved(Checkpoints):
    """Checkpoints that are never written or read."""

    def __init__(self) -> None:
        super().__init__(Path("no checkpoints"), 1)

    def paths(self) -> list[Path]:
        return []

    def save(self, module: nn.Module, optimizer: optim.Optimizer, state: TrainingState) -> Path:
        return self.directory
