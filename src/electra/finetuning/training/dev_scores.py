"""Dev scores in the course of training: a learning curve, the selection of the best epoch, and early stopping."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from pydantic import Field, FiniteFloat
from torch import nn
from typing_extensions import TypedDict

from electra.errors import RunError
from electra.finetuning.training.best_epoch import BestEpoch
from electra.schema import read_json
from electra.storage import write_atomically
from electra.train.callbacks import Callback
from electra.train.checkpoint import TrainingState


class DevScore(TypedDict):
    """The main metric on dev, in percent, after a number of steps."""

    step: Annotated[int, Field(ge=1)]
    score: FiniteFloat


class DevScoresFile(TypedDict):
    """Content of `dev_scores.json`."""

    scores: list[DevScore]


class DevScores(Callback):
    """Scores the dev split after each epoch, and writes the scores to `dev_scores.json` in the run directory.

    On resuming, the scores of steps after the checkpoint are dropped, because the run computes them again.

    Args:
        directory: Run directory.
        score: Returns the dev score of the current weights.
        steps: Total steps.
        steps_per_epoch: Steps of an epoch.
        best: Saves the weights with the best score; None: the last weights are used, which are scored after training.
        patience: Number of scores without a better one after which the training has to stop; None: it does not.
    """

    def __init__(
        self,
        directory: Path,
        score: Callable[[], float],
        steps: int,
        steps_per_epoch: int,
        best: BestEpoch | None = None,
        patience: int | None = None,
    ) -> None:
        self.directory, self.score = directory, score
        self.steps, self.steps_per_epoch = steps, steps_per_epoch
        self.best, self.patience = best, patience
        self.rows: list[DevScore] = []

    def on_train_begin(self, module: nn.Module, state: TrainingState) -> None:
        """Read the scores of the steps before those that follow."""
        self.module = module
        self.rows = [row for row in read_dev_scores(self.directory) if row["step"] <= state.step]

    def on_step_end(self, state: TrainingState) -> None:
        """At the end of an epoch, and of training if the best weights are saved, score the model."""
        is_end = state.step == self.steps
        if (state.step % self.steps_per_epoch and not is_end) or (is_end and self.best is None):
            return
        value = self.score()
        self.module.train()
        if self.best is not None:
            self.best.offer(state.step, value)
        self.rows.append({"step": state.step, "score": value})
        write_atomically(get_path(self.directory), (json.dumps({"scores": self.rows}) + "\n").encode())

    def is_exhausted(self) -> bool:
        """Whether the last `patience` scores were not better than the best one before them."""
        scores = [row["score"] for row in self.rows]
        return (
            self.patience is not None and bool(scores) and len(scores) - 1 - scores.index(max(scores)) >= self.patience
        )


def get_path(directory: Path) -> Path:
    """Return the path of the dev scores in a run directory."""
    return directory / "dev_scores.json"


def read_dev_scores(directory: Path) -> list[DevScore]:
    """Read the dev scores of a run, by step; none if it has not finished an epoch.

    Raises:
        RunError: the file is damaged.
    """
    path = get_path(directory)
    return read_json(path, DevScoresFile, RunError)["scores"] if path.exists() else []
