"""The progress of a training run: a bar on a terminal, elsewhere a log record now and then."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta

from rich.progress import TaskID
from torch import nn

from electra.console import LINE_EVERY, shows_bars, training_progress
from electra.train.callbacks import Callback
from electra.train.checkpoint import TrainingState
from electra.train.schedule import Budget

log = logging.getLogger(__name__)

CENTURY = 100 * 365 * 24 * 3600
"""Seconds. A budget may be larger than any run, and any calendar."""


class Progress(Callback):
    """Shows the step, the metrics that matter, the share of the budget that is used, and the time left.

    `format_position(state)` and `format_metrics(metrics)` give the text; until the first metrics it has the tokens per second.
    """

    def __init__(
        self,
        name: str,
        budget: Budget,
        format_position: Callable[[TrainingState], str],
        format_metrics: Callable[[Mapping[str, float]], str],
    ) -> None:
        self.name = name
        self.budget = budget
        self.format_position = format_position
        self.format_metrics = format_metrics
        self.metrics = ""
        self.begin = TrainingState()
        self.last_line = time.monotonic()
        self.bar = training_progress()
        self.task = TaskID(0)

    def on_train_begin(self, module: nn.Module, state: TrainingState) -> None:
        """Show the bar."""
        self.begin = replace(state)
        if shows_bars():
            self.bar.start()
        self.task = self.bar.add_task(self.name, total=1.0, detail="")

    def on_step_end(self, state: TrainingState) -> None:
        """Move the bar."""
        detail = f"{self.format_position(state)} {self.metrics or format_speed(self.begin, state)}"
        self.bar.update(self.task, completed=self.budget.share(state), detail=detail)

    def on_log(self, state: TrainingState, metrics: dict[str, float]) -> None:
        """Show new metrics."""
        self.metrics = self.format_metrics(metrics)
        self.on_step_end(state)
        if not shows_bars() and time.monotonic() - self.last_line > LINE_EVERY:
            self.last_line = time.monotonic()
            done = self.budget.share(state)
            left = state.seconds / done - state.seconds if done else 0.0
            log.info(
                f"{self.name}: {self.format_position(state)} {self.metrics} · {done:.0%} done · "
                f"ETA {format_duration(left)}",
                extra={"code": "progress"},
            )

    def on_train_end(self, state: TrainingState) -> None:
        """Remove the bar."""
        if shows_bars():
            self.bar.stop()


def format_duration(seconds: float) -> str:
    """Hours, minutes and seconds as `0:34:14`, with days before them."""
    return str(timedelta(seconds=round(seconds))) if seconds < CENTURY else "more than a century"


def format_speed(before: TrainingState, now: TrainingState) -> str:
    """Tokens per second between two states."""
    return f"{(now.tokens - before.tokens) / (now.seconds - before.seconds):,.0f} tokens/s"
