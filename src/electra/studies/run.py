"""A study from text and tasks to its table and figure. What is there already is not done again.

OUT/study.json      what is compared and with which budget; another study does not fit in here
OUT/tokenizer/ data/ where text was given
OUT/runs/ finetuned/ cells/ logs/   see studies.cell
OUT/results.csv     a row for every variant and seed
OUT/table.md figure.png figure.svg  written anew after each cell, with what is there so far
"""

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, FiniteFloat
from typing_extensions import TypedDict

from electra.config.checks import check_choice, check_limits
from electra.console import format_count
from electra.errors import RunError, UsageError
from electra.finetuning.benchmark.grid import COLUMNS
from electra.finetuning.classification.task import TextClassification
from electra.pretraining.run_directory import RunDirectory
from electra.runtime.setup import RuntimeConfig
from electra.schema import read_json
from electra.storage import LOCK, exclusive, holds_files, write_atomically
from electra.studies.catalog import STUDIES
from electra.studies.inputs import check_tasks, fitted, shared_data
from electra.studies.plan import Plan, Stopwatch, budget_for, log_plan, minutes, plan_rows, planned
from electra.studies.probing.tags import tagged_splits
from electra.studies.processes import run_cells
from electra.studies.reporting.figures import write_figures
from electra.studies.reporting.results import Results, average, best_probe, best_tags, csv_rows, finetuned, to_csv
from electra.studies.reporting.table import summary_rows, to_markdown
from electra.studies.scales import SCALES, Scale
from electra.studies.study import Published, Study, Variant, with_rates
from electra.studies.trial import EvalConfig, Trial
from electra.text.corpus import BUILTIN

log = logging.getLogger(__name__)


STUDY = "study.json"


class StudyRecord(TypedDict):
    """What is needed of `study.json`; the rest is compared with what is asked for."""

    budget: Annotated[FiniteFloat, Field(gt=0)]


