"""Fine-tuning runs, one per seed: load, train by the paper's recipe, score, save. An interrupted run resumes."""

import copy
import json
import logging
import platform
import shutil
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import electra
from electra.config.checks import check_number
from electra.config.files import flatten, to_yaml
from electra.errors import DivergedError, UsageError
from electra.execution import describe_execution, enable_kernels
from electra.external import format_count
from electra.finetuning.batching import BatchLoader
from electra.finetuning.best_epoch import BestEpoch
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.export import build_model_card, save_finetuned
from electra.finetuning.hub import find_model_directory
from electra.finetuning.model import FinetunedModel
from electra.finetuning.preparation import PreparedInputs, prepare_inputs
from electra.finetuning.recipe import build_rate_factor
from electra.finetuning.registry import check_options
from electra.finetuning.run_directory import (
    InputChecksums,
    get_medians,
    make_paths_absolute,
    read_results,
    summarize,
)
from electra.model.initialization import initialize
from electra.model.model_card import write_model_card
from electra.runtime.setup import Runtime, start_runtime
from electra.runtime.signals import stop_on_signal
from electra.seeding import Stream, seed_everything
from electra.storage import LOCK, convert_os_errors, lock_output, write_atomically
from electra.train.callbacks import Callback
from electra.train.checkpoint import Checkpoints
from electra.train.config import Recipe, TrainingConfig
from electra.train.loop import train
from electra.train.metrics_log import MetricsLog
from electra.train.optimizer import OptimizerConfig, freeze_parameters
from electra.train.progress import Progress
from electra.train.schedule import Budget, ScheduleConfig
from electra.train.trackers import build_trackers, require_trackers

log = logging.getLogger(__name__)

EVAL_BATCH_SIZE = 64


@dataclass(frozen=True)
class Run:
    """The run of one seed."""

    config: FinetuneConfig
    out: Path
    """Run directory, `OUT/seed-N`."""
    prepared: PreparedInputs
    model: FinetunedModel
    runtime: Runtime

    def compute_outputs(self, split: str) -> list[dict[str, np.ndarray]]:
        """Compute the outputs of the head for the examples of a split with the current weights."""
        pad_id = self.prepared.tokenizer.pad_id
        return self.model.compute_outputs(self.prepared.examples[split], self.runtime, EVAL_BATCH_SIZE, pad_id)

    def score_dev(self) -> float:
        """Compute the task's main metric on dev, in percent, with the current weights."""
        task = self.prepared.task
        return task.score("dev", self.compute_outputs("dev"))[task.main_metric]


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
        numbers = range(config.seed, config.seed + seeds)
        summary = summarize(run_seeds(config, out, numbers, callbacks))
        if config.baseline == "random" and not config.from_scratch:
            untrained = replace(config, from_scratch=True, baseline="none")
            random_weights = summarize(run_seeds(untrained, out / "random-weights", numbers))
            summary["baselines"]["random weights"] = get_medians(random_weights)
        write_atomically(out / "results.json", (json.dumps(summary, indent=2) + "\n").encode())
    return summary


def run_seeds(
    config: FinetuneConfig, out: Path, seeds: Iterable[int], callbacks: Sequence[Callback] = ()
) -> list[dict[str, Any]]:
    """Run every seed and return their results. Their common inputs are read once, or never if all runs are finished."""
    config = make_paths_absolute(config)
    directory = find_model_directory(config.model)
    checksums = InputChecksums.from_config(config, directory)
    get_inputs = cache(lambda: prepare_inputs(config, directory))
    return [run_seed(replace(config, seed=n), out / f"seed-{n}", checksums, get_inputs, callbacks) for n in seeds]


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
    """Train, select the weights to save, and return entries of the results: `selected`, `steps`, `seconds`.

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
    best = (
        BestEpoch(run.out, run.model, run.score_dev, steps, loader.steps_per_epoch) if config.select == "best" else None
    )
    progress = Progress(
        config.task,
        recipe.budget,
        lambda state: f"step {state.step:,} of {steps:,}, epoch {state.step / loader.steps_per_epoch:.1f},",
        lambda metrics: f"loss {metrics['loss']:.3f} · {metrics['tokens_per_second']:,.0f} tokens/s",
    )
    all_callbacks = [
        *([best] if best else []),
        *callbacks,
        *build_trackers(config.log_to, run.out, flatten(asdict(config))),
        MetricsLog(run.out),
        progress,
    ]
    checkpoints = Checkpoints(run.out / "checkpoints", recipe.training.keep_checkpoints)
    with stop_on_signal() as get_signal:
        try:
            state = train(
                run.model, loader.iterate, recipe, run.runtime, checkpoints, all_callbacks, lambda: get_signal() != 0
            )
        except DivergedError as error:
            place = str(error).split(":")[0]
            raise DivergedError(
                "diverged",
                f"{run.out}: {place}: the gradients are no longer finite; choose another --out and a lower "
                "--learning-rate or a longer --warmup",
            ) from None
        if state.step < steps:
            log.warning(
                f"Stopped at step {state.step:,} and saved; the same command resumes it.", extra={"code": "stopped"}
            )
            raise SystemExit(128 + (get_signal() or signal.SIGTERM))
    step = best.restore() if best is not None else steps
    return {
        "selected": "last epoch" if best is None else f"best on dev, after step {step:,} of {steps:,}",
        "steps": steps,
        "seconds": state.seconds,
    }


def score_and_save(run: Run, facts: dict[str, Any]) -> dict[str, Any]:
    """Score and predict the splits, save the model, and write the results last: then the run is finished."""
    config, prepared, task, out = run.config, run.prepared, run.prepared.task, run.out
    metrics = {}
    for split in (*task.scored_splits, *task.predicted_splits):
        outputs = run.compute_outputs(split)
        if split in task.scored_splits:
            metrics[split] = task.score(split, outputs)
        lines = "".join(
            json.dumps(prediction, ensure_ascii=False) + "\n" for prediction in task.format_predictions(split, outputs)
        )
        write_atomically(out / f"predictions-{split}.jsonl", lines.encode())
        if (logits := task.get_logits(split, outputs)) is not None:
            with convert_os_errors(out):
                np.save(out / f"logits-{split}.npy", logits)
    save_finetuned(out / "model", run.model, task, prepared.spec, prepared.tokenizer)
    results = {
        "task": config.task,
        "seed": config.seed,
        "start": "random weights" if config.from_scratch else config.model,
        "main_metric": task.main_metric,
        "metrics": metrics,
        "baselines": {} if config.baseline == "none" else prepared.baselines,
        "hyperparameters": asdict(prepared.hyperparameters),
        "data": {split: {"examples": len(each), **each.counts} for split, each in prepared.examples.items()},
        **facts,
        "hardware": describe_execution(run.model, run.runtime),
        "versions": {"electra": electra.__version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    write_model_card(out / "model", build_model_card(results, out / "model", run.model))
    write_atomically(out / "results.json", (json.dumps(results, indent=2) + "\n").encode())
    remove_leftovers(out)
    shown = ", ".join(f"{name} {value:.1f}" for name, value in metrics[task.scored_splits[0]].items())
    log.info(
        f"{config.task} seed {config.seed}: {task.scored_splits[0]} {shown} ({facts['selected']})",
        extra={"code": "score"},
    )
    return results


def remove_leftovers(out: Path) -> None:
    """Remove the checkpoints of a finished run; a run that was killed right after it finished still has them."""
    for name in ("checkpoints", "best.safetensors"):
        path = out / name
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
