"""Callbacks of a pre-training run: utilization, findings about its health, and a warning about small budgets."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from torch import nn

from electra.external import format_count
from electra.pretraining.reporting.diagnostics import Finding, Health
from electra.runtime.setup import Runtime
from electra.runtime.speed import measure_matmul_rate
from electra.train.callbacks import Callback
from electra.train.checkpoint import TrainingState
from electra.train.metrics_log import read_metrics
from electra.train.schedule import Budget

log = logging.getLogger(__name__)


FEW_UPDATES = 500
"""Updates below which only the frequencies of tokens are learned (docs/research/log: context takes thousands)."""
MEASURED_STEPS, MEASURED_SECONDS, MEASURED_SHARE = 3, 1.0, 0.05
"""The pace is known after so many steps and seconds, without the first step, or after this share of the run."""


class Utilization(Callback):
    """Adds `mfu` to the metrics: FLOPs per second as a share of what the devices reach in large matrix products.

    `utilized_share` returns the share of the FLOPs, counted as in Appendix E, that the devices compute.
    """

    def __init__(self, utilized_share: Callable[[], float], runtime: Runtime) -> None:
        self.utilized_share = utilized_share
        self.runtime = runtime

    def on_train_begin(self, module: nn.Module, state: TrainingState) -> None:
        """Measure the speed of the devices."""
        self.peak_flops = measure_matmul_rate(self.runtime) * self.runtime.world_size

    def on_log(self, state: TrainingState, metrics: dict[str, float]) -> None:
        """Add the metric `mfu`."""
        metrics["mfu"] = metrics["flops_per_second"] * self.utilized_share() / self.peak_flops


class HealthMonitor(Callback):
    """Collects findings about each row of metrics, and logs each of them once while it lasts."""

    def __init__(self, directory: Path, budget: Budget, health: Health) -> None:
        self.metrics_path = directory / "metrics.jsonl"
        self.budget = budget
        self.health = health
        self.findings: list[Finding] = []
        self.current: dict[str, int] = {}  # code of a problem that lasts -> its index in findings

    def on_train_begin(self, module: nn.Module, state: TrainingState) -> None:
        """Check the rows before an interruption, which the report contains too."""
        for row in read_metrics(self.metrics_path):
            step = row.pop("step")
            self.check(step, min(1.0, self.budget.compute_progress(step, row["seconds"], row["flops"])), row)

    def on_log(self, state: TrainingState, metrics: dict[str, float]) -> None:
        """Log new findings."""
        for finding in self.check(state.step, self.budget.share(state), metrics):
            log.warning(f"step {finding.step}: {finding.problem}: {finding.advice}", extra={"code": finding.code})

    def check(self, step: int, done: float, metrics: Mapping[str, float]) -> list[Finding]:
        """Find the problems that are new at this step; a problem that lasts is one finding with its last step."""
        found = self.health.check(step, done, metrics)
        new = [finding for finding in found if finding.code not in self.current]
        for finding in found:
            index = self.current.setdefault(finding.code, len(self.findings))
            if index == len(self.findings):
                self.findings.append(finding)
            self.findings[index] = replace(self.findings[index], last_step=step)
        self.current = {finding.code: self.current[finding.code] for finding in found}
        return new


class BudgetWarning(Callback):
    """Warns once, as soon as the pace is known, if few updates fit into a budget of hours or FLOPs."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.first: TrainingState | None = None
        self.active = budget.steps is None

    def on_train_begin(self, module: nn.Module, state: TrainingState) -> None:
        """Skip the check of a resumed run, which was checked when it started."""
        self.active = self.active and state.step == 0

    def on_step_end(self, state: TrainingState) -> None:
        """Estimate the number of updates in the budget, and warn if it is small."""
        if not self.active:
            return
        self.first = self.first or replace(state)
        steps, done = state.step - self.first.step, self.budget.share(state)
        measured = steps >= MEASURED_STEPS and state.seconds >= MEASURED_SECONDS
        if not (measured or (steps and done >= MEASURED_SHARE) or done >= 0.5):
            return
        self.active = False
        # Without the first step if there are others: it allocates memory and may compile code.
        share = (done - self.budget.share(self.first)) / steps if steps else done / state.step
        pace = (state.seconds - self.first.seconds) / steps if steps else state.seconds / state.step
        updates = state.step + (1 - done) / max(share, 1e-9)
        if updates < FEW_UPDATES:
            log.warning(
                f"about {format_count(round(updates), 'update')} of {pace:.3g} s will fit into {self.budget}; fewer than "
                f"{FEW_UPDATES:,} train little more than the frequencies of tokens. Try a smaller model, a smaller "
                "--training.batch-size or --seq-len, or a larger budget",
                extra={"code": "few-steps"},
            )


def format_headline(metrics: Mapping[str, float]) -> str:
    """Format the most important metrics for the progress bar."""
    parts = [f"loss {metrics['loss']:.2f}"]
    if "generator_loss" in metrics:
        parts.append(f"gen {metrics['generator_loss']:.2f}")
    detection = {"discriminator_loss": "disc", "auc": "AUC"}  # the loss of another target has another name
    if found := [f"{label} {metrics[name]:.3f}" for name, label in detection.items() if name in metrics]:
        parts.append(" ".join(found))
    parts.append(f"{metrics['tokens_per_second']:,.0f} tokens/s")
    return " · ".join(parts)
