"""Fine-tuning runs, one per seed: load, train by the paper's recipe, score, save. An interrupted run resumes."""

import copy
import json
import logging
import signal
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from electra.config.checks import check_number
from electra.config.files import flatten, to_yaml
from electra.errors import DivergedError, UsageError
from electra.execution import enable_kernels
from electra.external import format_count
from electra.finetuning.batching import BatchLoader
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.hub import find_model_directory
from electra.finetuning.model import FinetunedModel
from electra.finetuning.preparation import PreparedInputs, prepare_inputs
from electra.finetuning.recipe import build_rate_factor
from electra.finetuning.registry import check_options
from electra.finetuning.reporting.report import write_report
from electra.finetuning.run_directory import (
    InputChecksums,
    get_medians,
    make_paths_absolute,
    read_results,
    summarize,
)
from electra.finetuning.seed import Run, remove_leftovers, score_and_save
from electra.finetuning.training.best_epoch import BestEpoch
from electra.finetuning.training.dev_scores import DevScores
from electra.finetuning.training.failed_seeds import compute_last_loss, has_failed
from electra.model.initialization import initialize
from electra.runtime.setup import Runtime, start_runtime
from electra.runtime.signals import stop_on_signal
from electra.seeding import Stream, seed_everything
from electra.storage import LOCK, lock_output, write_atomically
from electra.train.callbacks import Callback
from electra.train.checkpoint import Checkpoints
from electra.train.config import Recipe, TrainingConfig
from electra.train.loop import train
from electra.train.metrics_log import MetricsLog, read_metrics
from electra.train.optimizer import OptimizerConfig, freeze_parameters
from electra.train.progress import Progress
from electra.train.schedule import Budget, ScheduleConfig
from electra.train.trackers import build_trackers, require_trackers

log = logging.getLogger(__name__)


def finetune(config: FinetuneConfig, out: Path, seeds: int = 1, callbacks: Sequence[Callback] = ()) -> dict[str, Any]:
    """Fine-tune once per seed, `config.seed` to `config.seed + seeds - 1`, in the run directories `out/seed-N`.

    Finished runs are not repeated, and an interrupted one resumes from its checkpoint.

    Returns:
        The summary (see `summarize`), which is also written to `out/results.json`.

    Raises:
        UsageError, ModelError, DataError, RunError, DivergedError, SystemExit: as in `electra.finetune`.
        StorageError: a file cannot be written.
    """
    check_options(config)
    require_trackers(config.log_to)
    check_number("--seeds", seeds, at_least=1)
    with lock_output(out, out / LOCK):
        results, failed = run_seeds(config, out, seeds, callbacks)
        summary = summarize(results) | {"failed_seeds": failed}
        if config.baseline == "random" and not config.from_scratch:
            untrained = replace(config, from_scratch=True, baseline="none", retry_failed_seeds=0)
            random_weights = summarize(run_seeds(untrained, out / "random-weights", seeds)[0])
            summary["baselines"]["random weights"] = get_medians(random_weights)
        write_atomically(out / "results.json", (json.dumps(summary, indent=2) + "\n").encode())
        log.info(f"report: {write_report(out, results, summary)}", extra={"code": "report"})
    return summary


def run_seeds(
    config: FinetuneConfig, out: Path, seeds: int, callbacks: Sequence[Callback] = ()
) -> tuple[list[dict[str, Any]], list[int]]:
    """Run every seed, and others in place of those that failed; see `training.failed_seeds`.

    The common inputs are read once, or never if all runs are finished. The seeds of further runs follow after the last one, so
    that a repeated call finds the same runs.

    Returns:
        The results of `seeds` runs, and the seeds that failed and are not among them.
    """
    config = make_paths_absolute(config)
    directory = find_model_directory(config.model)
    checksums = InputChecksums.from_config(config, directory)
    get_inputs = cache(lambda: prepare_inputs(config, directory))
    following, failed = count(config.seed + seeds), []

    def run(seed: int) -> dict[str, Any]:
        return run_seed(replace(config, seed=seed), out / f"seed-{seed}", checksums, get_inputs, callbacks)

    results = []
    for seed in range(config.seed, config.seed + seeds):
        result = run(seed)
        for _ in range(config.retry_failed_seeds):
            if not has_failed(result):
                break
            failed.append(result["seed"])
            other = next(following)
            log.warning(
                f"seed {result['seed']} failed: its training loss {result['training_loss']:.4f} is not below that of a "
                f"constant prediction, {result['chance_loss']:.4f}; seed {other} takes its place",
                extra={"code": "failed-seed"},
            )
            result = run(other)
        results.append(result)
    return results, failed


def run_seed(
    config: FinetuneConfig,
    out: Path,
    checksums: InputChecksums,
    get_inputs: Callable[[], PreparedInputs],
    callbacks: Sequence[Callback],
) -> dict[str, Any]:
    """Run one seed in the run directory `out`, unless it is finished, and return its results (see `run_directory`)."""
    checksums.check(out, config)
    if (out / "results.json").exists():
        log.info(f"{out} is finished", extra={"code": "finished"})
        remove_leftovers(out)
        return read_results(out)
    with start_runtime(config.runtime) as runtime:
        if runtime.world_size > 1:
            raise UsageError("many-processes", "fine-tuning runs in one process; start it without torchrun")
        run = build_run(config, out, get_inputs(), runtime)
        recipe = build_recipe(run)
        loader = BatchLoader(
            run.prepared.examples["train"],
            batch_size=config.batch_size,
            pad_id=run.prepared.tokenizer.pad_id,
            seed=config.seed,
        )
        # The directory is written only from here on, when options and data have been checked.
        write_atomically(out / "inputs.json", checksums.to_json())
        write_atomically(out / "config.yaml", to_yaml(config).encode())
        return score_and_save(run, train_model(run, recipe, loader, callbacks))


