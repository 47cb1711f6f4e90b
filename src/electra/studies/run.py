"""Run a study: data preparation, trials, table, figure. Finished parts are not repeated.

OUT/study.json      configuration and budget (studies.config)
OUT/tokenizer/ data/                 prepared text
OUT/runs/ finetuned/ trials/ logs/   see studies.trial
OUT/results.csv     a row per variant and seed
OUT/table.md figure.png figure.svg   rewritten after each trial
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from electra.errors import RunError, UsageError
from electra.external import format_count
from electra.finetuning.benchmark.score_table import COLUMNS
from electra.finetuning.classification.task import TextClassification
from electra.pretraining.evaluation.minimal_pairs import read_minimal_pairs
from electra.pretraining.run_directory import RunDirectory
from electra.storage import LOCK, lock_output, write_atomically
from electra.studies.catalog import STUDIES
from electra.studies.config import TRIALS, StudyConfig, load_budget, save_study
from electra.studies.inputs import check_tasks, fit_scale_to_data, prepare_shared_data
from electra.studies.instruments import INSTRUMENTS, EvalConfig
from electra.studies.plan import Plan, StepTimer, compute_budget, format_minutes, format_plan, log_plan, make_plan
from electra.studies.probing.tags import read_tagged_splits
from electra.studies.reporting.figures import write_figures
from electra.studies.reporting.results import Results, build_csv_rows, to_csv
from electra.studies.reporting.scores import (
    average,
    extract_best_pairs,
    extract_best_probe,
    extract_best_tags,
    extract_finetuned,
)
from electra.studies.reporting.table import build_summary_rows, to_markdown
from electra.studies.scales import SCALES, Scale
from electra.studies.study import Study, Variant, set_learning_rates
from electra.studies.trial import Trial
from electra.studies.trial_processes import run_trials
from electra.text.corpus import make_absolute

log = logging.getLogger(__name__)


def run_study(study_config: StudyConfig, dry_run: bool = False) -> dict[str, Any]:
    """Run the unfinished trials of a study, or with `dry_run` only plan them; return the budget and the rows.

    Raises:
        ElectraError: see `electra.errors`. A failed trial does not raise: its row has the reason.
        RunError: the directory has another study, or runs of another configuration or probed with other tags; another
            process uses it.
        SystemExit: stopped by a signal; the same call continues.
    """
    with nullcontext() if dry_run else lock_output(study_config.out, study_config.out / LOCK):
        return _run_study(study_config, dry_run)


def _run_study(study_config: StudyConfig, dry_run: bool) -> dict[str, Any]:
    scale = fit_scale_to_data(SCALES[study_config.scale](), study_config.data, study_config.out)
    tasks = check_tasks(study_config.tasks or scale.tasks, study_config.glue)
    if study_config.tags is not None:
        read_tagged_splits(study_config.tags)  # raises errors before training
    read_minimal_pairs([Path(file) for file in study_config.minimal_pairs])
    study = set_learning_rates(STUDIES[study_config.name](scale), study_config.rates)
    chosen = select_variants(study, study_config.variants)
    study = replace(study, budget=study.budget * study_config.share)
    known = load_budget(study_config)
    if known is not None:
        study = replace(study, budget=known)
    if dry_run or (known is None and study_config.hours is not None):
        watch = StepTimer(study_config.runtime)
        plan = plan_study(study_config, study, chosen, tasks, watch)
        if known is None and study_config.hours is not None:
            study = replace(study, budget=compute_budget(plan, study_config.hours))
            plan = plan_study(study_config, study, chosen, tasks, watch)
        log_plan(plan)
        if dry_run:
            hours = plan.training_hours + plan.finetuning_hours
            return {"budget": study.budget, "hours": hours, "rows": plan.build_rows(), "summary": format_plan(plan)}
    if known is None:
        save_study(study_config, study)
    return run_grid(study_config, study, chosen, scale, tuple(tasks))


def plan_study(
    study_config: StudyConfig,
    study: Study,
    chosen: Sequence[Variant],
    tasks: Mapping[str, TextClassification],
    watch: StepTimer,
) -> Plan:
    """Estimate the cost of the unfinished trials; a trial in progress counts in full."""
    eval_config = build_eval_config(study_config, tuple(tasks))
    runs = {
        variant.name: sum(
            not build_trial(study, variant, seed, study_config, study_config.data, eval_config).is_finished()
            for seed in range(study_config.seeds)
        )
        for variant in chosen
    }
    return make_plan(study, runs, tasks, study_config.finetune_seeds, study_config.workers, watch)


def build_eval_config(study_config: StudyConfig, tasks: tuple[str, ...]) -> EvalConfig:
    """Build the evaluation settings that all trials share."""
    return EvalConfig(
        study_config.glue,
        tasks,
        study_config.finetune_seeds,
        tags=study_config.tags and make_absolute(study_config.tags),
        minimal_pairs=tuple(map(make_absolute, study_config.minimal_pairs)),
    )


def run_grid(
    study_config: StudyConfig, study: Study, chosen: Sequence[Variant], scale: Scale, tasks: tuple[str, ...]
) -> dict[str, Any]:
    """Run the unfinished trials; write the results of all trials."""
    data = prepare_shared_data(scale, study_config.data, study_config.out)
    eval_config = build_eval_config(study_config, tasks)
    trials = {
        variant.name: [
            build_trial(study, variant, seed, study_config, data, eval_config)
            for seed in find_seeds(study_config.out, variant, study_config.seeds)
        ]
        for variant in study.variants
    }
    for trial in (each for row in trials.values() for each in row):
        RunDirectory(trial.run).check(trial.config)
        check_sources(trial)
    names = {variant.name for variant in chosen}
    # Seed by seed, so that partial results compare all variants.
    requested = sorted(
        (trial for name in trials if name in names for trial in trials[name] if trial.config.seed < study_config.seeds),
        key=lambda trial: trial.config.seed,
    )
    left = [trial for trial in requested if not trial.is_finished()]
    log.info(
        f"{study.title}: {format_count(len(requested), 'run')}, {len(left)} to do (results in {study_config.out})",
        extra={"code": "study"},
    )

    def collect_and_write() -> Results:
        results = Results.collect(study, study_config.scale, list_scored_tasks(trials, tasks), trials)
        write_results(results, study_config.out)
        return results

    def on_start(trial: Trial) -> None:
        log.info(f"{trial.name} started (log: {trial.log})", extra={"code": "trial-started"})

    def on_end(trial: Trial) -> None:
        collect_and_write()
        record = trial.record() or {}
        if "failed" in record:
            log.warning(f"{trial.name} failed: {record['failed']}", extra={"code": "trial-failed"})
        elif trial.is_finished():
            log.info(f"{trial.name}: {format_scores(record, tasks)}", extra={"code": "trial-score"})
        else:
            log.warning(
                f"{trial.name} was stopped before its end; repeat the command to continue it",
                extra={"code": "trial-stopped"},
            )
        done = sum(each.is_finished() for each in requested)
        log.info(f"{done} of {len(requested)} done", extra={"code": "trials-done"})

    run_trials(left, study_config.workers, on_start, on_end)
    results = collect_and_write()
    log.info(
        f"table in {study_config.out / 'table.md'}, rows in results.csv, figure in figure.png", extra={"code": "table"}
    )
    failed = [trial.name for trial in requested if not trial.is_finished()]
    return {
        "budget": study.budget,
        "rows": list(build_csv_rows(results)),
        "summary": build_summary_rows(results),
        "failed": failed,
    }


def check_sources(trial: Trial) -> None:
    """Raise a RunError if the trial was scored on other data, because scores would not be comparable."""
    record = trial.record() or {}
    for name, instrument in INSTRUMENTS.items():
        if name not in record or not instrument.is_requested(trial.eval_config):
            continue
        found, requested = record[name]["source"], instrument.source(trial.eval_config)
        if requested != found:
            raise RunError(
                "other-data", f"{trial.out}: its {name} are from {found}, not from {requested}; choose another --out"
            )


def list_scored_tasks(trials: Mapping[str, Sequence[Trial]], requested: Sequence[str]) -> tuple[str, ...]:
    """List the requested tasks and those that a previous call has scored, in GLUE's order."""
    recorded = (trial.record() or {} for row in trials.values() for trial in row)
    known = {task for record in recorded for task in record.get("probed", {})}
    return tuple(task for task in COLUMNS if task in known.union(requested))


