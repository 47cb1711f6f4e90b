"""What is shown and written while a run trains: a progress display, rows of metrics, findings."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from rich.progress import TaskID

from electra.console import LINE_EVERY, console, format_count, training_progress
from electra.pretraining.reporting.diagnostics import Finding, Health
from electra.runtime.setup import Runtime
from electra.runtime.speed import measure_matmul_rate
from electra.train.checkpoint import TrainingState
from electra.train.metrics_log import MetricsLog, read_metrics
from electra.train.schedule import Budget

log = logging.getLogger(__name__)


FEW_UPDATES = 500
"""Updates below which nothing is learned but which tokens are frequent (docs/research/log: context takes thousands)."""
MEASURED_STEPS, MEASURED_SECONDS, MEASURED_SHARE = 3, 1.0, 0.05
"""How much is measured after the first step to estimate the updates: so many steps and seconds, or this share of the run."""

CENTURY = 100 * 365 * 24 * 3600
"""Seconds. A budget may be larger than any run, and any calendar."""


class RunObserver:
    """Shows and logs the run in `directory`; in all but the main process it does nothing."""

    def __init__(
        self,
        directory: Path,
        budget: Budget,
        health: Health,
        utilized_share: float,
        runtime: Runtime,
        checkpoint_of: Callable[[int], Path],
    ) -> None:
        self.directory = directory
        self.checkpoint_of = checkpoint_of
        self.budget = budget
        self.health = health
        self.utilized_share = utilized_share
        self.runtime = runtime
        self.findings: list[Finding] = []
        self.current: dict[str, int] = {}  # problem -> its place in findings
        self.detail = ""
        self.opened = TrainingState()
        self.last_line = 0.0
        self.log: MetricsLog | None = None
        self.progress = training_progress()
        self.task = TaskID(0)
        self.peak_flops = 0.0
        self.first: TrainingState | None = None
        self.estimated = False

    def started(self, state: TrainingState) -> None:
        """Open the log where the run stands, and the display."""
        if not self.runtime.is_main:
            return
        if state.step:
            log.info(f"resuming from step {state.step:,} ({self.checkpoint_of(state.step)})")
        elif (self.directory / "metrics.jsonl").exists():
            log.info("starting at step 0 again (the run was stopped before its first checkpoint)")
        self.opened = replace(state)
        self.peak_flops = measure_matmul_rate(self.runtime) * self.runtime.world_size
        self.log = MetricsLog(self.directory, state.step)
        for row in read_metrics(self.log.path):  # what an interrupted run has seen belongs into the report too
            step = row.pop("step")
            self.judge(step, min(1.0, self.budget.done(step, row["seconds"], row["flops"])), row)
        if console.is_terminal:
            self.progress.start()
        self.task = self.progress.add_task("training", total=1.0, detail="")

    def stepped(self, state: TrainingState) -> None:
        """Move the display; until the first row of metrics it has the speed to show."""
        if self.runtime.is_main:
            self.estimate(state)
            detail = self.detail or speed(self.opened, state)
            self.progress.update(self.task, completed=self.done(state), detail=f"step {state.step:,} {detail}")

    def estimate(self, state: TrainingState) -> None:
        """Warn once, as soon as the pace is known, where few updates fit into a budget of hours or FLOPs."""
        if self.estimated or self.opened.step or self.budget.steps is not None:
            return
        self.first = self.first or replace(state)
        steps, done = state.step - self.first.step, self.done(state)
        measured = steps >= MEASURED_STEPS and state.seconds >= MEASURED_SECONDS
        if not (measured or (steps and done >= MEASURED_SHARE) or done >= 0.5):
            return
        self.estimated = True
        # The first step is left out where there are others: memory is fetched in it, and code may be compiled.
        share = (done - self.done(self.first)) / steps if steps else done / state.step
        pace = (state.seconds - self.first.seconds) / steps if steps else state.seconds / state.step
        updates = state.step + (1 - done) / max(share, 1e-9)
        if updates < FEW_UPDATES:
            log.warning(
                f"about {format_count(round(updates), 'update')} of {pace:.3g} s will fit into {self.budget}; fewer than "
                f"{FEW_UPDATES:,} teach little more than the frequencies of tokens. Try --preset tiny, a smaller "
                "--training.batch-size or --seq-len, or a larger budget"
            )

    def logged(self, state: TrainingState, metrics: dict[str, float]) -> None:
        """Write a row, say what is wrong, show the losses."""
        if not self.runtime.is_main:
            return
        assert self.log is not None
        metrics["mfu"] = metrics["flops_per_second"] * self.utilized_share / self.peak_flops
        self.log.write(state.step, metrics)
        for finding in self.judge(state.step, self.done(state), metrics):
            log.warning(f"step {finding.step}: {finding.problem}: {finding.advice}")
        self.detail = headline(metrics)
        self.stepped(state)
        if not console.is_terminal and time.monotonic() - self.last_line > LINE_EVERY:
            self.last_line = time.monotonic()
            left = state.seconds / self.done(state) - state.seconds if self.done(state) else 0.0
            console.print(f"  step {state.step:,} {self.detail} · {self.done(state):.0%} done · ETA {clock_time(left)}")

    def judge(self, step: int, done: float, metrics: dict[str, float]) -> list[Finding]:
        """The problems that are new at this step; one that stays is found once, and its last step is kept."""
        found = self.health.check(step, done, metrics)
        new = [finding for finding in found if finding.problem not in self.current]
        for finding in found:
            place = self.current.setdefault(finding.problem, len(self.findings))
            if place == len(self.findings):
                self.findings.append(finding)
            self.findings[place] = replace(self.findings[place], last_step=step)
        self.current = {finding.problem: self.current[finding.problem] for finding in found}
        return new

    def done(self, state: TrainingState) -> float:
        """The share of the run that is over."""
        return min(1.0, self.budget.done(state.step, state.seconds, state.flops))

    def close(self) -> None:
        """Put the display away and flush the log."""
        if console.is_terminal:
            self.progress.stop()
        if self.log is not None:
            self.log.close()


def clock_time(seconds: float) -> str:
    """Hours, minutes and seconds, as a clock has them; days before them."""
    return str(timedelta(seconds=round(seconds))) if seconds < CENTURY else "more than a century"


def speed(before: TrainingState, now: TrainingState) -> str:
    """Tokens a second between two states."""
    return f"{(now.tokens - before.tokens) / (now.seconds - before.seconds):,.0f} tokens/s"


def headline(metrics: dict[str, float]) -> str:
    """The few numbers that matter while a run trains."""
    parts = [f"loss {metrics['loss']:.2f}"]
    if "generator_loss" in metrics:
        parts.append(f"gen {metrics['generator_loss']:.2f}")
    if "auc" in metrics:
        parts.append(f"disc {metrics['discriminator_loss']:.3f} AUC {metrics['auc']:.3f}")
    parts.append(f"{metrics['tokens_per_second']:,.0f} tokens/s")
    return " · ".join(parts)
