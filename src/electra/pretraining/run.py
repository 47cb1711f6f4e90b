"""A pre-training run from text to checkpoint: tokenizer, data, training, evaluation, report. Each part can be resumed."""

import logging
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from electra.config.files import flatten
from electra.config.suggestions import format_flag
from electra.data.loader import BatchLoader
from electra.data.shards import PreparedData
from electra.data.sources import build_mixture
from electra.errors import DeviceError
from electra.execution import enable_kernels
from electra.pretraining.build import build_meta_model, build_model
from electra.pretraining.config import PretrainConfig
from electra.pretraining.execution import check_graphs, compile_parts, list_graph_lengths, resolve_micro_batch_size
from electra.pretraining.export import finish, log_results
from electra.pretraining.inputs import load_inputs
from electra.pretraining.learning_curve import Exports
from electra.pretraining.objectives.catalog import OBJECTIVES
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.reporting.callbacks import BudgetWarning, HealthMonitor, Utilization, format_headline
from electra.pretraining.reporting.diagnostics import Finding, Health
from electra.pretraining.run_directory import RunDirectory
from electra.pretraining.stages.procedures import PROCEDURES
from electra.pretraining.stages.sample_cache import open_or_draw_samples
from electra.pretraining.stages.stem import check_stem, copy_stem_metrics, open_checkpoints
from electra.pretraining.stages.two_stage import configure_stages, read_final_state, sum_states
from electra.pretraining.stages.warm_start import check_init, find_run_model, load_initial_weights, load_stage_one
from electra.runtime.distributed import main_process_first, share_errors
from electra.runtime.setup import Runtime, start_runtime
from electra.runtime.signals import stop_on_signal
from electra.text.corpus import make_absolute
from electra.text.hub import is_hub_name
from electra.text.tokenizer import Tokenizer
from electra.train.callbacks import Callback
from electra.train.checkpoint import Checkpoints, TrainingState
from electra.train.loop import train
from electra.train.metrics_log import MetricsLog
from electra.train.optimizer import freeze_parameters
from electra.train.parallel import check_alike
from electra.train.progress import Progress
from electra.train.trackers import build_trackers, require_trackers

log = logging.getLogger(__name__)


def pretrain(config: PretrainConfig, out: Path, callbacks: Sequence[Callback] = ()) -> dict[str, Any]:
    """Start or resume the run of `config` in the directory `out`; return the run's summary.

    `callbacks` are called during training, in two-stage training during both stages; see `electra.train.callbacks`.

    Raises:
        ElectraError: see `electra.errors`; the message has advice.
        SystemExit: a signal stopped the run; it is saved, and the same call resumes it.
    """
    require_trackers(config.log_to)
    directory = RunDirectory(out)
    config = make_paths_absolute(config)
    with start_runtime(config.runtime) as runtime:
        with share_errors(runtime):
            if config.training.freeze:  # a wrong pattern is found before text is prepared
                freeze_parameters(build_meta_model(config), config.training.freeze)
            facts = collect_shared_facts(config, directory)
            check_graphs(config, runtime)
        check_alike(facts, runtime)
        if (summary := directory.load_summary()) is None:
            return run(config, directory, runtime, callbacks)
        with main_process_first(runtime):
            directory.check(config)
        log.info(
            f"{out} is finished: step {summary['step']:,} (choose another --out for another run)",
            extra={"code": "finished"},
        )
        log_results(directory)
        return summary


