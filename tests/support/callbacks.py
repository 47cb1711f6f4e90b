"""Callbacks that act at one step: a crash, a signal, damaged weights."""

import os
import signal
from collections.abc import Callable

from torch import nn

from electra.train.callbacks import Callback
from electra.train.checkpoint import TrainingState


class AtStep(Callback):
    """Calls `action(module)` after the update of number `step`."""

    def __init__(self, step: int, action: Callable[[nn.Module], None]) -> None:
        self.step = step
        self.action = action

    def on_train_begin(self, module: nn.Module, state: TrainingState) -> None:
        self.module = module

    def on_step_end(self, state: TrainingState) -> None:
        if state.step == self.step:
            self.action(self.module)


class CrashError(Exception):
    """Stands for a crash: nothing of the project handles it."""


def crash(module: nn.Module) -> None:
    """Raise `CrashError`."""
    raise CrashError


def kill(module: nn.Module) -> None:
    """End this process by SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)
