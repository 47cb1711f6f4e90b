"""One fine-tuning run, and several over seeds: load, train by the paper's protocol, score, save. All of it resumes."""

import json
import platform
import shutil
import signal
import statistics
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import electra
from electra.config import difference_to, to_yaml
from electra.console import console, decided, warned
from electra.errors import RunError, UsageError
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.export import save_finetuned
from electra.finetuning.features import FeatureLoader, Features
from electra.finetuning.hub import model_directory
from electra.finetuning.model import FinetunedModel
from electra.finetuning.observer import BestEpoch, FinetuneObserver
from electra.finetuning.protocol import layerwise_rates, size_protocol
from electra.finetuning.task import Task
from electra.finetuning.tasks import EPOCHS, build_task
from electra.model.encoder import Encoder, EncoderConfig, initialise
from electra.model.weights import Pretrained, load_pretrained
from electra.runtime import Runtime, runtime, seed_everything, stop_on_signal
from electra.storage import write_atomically, writing
from electra.text.tokenizer import Tokenizer, load_tokenizer
from electra.train.checkpoint import Checkpoints
from electra.train.loop import Recipe, TrainingConfig, train
from electra.train.optimizer import OptimizerConfig
from electra.train.schedule import Budget, ScheduleConfig

EVALUATION_ROWS = 64


@dataclass(frozen=True)
class Protocol:
    """What a run does where the configuration leaves it open."""

    epochs: float
    learning_rate: float
    layerwise_decay: float

    @classmethod
    def of(cls, config: FinetuneConfig, encoder: EncoderConfig) -> "Protocol":
        """The paper's values (Table 7) where none are given."""
        size = size_protocol(encoder)
        return cls(
            config.epochs or EPOCHS.get(config.task, 3.0),
            config.learning_rate or size.learning_rate,
            config.layerwise_decay or size.layerwise_decay,
        )


def finetune(config: FinetuneConfig, out: Path, seeds: int = 1) -> dict[str, Any]:
    """Fine-tune with `seeds` seeds from `config.seed` on, each in a directory of its own; returns the summary.

    `out/results.json` holds medians, spreads and every seed's scores. Run again, it goes on where it stopped.

    Raises:
        ElectraError: see `electra.errors`.
        SystemExit: a signal asked to stop; the run is saved, and the same call goes on.
    """
    if seeds < 1:
        raise UsageError(f"--seeds is {seeds}; it must be at least 1")
    results = [
        finetune_once(replace(config, seed=seed), out / f"seed-{seed}")
        for seed in range(config.seed, config.seed + seeds)
    ]
    summary = summarise(results)
    write_atomically(out / "results.json", (json.dumps(summary, indent=2) + "\n").encode())
    return summary