def run(
    config: PretrainConfig, directory: RunDirectory, runtime: Runtime, callbacks: Sequence[Callback]
) -> dict[str, Any]:
    """Start or resume a run. The first stage of two-stage training is a separate run in a subdirectory."""
    with ExitStack() as lock:
        with main_process_first(runtime):
            if runtime.is_main:
                directory.check(config)
                if (initial := find_run_model(config)) is not None:
                    check_init(initial, config)
                check_stem(directory, config)
                lock.enter_context(directory.lock_or_create(config))
                copy_stem_metrics(directory, config)
        # Another process may have finished the run before this one had the lock.
        if (summary := directory.load_summary()) is not None:
            return summary
        recorded = load_recorded_micro_batch_size(directory, config, runtime)
        micro_batch_size = resolve_micro_batch_size(config, runtime, recorded)
        with main_process_first(runtime):
            data, tokenizer = load_inputs(config, directory)
        check_alike({"the prepared data": data.manifest.fingerprint, "the micro-batch size": micro_batch_size}, runtime)
        model = build_model(config, tokenizer, torch.from_numpy(data.unigrams))
        last_stage, first_state = config, TrainingState()
        if config.stage:
            first_stage, last_stage = configure_stages(config, model, data)
            summary = directory.first_stage.load_summary()
            first_state = read_final_state(summary or run(first_stage, directory.first_stage, runtime, callbacks))
            with main_process_first(runtime):  # the main process saves the weights that all processes load
                load_stage_one(directory.first_stage.path, model, PROCEDURES[config.procedure])
        log.info(
            f"objective {config.objective} ({OBJECTIVES[config.objective].description}), {model.summary()}",
            extra={"code": "objective"},
        )
        if (initial := find_run_model(config)) is not None:
            load_initial_weights(initial, model)
        model.to(runtime.device)
        if number := freeze_parameters(model, config.training.freeze):
            log.info(f"{number:,} parameters are frozen", extra={"code": "frozen"})
        if config.training.compile:
            compile_parts(model, runtime.device)
        elif enable_kernels(model, runtime):
            message = "attention and dropout with C++ kernels (--runtime.kernels false: with PyTorch)"
            log.info(message, extra={"code": "kernel"})
        try:
            state, findings = train_model(
                last_stage, micro_batch_size, directory, model, data, tokenizer, runtime, callbacks
            )
        except torch.OutOfMemoryError:
            raise DeviceError(
                "out-of-memory",
                f"micro-batches of {micro_batch_size} sequences do not fit into this GPU's memory; "
                "lower --training.micro-batch-size",
            ) from None
        return finish(config, directory, model, data, tokenizer, sum_states(first_state, state), findings, runtime)


def load_recorded_micro_batch_size(directory: RunDirectory, config: PretrainConfig, runtime: Runtime) -> int:
    """Load the micro-batch size of the run's newest checkpoint, 0 if there is none; equal in all processes."""
    with share_errors(runtime):
        recorded = open_checkpoints(directory, config).recorded_settings().get("micro_batch_size", 0)
    return int(runtime.all_reduce_max(float(recorded))[0])


PER_PROCESS = ("runtime.threads", "runtime.kernels", "workers")
"""Options that may differ between the processes of a run."""


def collect_shared_facts(config: PretrainConfig, directory: RunDirectory) -> dict[str, Any]:
    """Collect what must be equal in all processes of a run before it starts: options and the state of its directory."""
    options = {format_flag(name): value for name, value in flatten(asdict(config)).items() if name not in PER_PROCESS}
    newest = [path.name for path in Checkpoints(directory.checkpoints, 1).paths()[-1:]]
    return {
        **options,
        "the newest checkpoint": newest[0] if newest else "none",
        "a finished run in --out": directory.load_summary() is not None,
    }


def make_paths_absolute(config: PretrainConfig) -> PretrainConfig:
    """Return the configuration with absolute paths, so that the saved one does not depend on the current folder."""
    return replace(
        config,
        text=tuple(map(make_absolute, config.text)),
        data=config.data and make_absolute(config.data),
        tokenizer=make_model_absolute(config.tokenizer),
        init=make_model_absolute(config.init),
        init_generator=make_model_absolute(config.init_generator),
        stem=config.stem and make_absolute(config.stem),
        generator=replace(
            config.generator, samples=config.generator.samples and make_absolute(config.generator.samples)
        ),
    )


def make_model_absolute(name: str | None) -> str | None:
    """Make the path of a model or tokenizer absolute; a name of the hub stays as it is."""
    return name if name is None or is_hub_name(name) else make_absolute(name)