@dataclass(frozen=True)
class StudyConfig:
    """What is asked for; `electra.study` explains it."""

    name: str
    data: str
    glue: str
    out: Path
    scale: str
    seeds: int
    hours: float | None
    tasks: tuple[str, ...]
    variants: tuple[str, ...]
    finetune_seeds: int
    workers: int
    rates: Mapping[str, float] = field(default_factory=dict)
    tags: str | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"

    def __post_init__(self) -> None:
        check_choice("NAME", self.name, STUDIES)
        check_choice("--scale", self.scale, SCALES)
        for name, least in {"seeds": 1, "finetune_seeds": 0, "workers": 1}.items():
            if getattr(self, name) < least:
                raise UsageError(f"--{name.replace('_', '-')} is {getattr(self, name)}; it must be at least {least}")
        check_limits(self, "--", seeds=10**4, finetune_seeds=10**4, workers=10**4, hours=10**6)
        if self.hours is not None and not self.hours > 0:
            raise UsageError(f"--hours is {self.hours:g}; it must be more than 0")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise UsageError("--device is cuda, but PyTorch sees no GPU here; use auto or cpu")

    @cached_property  # for timing a step as a cell takes it leaves this process with a cell's threads
    def runtime(self) -> RuntimeConfig:
        """Where cells run: several at a time share the cores."""
        threads = None if self.workers == 1 else max(1, torch.get_num_threads() // self.workers)
        return RuntimeConfig(self.device, self.precision, threads)


def run_study(order: StudyConfig, dry_run: bool = False) -> dict[str, Any]:
    """Run a study, or what is left of it to do; or only say what it will cost. Returns the budget and the rows.

    Raises:
        ElectraError: see `electra.errors`. A cell that fails does not raise: its row says why.
        RunError: the directory holds another study, or runs of another configuration or probed by other tags; another
            process works on it.
        SystemExit: a signal asked to stop; the same call goes on.
    """
    with nullcontext() if dry_run else exclusive(order.out, order.out / LOCK, log.warning):
        return _run_study(order, dry_run)


def _run_study(order: StudyConfig, dry_run: bool) -> dict[str, Any]:
    scale = fitted(SCALES[order.scale](), order.data, order.out)
    tasks = check_tasks(order.tasks or scale.tasks, order.glue)
    if order.tags is not None:
        tagged_splits(order.tags)  # before anything is trained
    study = with_rates(STUDIES[order.name](scale), order.rates)
    chosen = chosen_variants(study, order.variants)
    known = standing_study(order)
    if known is not None:
        study = replace(study, budget=known)
    if dry_run or (known is None and order.hours is not None):
        watch = Stopwatch(order.runtime)
        plan = plan_of(order, study, chosen, tasks, watch)
        if known is None and order.hours is not None:
            study = replace(study, budget=budget_for(plan, order.hours))
            plan = plan_of(order, study, chosen, tasks, watch)
        log_plan(plan)
        if dry_run:
            hours = plan.training_hours + plan.finetuning_hours
            return {"budget": study.budget, "hours": hours, "rows": plan.facts(), "summary": plan_rows(plan)}
    if known is None:
        write_atomically(order.out / STUDY, (json.dumps(facts(order, study), indent=2) + "\n").encode())
    return run_grid(order, study, chosen, scale, tuple(tasks))


def plan_of(
    order: StudyConfig,
    study: Study,
    chosen: Sequence[Variant],
    tasks: Mapping[str, TextClassification],
    watch: Stopwatch,
) -> Plan:
    """What the cells that are not finished will cost; one that has begun is counted whole."""
    scoring = scoring_of(order, tuple(tasks))
    runs = {
        variant.name: sum(
            not build_trial(study, variant, seed, order, order.data, scoring).is_finished()
            for seed in range(order.seeds)
        )
        for variant in chosen
    }
    return planned(study, runs, tasks, order.finetune_seeds, order.workers, watch)


def scoring_of(order: StudyConfig, tasks: tuple[str, ...]) -> EvalConfig:
    """What every cell is scored on."""
    return EvalConfig(order.glue, tasks, order.finetune_seeds, tags=order.tags and located(order.tags))


def run_grid(
    order: StudyConfig, study: Study, chosen: Sequence[Variant], scale: Scale, tasks: tuple[str, ...]
) -> dict[str, Any]:
    """Run the cells that are not finished, and write what all of them have found."""
    data = shared_data(scale, order.data, order.out)
    scoring = scoring_of(order, tasks)
    trials = {
        variant.name: [
            build_trial(study, variant, seed, order, data, scoring)
            for seed in seeds_of(order.out, variant, order.seeds)
        ]
        for variant in study.variants
    }
    for trial in (each for row in trials.values() for each in row):
        RunDirectory(trial.run).check(trial.config)
        check_tags(trial)
    names = {variant.name for variant in chosen}
    # Seed by seed, so that what is there so far compares all variants.
    wanted = sorted(
        (trial for name in trials if name in names for trial in trials[name] if trial.config.seed < order.seeds),
        key=lambda trial: trial.config.seed,
    )
    left = [trial for trial in wanted if not trial.is_finished()]
    log.info(f"{study.title}: {format_count(len(wanted), 'run')}, {len(left)} to do (results in {order.out})")

    def collected() -> Results:
        results = Results.collect(study, order.scale, scored_tasks(trials, tasks), trials)
        write_results(results, order.out)
        return results

    def started(trial: Trial) -> None:
        log.info(f"{trial.name} begins (log in {trial.log})")

    def ended(trial: Trial) -> None:
        collected()
        record = trial.record() or {}
        if "failed" in record:
            log.warning(f"{trial.name} failed: {record['failed']}")
        elif trial.is_finished():
            log.info(f"{trial.name}: {told(record, tasks)}")
        else:
            log.warning(f"{trial.name} was stopped before it was done; the same command goes on with it")
        done = sum(each.is_finished() for each in wanted)
        log.info(f"{done} of {len(wanted)} done")

    run_cells(left, order.workers, started, ended)
    results = collected()
    log.info(f"table in {order.out / 'table.md'}, rows in results.csv, figure in figure.png")
    failed = [trial.name for trial in wanted if not trial.is_finished()]
    return {"budget": study.budget, "rows": list(csv_rows(results)), "summary": summary_rows(results), "failed": failed}


def check_tags(trial: Trial) -> None:
    """Raise a RunError if the cell's tags were of another folder: they would not compare."""
    wanted = trial.scoring.tags
    found = (trial.record() or {}).get("tags", {}).get("folder", wanted)
    if wanted not in (None, found):
        raise RunError(f"{trial.out}: its tags are of {found}, not of {wanted}; choose another --out")


def scored_tasks(trials: Mapping[str, Sequence[Trial]], wanted: Sequence[str]) -> tuple[str, ...]:
    """The tasks that are wanted, and those that an earlier call has scored, in GLUE's order."""
    recorded = (trial.record() or {} for row in trials.values() for trial in row)
    known = {task for record in recorded for task in record.get("probed", {})}
    return tuple(task for task in COLUMNS if task in known.union(wanted))


def told(record: Mapping[str, Any], tasks: Sequence[str]) -> str:
    """A cell's scores in a few words."""
    scores = {"GLUE": average(finetuned, tasks), "probe": average(best_probe, tasks), "tags": best_tags}
    parts = [f"{name} {value:.1f}" for name, score in scores.items() if (value := score(record)) is not None]
    return ", ".join([*parts, f"{record['flops']:.3g} FLOPs in {minutes(record['seconds'])}"])


def build_trial(study: Study, variant: Variant, seed: int, order: StudyConfig, data: str, scoring: EvalConfig) -> Trial:
    """A variant with a seed."""
    config = study.configured(variant)
    training = replace(config.training, keep_checkpoints=1)
    return Trial(
        order.out,
        variant.name,
        replace(config, data=data, seed=seed, training=training, runtime=order.runtime),
        scoring,
    )


def seeds_of(out: Path, variant: Variant, wanted: int) -> list[int]:
    """The seeds that are wanted, and those that an earlier call has run."""
    found = [path.stem.rpartition("-")[2] for path in (out / "cells").glob(f"{variant.name}-seed-*.json")]
    return sorted({*range(wanted), *(int(seed) for seed in found if seed.isdigit())})


def write_results(results: Results, out: Path) -> None:
    """The table, the rows, the figure."""
    write_atomically(out / "results.csv", to_csv(results).encode())
    write_atomically(out / "table.md", to_markdown(results).encode())
    write_figures(results, out)


def chosen_variants(study: Study, names: Sequence[str]) -> tuple[Variant, ...]:
    """The variants of these names, or all.

    Raises:
        UsageError: there is no such variant.
    """
    known = {variant.name: variant for variant in study.variants}
    for name in names:
        if name not in known:
            raise UsageError(f"{study.name} has no variant {name!r}; there are {', '.join(known)}")
    return tuple(known[name] for name in dict.fromkeys(names)) or study.variants


def facts(order: StudyConfig, study: Study) -> dict[str, Any]:
    """What decides what the runs of a study are."""
    return {
        "study": order.name,
        "scale": order.scale,
        "data": located(order.data),
        "glue": located(order.glue),
        "rates": dict(order.rates),
        "equal": study.equal,
        "budget": study.budget,
        "hours": order.hours,
    }


def located(place: str) -> str:
    """A path from the root; a name on the hub as it is."""
    return place if place == BUILTIN or place.startswith("hf://") else str(Path(place).absolute())


def standing_study(order: StudyConfig) -> float | None:
    """The budget of the study that was begun in the directory; None where it is new or empty.

    Raises:
        RunError: another study stands there, or other files do.
    """
    path = order.out / STUDY
    if not path.exists():
        if holds_files(order.out) or order.out.is_file():
            raise RunError(f"{order.out}: not empty and not a study; choose another --out")
        return None
    saved = read_json(path, StudyRecord, RunError)
    now = facts(order, Study("", "", (), Published("")))
    for name in ("study", "scale", "data", "glue", "rates", *(["hours"] if order.hours is not None else [])):
        if saved.get(name, now[name]) != now[name]:
            raise RunError(f"{order.out}: its {name} is {saved.get(name)}, not {now[name]}; choose another --out")
    return saved["budget"]