def summarise(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Median, mean and standard deviation of every metric over the seeds, and all their values."""
    spread: dict[str, Any] = {}
    for split, metrics in results[0]["metrics"].items():
        for name in metrics:
            values = [result["metrics"][split][name] for result in results]
            spread.setdefault(split, {})[name] = {
                "median": statistics.median(values),
                "mean": statistics.fmean(values),
                "std": statistics.stdev(values) if len(values) > 1 else None,
                "values": values,
            }
    shared = {key: results[0][key] for key in ("task", "main_metric", "protocol", "selected", "hardware", "versions")}
    return {**shared, "seeds": [result["seed"] for result in results], "metrics": spread}


def finetune_once(config: FinetuneConfig, out: Path) -> dict[str, Any]:
    """One run, in `out`: a model directory, predictions, `results.json` written last."""
    config = with_absolute_paths(config)
    claim(out, config)
    if (out / "results.json").exists():
        decided(f"{out} is finished")
        return json.loads((out / "results.json").read_text())
    with runtime(config.runtime) as where:
        if where.world_size > 1:
            raise UsageError("fine-tuning runs in one process; start it without torchrun")
        directory = model_directory(config.model)
        tokenizer = load_tokenizer(directory)
        pretrained = load_pretrained(directory)
        encoder = load_encoder(pretrained, config, tokenizer)
        task = build_task(config, tokenizer, pretrained)
        seed_everything(config.seed)
        model = FinetunedModel(encoder, task.head(encoder.config), config.summed_loss)
        if config.from_scratch:
            initialise(encoder, encoder.config.initializer_range)
        model.to(where.device)
        protocol = Protocol.of(config, encoder.config)
        dev = task.features(task.scored[0])  # before training, so that a broken file does not cost the training
        facts = train_model(config, protocol, out, model, task, dev, tokenizer, where)
        return finish(config, protocol, out, model, task, dev, tokenizer, facts, where)


def load_encoder(pretrained: Pretrained, config: FinetuneConfig, tokenizer: Tokenizer) -> Encoder:
    """The encoder of a pre-trained model, with this run's dropout.

    Raises:
        ModelError: another architecture, or weights are missing.
    """
    directory = pretrained.directory
    sizes = replace(pretrained.config, dropout=config.dropout, attention_dropout=config.dropout)
    if tokenizer.vocab_size > sizes.vocab_size:
        raise UsageError(f"{directory}: {tokenizer.vocab_size:,} tokens, but embeddings of {sizes.vocab_size:,} only")
    encoder = Encoder(sizes)
    state = pretrained.state("ElectraModel")
    encoder.load_state_dict({name.removeprefix("encoder."): tensor for name, tensor in state.items()})
    decided(
        f"{'sizes' if config.from_scratch else 'encoder'} of {directory}", f"{sizes.num_layers} x {sizes.hidden_size}"
    )
    return encoder


def with_absolute_paths(config: FinetuneConfig) -> FinetuneConfig:
    """The configuration as it is saved: it means the same files from any folder."""

    def absolute(source: str | None) -> str | None:
        return str(Path(source).absolute()) if source and Path(source).exists() else source

    return replace(
        config,
        model=absolute(config.model) or "",
        data=absolute(config.data),
        train=absolute(config.train),
        dev=absolute(config.dev),
        test=absolute(config.test),
    )


def claim(out: Path, config: FinetuneConfig) -> None:
    """Make the directory of a run, or see that it is of the same configuration.

    Raises:
        RunError: it is the run of another configuration, or holds other things.
    """
    saved = out / "config.yaml"
    if saved.exists():
        if (difference := difference_to(saved, config, ("runtime.",))) is not None:
            raise RunError(f"{out}: a run of another configuration: {difference}; choose another --out")
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out}: not empty and not a run; choose another --out")


def train_model(
    config: FinetuneConfig,
    protocol: Protocol,
    out: Path,
    model: FinetunedModel,
    task: Task,
    dev: Features,
    tokenizer: Tokenizer,
    where: Runtime,
) -> dict[str, Any]:
    """Train to the end; returns what the results say of it. Leaves the weights that were chosen in the model."""
    features = task.features("train")
    loader = FeatureLoader(features, batch_size=config.batch_size, pad_id=tokenizer.pad_id, seed=config.seed)
    steps = max(1, round(protocol.epochs * loader.steps_per_epoch))
    write_atomically(out / "config.yaml", to_yaml(config).encode())
    decided(
        f"{config.task}: {len(features):,} examples, {protocol.epochs:g} epochs, {steps:,} steps of {config.batch_size}",
        f"rate {protocol.learning_rate:g}, layer-wise decay {protocol.layerwise_decay:g}, seed {config.seed}",
    )

    def dev_score() -> float:
        outputs = model.outputs(dev, where, EVALUATION_ROWS, tokenizer.pad_id)
        return task.score(task.scored[0], outputs)[task.main_metric]

    if config.select == "best" and task.scored[0] != "dev":
        raise UsageError("--select best chooses by dev scores, and there is no dev file; give --dev")
    best = BestEpoch(out, model, dev_score) if config.select == "best" else None
    observer = FinetuneObserver(out, config.task, steps, loader.steps_per_epoch, best)
    recipe = recipe_of(config, protocol, steps, model.encoder.config.num_layers)
    checkpoints = Checkpoints(out / "checkpoints", recipe.training.keep_checkpoints, warned)
    started = time.perf_counter()
    with stop_on_signal() as stop_signal:
        try:
            state = train(model, loader.iterate, recipe, where, checkpoints, observer, lambda: stop_signal() != 0)
        finally:
            observer.close()
        if state.step < steps:
            console.print(f"Stopped at step {state.step:,} and saved; the same command goes on from there.")
            raise SystemExit(128 + (stop_signal() or signal.SIGTERM))
    decided(f"{config.task}: trained", f"{time.perf_counter() - started:,.0f} s")
    kept = best.restore() if best is not None else steps
    return {
        "selected": "last epoch" if best is None else f"best on dev, after step {kept:,} of {steps:,}",
        "steps": steps,
        "seconds": state.seconds,
        "examples_per_second": round(protocol.epochs * len(features)) / state.seconds if state.seconds else None,
    }


def recipe_of(config: FinetuneConfig, protocol: Protocol, steps: int, num_layers: int) -> Recipe:
    """What the training loop is told."""
    return Recipe(
        Budget(steps=steps),
        TrainingConfig(batch_size=config.batch_size, log_every=20, keep_checkpoints=1),
        OptimizerConfig(learning_rate=protocol.learning_rate, weight_decay=config.weight_decay),
        ScheduleConfig(warmup_steps=round(config.warmup * steps), max_warmup=0.999),
        config.seed,
        layerwise_rates(protocol.layerwise_decay, num_layers),
    )


def finish(
    config: FinetuneConfig,
    protocol: Protocol,
    out: Path,
    model: FinetunedModel,
    task: Task,
    dev: Features,
    tokenizer: Tokenizer,
    facts: dict[str, Any],
    where: Runtime,
) -> dict[str, Any]:
    """Score, predict, save; `results.json` comes last and says that the run is finished."""
    metrics = {}
    for split in (*task.scored, *task.predicted):
        features = dev if split == task.scored[0] else task.features(split)
        outputs = model.outputs(features, where, EVALUATION_ROWS, tokenizer.pad_id)
        if split in task.scored:
            metrics[split] = task.score(split, outputs)
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in task.predictions(split, outputs))
        write_atomically(out / f"predictions-{split}.jsonl", lines.encode())
        if "logits" in outputs[0] and outputs[0]["logits"].ndim == 1:
            with writing(out):
                np.save(out / f"logits-{split}.npy", np.stack([output["logits"] for output in outputs]))
    save_finetuned(out / "model", model, task, tokenizer)
    results = {
        "task": config.task,
        "seed": config.seed,
        "main_metric": task.main_metric,
        "metrics": metrics,
        "protocol": asdict(protocol),
        **facts,
        "hardware": where.describe(),
        "versions": {"electra": electra.__version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    write_atomically(out / "results.json", (json.dumps(results, indent=2) + "\n").encode())
    for left in ("checkpoints", "best.safetensors"):  # the model directory holds what counts
        path = out / left
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    shown = ", ".join(f"{name} {value:.1f}" for name, value in metrics[task.scored[0]].items())
    console.print(f"{config.task} seed {config.seed}: {shown} ({facts['selected']})", markup=False)
    return results