def format_scores(record: Mapping[str, Any], tasks: Sequence[str]) -> str:
    """Format the scores of a trial for the log."""
    scores = {
        "GLUE": average(extract_finetuned, tasks),
        "probe": average(extract_best_probe, tasks),
        "tags": extract_best_tags,
        "pairs": extract_best_pairs,
    }
    parts = [f"{name} {value:.1f}" for name, score in scores.items() if (value := score(record)) is not None]
    return ", ".join([*parts, f"{record['flops']:.3g} FLOPs in {format_minutes(record['seconds'])}"])


def build_trial(
    study: Study, variant: Variant, seed: int, study_config: StudyConfig, data: str, eval_config: EvalConfig
) -> Trial:
    """Build the trial of a variant and a seed."""
    config = study.build_config(variant)
    training = replace(config.training, keep_checkpoints=1)
    return Trial(
        study_config.out,
        variant.name,
        replace(config, data=data, seed=seed, training=training, runtime=study_config.runtime),
        eval_config,
    )


def find_seeds(out: Path, variant: Variant, num_seeds: int) -> list[int]:
    """Return the seeds below `num_seeds` and those that a previous call has run."""
    found = [path.stem.rpartition("-")[2] for path in (out / TRIALS).glob(f"{variant.name}-seed-*.json")]
    return sorted({*range(num_seeds), *(int(seed) for seed in found if seed.isdigit())})


def write_results(results: Results, out: Path) -> None:
    """Write table.md, results.csv and the figure."""
    write_atomically(out / "results.csv", to_csv(results).encode())
    write_atomically(out / "table.md", to_markdown(results).encode())
    write_figures(results, out)


def select_variants(study: Study, names: Sequence[str]) -> tuple[Variant, ...]:
    """Select variants by name; without names, all.

    Raises:
        UsageError: no such variant.
    """
    known = {variant.name: variant for variant in study.variants}
    for name in names:
        if name not in known:
            raise UsageError("unknown-variant", f"{study.name} has no variant {name!r}; there are {', '.join(known)}")
    return tuple(known[name] for name in dict.fromkeys(names)) or study.variants