def build_run(config: FinetuneConfig, out: Path, prepared: PreparedInputs, runtime: Runtime) -> Run:
    """Build the run of a seed: a copy of the encoder, and a newly initialized head."""
    encoder = copy.deepcopy(prepared.encoder)
    seed_everything(Stream.INITIAL_WEIGHTS, config.seed)
    model = FinetunedModel(encoder, prepared.task.build_head(encoder.config), config.summed_loss)
    if config.from_scratch:
        initialize(encoder, encoder.config.initializer_range, encoder.config.embedding_initializer_range)
    if number := freeze_parameters(model, config.freeze):
        log.info(f"{number:,} parameters are frozen", extra={"code": "frozen"})
    enable_kernels(model, runtime)
    return Run(config, out, prepared, model.to(runtime.device), runtime)


def build_recipe(run: Run) -> Recipe:
    """Build the recipe of the training loop."""
    config, hyperparameters = run.config, run.prepared.hyperparameters
    steps_per_epoch = -(-len(run.prepared.examples["train"]) // config.batch_size)
    steps = max(1, round(hyperparameters.epochs * steps_per_epoch))
    return Recipe(
        Budget(steps=steps),
        TrainingConfig(batch_size=config.batch_size, log_every=20, keep_checkpoints=1),
        OptimizerConfig(
            learning_rate=hyperparameters.learning_rate,
            weight_decay=config.weight_decay,
            bias_correction=config.bias_correction,
        ),
        ScheduleConfig(warmup_steps=round(config.warmup * steps), max_warmup=0.999),
        (config.seed,),
        build_rate_factor(hyperparameters.layerwise_decay, run.model.encoder.config.num_layers),
    )


def train_model(run: Run, recipe: Recipe, loader: BatchLoader, callbacks: Sequence[Callback]) -> dict[str, Any]:
    """Train, select the weights to save, and return entries of the results: `selected`, `steps`, `seconds`, `training_loss`.

    Raises:
        DivergedError: the gradients are not finite.
        SystemExit: a signal stopped the training; the exit status is 128 plus the signal's number.
    """
    config, hyperparameters, steps = run.config, run.prepared.hyperparameters, recipe.budget.steps or 0
    log.info(
        f"{config.task}: {format_count(len(run.prepared.examples['train']), 'example')}, {hyperparameters.epochs:g} epochs, "
        f"{format_count(steps, 'step')} of {config.batch_size} "
        f"(rate {hyperparameters.learning_rate:g}, layer-wise decay {hyperparameters.layerwise_decay:g}, seed {config.seed})",
        extra={"code": "task"},
    )
    epoch = loader.steps_per_epoch
    best = BestEpoch(run.out, run.model) if config.selects_best else None
    dev = DevScores(run.out, run.score_dev, steps, epoch, best, config.early_stopping)
    progress = Progress(
        config.task,
        recipe.budget,
        lambda state: f"step {state.step:,} of {steps:,}, epoch {state.step / epoch:.1f},",
        lambda metrics: f"loss {metrics['loss']:.3f} · {metrics['tokens_per_second']:,.0f} tokens/s",
    )
    all_callbacks = [
        *([dev] if "dev" in run.prepared.task.scored_splits else []),
        *callbacks,
        *build_trackers(config.log_to, run.out, flatten(asdict(config))),
        MetricsLog(run.out),
        progress,
    ]
    checkpoints = Checkpoints(run.out / "checkpoints", recipe.training.keep_checkpoints)
    with stop_on_signal() as get_signal:
        try:
            state = train(
                run.model,
                loader.iterate,
                recipe,
                run.runtime,
                checkpoints,
                all_callbacks,
                lambda: get_signal() != 0 or dev.is_exhausted(),
            )
        except DivergedError as error:
            place = str(error).split(":")[0]
            raise DivergedError(
                "diverged",
                f"{run.out}: {place}: the gradients are no longer finite; choose another --out and a lower "
                "--learning-rate or a longer --warmup",
            ) from None
        if state.step < steps and not dev.is_exhausted():
            log.warning(
                f"Stopped at step {state.step:,} and saved; the same command resumes it.", extra={"code": "stopped"}
            )
            raise SystemExit(128 + (get_signal() or signal.SIGTERM))
    step = best.restore() if best is not None else steps
    early = f", stopped early of {steps:,}" if state.step < steps else ""
    return {
        "selected": "last epoch" if best is None else f"best on dev, after step {step:,} of {state.step:,}{early}",
        "steps": state.step,
        "seconds": state.seconds,
        "training_loss": compute_last_loss(read_metrics(run.out / "metrics.jsonl"), state.step, epoch),
    }
