"""Cost of a study: FLOPs and steps by formula, time by measured steps; the budget for a number of hours."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from electra.console import reading_progress
from electra.errors import UsageError
from electra.external import format_count
from electra.finetuning.classification.task import TextClassification
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.preparation import resolve_hyperparameters
from electra.finetuning.registry import TASKS
from electra.model.encoder import EncoderConfig
from electra.pretraining.config import PretrainConfig
from electra.runtime.setup import RuntimeConfig
from electra.studies.compute import Step, measure_finetuning_step, measure_step
from electra.studies.study import Study, Variant
from electra.studies.trial import get_finetuning_length

log = logging.getLogger(__name__)

TOKENS_PER_WORD = 1.4
"""Approximate, for a vocabulary of some thousand tokens."""
LENGTHS = (16, 32, 64, 128)
"""Lengths at which a fine-tuning step is timed; for a task, the first one that is at least its mean length."""


@dataclass(frozen=True)
class VariantCost:
    """Cost of a run of a variant."""

    variant: Variant
    runs: int
    """Seeds that are not finished."""
    step: Step
    steps: float
    finetuning_seconds: float

    @property
    def flops(self) -> float:
        """FLOPs of pre-training."""
        return self.steps * self.step.flops

    @property
    def seconds(self) -> float:
        """Seconds of pre-training."""
        return self.steps * self.step.seconds


@dataclass(frozen=True)
class Plan:
    """Cost of the unfinished part of a study."""

    study: Study
    rows: tuple[VariantCost, ...]
    workers: int

    @property
    def training_hours(self) -> float:
        """Hours of pre-training for the grid, with `workers` trials at a time."""
        return self._hours(sum((row.runs * row.seconds for row in self.rows), 0.0))

    @property
    def finetuning_hours(self) -> float:
        """Hours of fine-tuning for the grid, with `workers` trials at a time."""
        return self._hours(sum((row.runs * row.finetuning_seconds for row in self.rows), 0.0))

    def _hours(self, seconds: float) -> float:
        return seconds / 3600 / self.workers

    def build_rows(self) -> list[dict[str, Any]]:
        """Build a row for each variant."""
        return [
            {
                "variant": row.variant.name,
                "runs": row.runs,
                "flops": row.flops,
                "steps": row.steps,
                "step_seconds": row.step.seconds,
                "seconds": row.seconds,
                "finetuning_seconds": row.finetuning_seconds,
            }
            for row in self.rows
        ]


class StepTimer:
    """Times one step per configuration."""

    def __init__(self, device: RuntimeConfig) -> None:
        self.device = device
        self.steps: dict[PretrainConfig, Step] = {}
        self.finetuning_steps: dict[tuple[EncoderConfig, int], float] = {}

    def step(self, config: PretrainConfig) -> Step:
        """Time an update of pre-training."""
        if config not in self.steps:
            self.steps[config] = measure_step(replace(config, runtime=self.device))
        return self.steps[config]

    def finetuning_seconds(self, task: TextClassification, pretraining: PretrainConfig) -> float:
        """Estimate the seconds of one fine-tuning run, at the mean length of the task's examples."""
        config, examples = FinetuneConfig(task=task.name), task.read("train")
        texts = [examples.first, *([examples.second] if examples.second is not None else [])]
        words = sum(len(text.split()) for column in texts for text in column) / len(examples)
        length = next((each for each in LENGTHS if each >= words * TOKENS_PER_WORD), LENGTHS[-1])
        model = pretraining.model
        key = (model, min(length, get_finetuning_length(pretraining)))
        if key not in self.finetuning_steps:
            self.finetuning_steps[key] = measure_finetuning_step(*key, config.batch_size, self.device)
        rows = len(examples) * (2 if task.swap_pairs else 1)
        epochs = resolve_hyperparameters(config, TASKS[task.name], model, rows).epochs
        return self.finetuning_steps[key] * epochs * rows / config.batch_size


def make_plan(
    study: Study,
    runs: Mapping[str, int],
    tasks: Mapping[str, TextClassification],
    finetune_seeds: int,
    workers: int,
    watch: StepTimer,
) -> Plan:
    """Estimate the cost of each variant with unfinished `runs` from a measured step and its share of the budget."""
    rows: list[VariantCost] = []
    left = [variant for variant in study.variants if runs.get(variant.name)]
    with reading_progress("timing steps", len(left)) as progress:
        for variant in left:
            progress(len(rows), variant.name)
            step, target = watch.step(variant.config), study.target(variant)
            steps = 1.0 if target is None else target / step.flops if study.equal == "flops" else target
            scored = tasks.values() if finetune_seeds else ()
            finetuning = finetune_seeds * sum((watch.finetuning_seconds(task, variant.config) for task in scored), 0.0)
            rows.append(VariantCost(variant, runs[variant.name], step, max(1.0, steps), finetuning))
    return Plan(study, tuple(rows), workers)


def compute_budget(plan: Plan, hours: float) -> float:
    """Compute the budget with which the study takes `hours`.

    Raises:
        UsageError: fine-tuning alone takes longer.
    """
    finetuning_hours = plan.finetuning_hours
    if hours <= finetuning_hours:
        raise UsageError(
            "too-few-hours",
            f"--hours {hours:g}: fine-tuning alone takes about {finetuning_hours:.2g} h; "
            "give more hours, or fewer --tasks, --seeds or --variants",
        )
    budget = plan.study.budget * (hours - finetuning_hours) / plan.training_hours
    return float(f"{budget:.3g}") if plan.study.equal == "flops" else float(max(1, round(budget)))


def log_plan(plan: Plan) -> None:
    """Log number and duration of the unfinished runs."""
    if not plan.rows:
        log.info(f"{plan.study.title}: all runs are done", extra={"code": "study-done"})
        return
    size = f"{format_count(len(plan.rows), 'variant')}, {format_count(sum(row.runs for row in plan.rows), 'run')}"
    log.info(f"{plan.study.title}: {size} to do", extra={"code": "study"})
    total = plan.training_hours + plan.finetuning_hours
    log.info(
        f"About {total:.2f} h with {plan.workers} at a time: {plan.training_hours:.2f} h of pre-training, "
        f"{plan.finetuning_hours:.2f} h of fine-tuning, estimated from steps timed one at a time; probes not included.",
        extra={"code": "time-estimate"},
    )


def format_plan(plan: Plan) -> list[list[str]]:
    """Format the plan as a table: a heading, then a row for each variant; empty if all runs are finished."""
    rows = [["variant", "runs", "FLOPs", "steps", "ms per step", "pre-training", "fine-tuning"]]
    for row in plan.rows:
        cells = (str(row.runs), f"{row.flops:.3g}", f"{row.steps:,.0f}", f"{1000 * row.step.seconds:.1f}")
        rows.append(
            [row.variant.name, *cells, *(format_minutes(each) for each in (row.seconds, row.finetuning_seconds))]
        )
    return rows if plan.rows else []


def format_minutes(seconds: float) -> str:
    """Format a duration as seconds, minutes or hours."""
    return (
        f"{seconds:.0f} s"
        if seconds < 90
        else f"{seconds / 60:.1f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
    )