def train_model(
    config: PretrainConfig,
    micro_batch_size: int,
    directory: RunDirectory,
    model: PretrainingModel,
    data: PreparedData,
    tokenizer: Tokenizer,
    runtime: Runtime,
    callbacks: Sequence[Callback],
) -> tuple[TrainingState, list[Finding]]:
    """Train to the end of the budget; returns the final state and the findings about the run's health.

    Raises:
        SystemExit: a signal stopped the run; the status is 128 plus its number, as in shells.
    """
    recipe = config.recipe()
    mixture = build_mixture(data.manifest, config.weights, config.mix_temperature, recipe.seed)

    def build_loader(rank: int, world_size: int) -> BatchLoader:
        return BatchLoader(
            data.train,
            batch_size=recipe.training.batch_size,
            micro_batch_size=micro_batch_size,
            pad_id=tokenizer.pad_id,
            seed=recipe.seed,
            length_warmup=config.length_warmup,
            batch_warmup=config.batch_warmup,
            mixture=mixture,
            padded_to=list_graph_lengths(data.manifest.seq_len) if recipe.training.graphs else (),
            rank=rank,
            world_size=world_size,
        )

    loader = build_loader(runtime.rank, runtime.world_size)
    samples = open_or_draw_samples(config, model, data, build_loader, runtime)
    batches_from = loader.iterate if samples is None else partial(samples.iterate, loader.batches)
    settings = {"micro_batch_size": micro_batch_size}
    checkpoints = open_checkpoints(directory, config, recipe.training.keep_checkpoints, settings)
    samples_originals = not (config.generator.exclude_original_token or config.generator.mixes_frequencies)
    health = Health(tokenizer.vocab_size, model.scores_all_tokens, samples_originals, bool(model.changing_values))
    monitor = HealthMonitor(directory.path, recipe.budget, health)
    all_callbacks = [
        Utilization(lambda: model.utilized_share(data.manifest.seq_len), runtime),
        *callbacks,
        *build_trackers(config.log_to, directory.path, flatten(asdict(config))),
        MetricsLog(directory.path),
        monitor,
        Exports(config, directory, data, tokenizer, runtime),
        BudgetWarning(recipe.budget),
        Progress("training", recipe.budget, lambda state: f"step {state.step:,}", format_headline),
    ]
    log_training_setup(config, micro_batch_size, loader, runtime)
    with stop_on_signal() as stop_signal:
        state = train(model, batches_from, recipe, runtime, checkpoints, all_callbacks, lambda: stop_signal() != 0)
        if recipe.budget.compute_progress(state.step, state.seconds, state.flops) < 1:
            log.warning(
                f"Stopped at step {state.step:,} and saved; the same command resumes the run.",
                extra={"code": "stopped"},
            )
            raise SystemExit(128 + (stop_signal() or signal.SIGTERM))
    return state, monitor.findings


def log_training_setup(config: PretrainConfig, micro_batch_size: int, loader: BatchLoader, runtime: Runtime) -> None:
    """Log device, batch sizes, length warm-up and learning rate schedule of a run, with reasons."""
    training, schedule = config.training, config.schedule
    log.info(f"training on {runtime.describe()}", extra={"code": "device"})
    if training.batch_size > micro_batch_size * runtime.world_size:
        how = "gradients accumulate; the losses are means over the whole batch"
    else:
        how = "one for each process" if runtime.world_size > 1 else "the whole batch at once"
    log.info(
        f"batches of {training.batch_size} in micro-batches of {micro_batch_size} ({how})",
        extra={"code": "micro-batches"},
    )
    if config.batch_warmup.steps:
        log.info(
            f"batches of {config.batch_warmup.size} first, which grow in {config.batch_warmup.steps:,} steps",
            extra={"code": "batch-warmup"},
        )
    if config.length_warmup.steps:
        steps, length = config.length_warmup.steps, config.length_warmup.length
        log.info(
            f"sequences of {length} tokens in the first {steps:,} steps, then of {config.seq_len}",
            extra={"code": "length-warmup"},
        )
        if config.steps is not None and config.steps <= steps:
            log.warning(
                f"length_warmup.steps is {steps:,}, but the run has only {config.steps:,} steps: "
                f"it ends before it reads sequences of {config.seq_len} tokens",
                extra={"code": "length-warmup-over-run"},
            )
    if loader.mixture is not None:
        log.info(
            f"mixture: {loader.mixture.describe(config.steps and loader.count(config.steps))}",
            extra={"code": "mixture"},
        )
    warmup = schedule.warmup(config.steps)
    if config.steps is None:
        follows = "the clock" if config.hours is not None else "the FLOPs"
        log.info(
            f"{config.recipe().budget} of training; the learning rate follows {follows} (warm-up {warmup:.0%} of it)",
            extra={"code": "length"},
        )
        return
    reason = (
        "schedule.warmup_steps"
        if schedule.warmup_steps <= warmup * config.steps
        else f"at most {warmup:.0%} of the run"
    )
    log.info(
        f"{config.recipe().budget}, {loader.epoch(config.steps):.2f} epochs; "
        f"warm-up {warmup * config.steps:,.0f} steps ({reason})",
        extra={"code": "length"},
    )
