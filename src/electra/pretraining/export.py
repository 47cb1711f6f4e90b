"""Results of a finished run: held-out metrics, Hugging Face directories, report, summary."""

import logging
import platform
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import electra
from electra.data.batch import Batch
from electra.data.loader import build_batch, iterate_evaluation_batches
from electra.data.shards import ExampleSet, PreparedData
from electra.data.sources import SourceRows, label_sources, list_source_rows
from electra.errors import RunError
from electra.execution import describe_execution, enable_kernels
from electra.external import format_count
from electra.model.checkpoints import PRETRAINED_LENGTH, save_pretrained
from electra.model.encoder import EncoderConfig
from electra.model.model_card import ModelCard, write_model_card
from electra.pretraining.build import build_model
from electra.pretraining.config import PretrainConfig
from electra.pretraining.evaluation.held_out import Evaluation, collect_samples, evaluate
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.reporting.diagnostics import Finding, check_heldout, check_vocabulary
from electra.pretraining.reporting.model_card import build_model_card
from electra.pretraining.reporting.report import Report, format_metrics, write_report
from electra.pretraining.run_directory import RunDirectory
from electra.pretraining.stages.warm_start import find_trained_length
from electra.runtime.setup import Runtime, start_runtime
from electra.seeding import Stream, derive_row_keys
from electra.storage import convert_os_errors
from electra.text.tokenizer import Tokenizer, load_tokenizer
from electra.train.checkpoint import Checkpoints, TrainingState
from electra.train.metrics_log import read_metrics

log = logging.getLogger(__name__)


# Held-out examples to evaluate: enough for three digits, in seconds.
MAX_EXAMPLES = 2_000
EVALUATION_BATCH_SIZE = 32
MAX_SOURCE_EXAMPLES = 500
"""The same for each of several sources; there may be a hundred languages."""


def finish(
    config: PretrainConfig,
    directory: RunDirectory,
    model: PretrainingModel,
    data: PreparedData,
    tokenizer: Tokenizer,
    state: TrainingState,
    findings: list[Finding],
    runtime: Runtime,
) -> dict[str, Any]:
    """Evaluate, save and report in the main process; return the summary and samples (empty in other processes)."""
    if not runtime.is_main:
        return {}
    evaluation = evaluate_heldout(model, data, tokenizer, runtime)
    by_source = evaluate_sources(model, data, tokenizer, runtime)
    heldout_findings = check_heldout(state.step, evaluation.metrics, model.scores_all_tokens)
    findings = check_vocabulary(data.manifest.coverage) + findings + heldout_findings
    samples = collect_samples(model, select_samples(data.heldout, tokenizer), list(tokenizer.vocabulary), runtime)
    summary = {
        "step": state.step,
        "seconds": state.seconds,
        "tokens": state.tokens,
        "flops": state.flops,
        "heldout": evaluation.metrics,
        **({"heldout_by_source": by_source} if by_source else {}),
        "findings": [asdict(finding) for finding in findings],
        "hardware": describe_execution(model, runtime),
        "versions": {"electra": electra.__version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    facts = collect_facts(config, model, data, summary)
    metrics = dict(format_metrics(evaluation.metrics, model.spec.objective.all_metrics))

    def build_card(name: str, head: str) -> ModelCard:
        return build_model_card(name, head, config, facts, metrics)

    save_networks(directory, model, tokenizer, build_card, find_trained_length(config, data.manifest.seq_len))
    report = Report(
        title=f"{config.objective}, {model.spec.main.num_layers} x {model.spec.main.hidden_size}: {directory.path.name}",
        facts=facts,
        rows=list(read_metrics(directory.path / "metrics.jsonl")),
        metrics=model.spec.objective.all_metrics,
        evaluation=evaluation,
        by_source=by_source,
        samples=samples,
        findings=findings,
    )
    write_report(report, directory.path)
    if model.discriminates and not model.scores_all_tokens:
        log.info(
            f"objective {config.objective} trains the discriminator on {config.masking.percentage} of the tokens only; "
            "its held-out metrics are over all tokens",
            extra={"code": "part-of-tokens"},
        )
    for finding in heldout_findings:
        log.warning(f"{finding.problem}: {finding.advice}", extra={"code": finding.code})
    directory.write_summary(summary)
    log_results(directory)
    return summary | {"samples": samples}


def log_results(directory: RunDirectory) -> None:
    """Log the paths of a finished run's models and report."""
    log.info(f"checkpoint: {', '.join(map(str, directory.list_networks()))}", extra={"code": "saved"})
    log.info(f"report: {directory.report}", extra={"code": "report"})


def evaluate_heldout(
    model: PretrainingModel,
    data: PreparedData,
    tokenizer: Tokenizer,
    runtime: Runtime,
    source: SourceRows | None = None,
) -> Evaluation:
    """Compute the held-out metrics, of all text or of a source."""
    batches = iterate_evaluation_batches(
        data.heldout,
        batch_size=EVALUATION_BATCH_SIZE,
        pad_id=tokenizer.pad_id,
        max_examples=MAX_EXAMPLES if source is None else MAX_SOURCE_EXAMPLES,
        source=source,
    )
    return evaluate(model, batches, torch.from_numpy(data.unigrams), runtime)


def evaluate_sources(
    model: PretrainingModel, data: PreparedData, tokenizer: Tokenizer, runtime: Runtime
) -> dict[str, dict[str, float]]:
    """Compute the held-out metrics of each of several sources that has held-out text, by short name; empty for one."""
    names, sources = data.manifest.settings.names or [], list_source_rows(data.manifest, "heldout")
    if len(names) < 2:
        return {}
    return {
        label: evaluate_heldout(model, data, tokenizer, runtime, rows).metrics
        for label, rows in zip(label_sources(names), sources, strict=False)
        if len(rows)
    }


def evaluate_run(run: Path, data_directory: Path | None) -> dict[str, Any]:
    """Compute the held-out metrics of a run's newest checkpoint, on its own or other data.

    `by_source` has those of each source, if there are several.

    Raises:
        RunError: not a run directory, or it has no checkpoint yet.
        DataError: no such data, or prepared with another tokenizer.
    """
    directory = RunDirectory(run)
    with open_model(directory, data_directory) as (model, data, tokenizer, runtime):
        state = Checkpoints(directory.checkpoints, 1).restore(model)
        if state.step == 0:
            raise RunError("no-checkpoint", f"{run}: has no checkpoint yet")
        enable_kernels(model, runtime)
        evaluation = evaluate_heldout(model.to(runtime.device), data, tokenizer, runtime)
        by_source = evaluate_sources(model, data, tokenizer, runtime)
    log.info(
        f"step {state.step:,} of {run} on {data.path}: {evaluation.metrics['evaluated_tokens']:,.0f} held-out tokens",
        extra={"code": "heldout-metrics"},
    )
    return evaluation.metrics | ({"by_source": by_source} if by_source else {})


@contextmanager
def open_model(
    directory: RunDirectory, data_directory: Path | None
) -> Iterator[tuple[PretrainingModel, PreparedData, Tokenizer, Runtime]]:
    """Build the model of a run with initial weights on the CPU; yield also data, by default the run's own, and the tokenizer.

    Raises:
        RunError: not a run directory.
        DataError: no such data, or prepared with another tokenizer.
    """
    config = directory.load_config()
    with start_runtime(config.runtime) as runtime:
        data = PreparedData.open(data_directory or Path(config.data or directory.data))
        tokenizer = load_tokenizer(directory.tokenizer)
        data.check_tokenizer(tokenizer.fingerprint, tokenizer.vocab_size)
        yield build_model(config, tokenizer, torch.from_numpy(data.unigrams)), data, tokenizer, runtime


def select_samples(examples: ExampleSet, tokenizer: Tokenizer, number: int = 3) -> Batch:
    """Select the held-out examples to show: those with lengths closest to 24 tokens, which are easy to read."""
    lengths = torch.from_numpy(examples.lengths(range(len(examples))))
    order = (lengths - 24).abs().argsort(stable=True)[:number].numpy()
    return build_batch(examples, order, derive_row_keys(order, Stream.HELDOUT_ROWS), tokenizer.pad_id)


def save_networks(
    directory: RunDirectory,
    model: PretrainingModel,
    tokenizer: Tokenizer,
    build_card: Callable[[str, str], ModelCard],
    length: int | None = None,
) -> None:
    """Write the Hugging Face directories of the networks.

    `build_card` builds a network's model card from its name and kind of head. `length` is the longest sequence length of the
    training, if known.
    """
    more = {} if length is None else {PRETRAINED_LENGTH: length}
    target = model.target
    heads = {kind: network.state_dict() for kind, network in target.other_heads.items()}
    networks = {target.directory: (target.network, target.head, heads)}
    if model.generator is not None:
        networks["generator"] = (model.generator, "masked-lm", {})
    for name, (network, head, other_heads) in networks.items():
        path, temporary = directory.path / name, directory.path / f".writing-{name}"
        with convert_os_errors(path):
            shutil.rmtree(temporary, ignore_errors=True)
            save_pretrained(temporary, network.state_dict(), network.config, head, tokenizer.pad_id, more, other_heads)
            tokenizer.save(temporary, network.config.max_positions)
            write_model_card(temporary, build_card(name, head))
            shutil.rmtree(path, ignore_errors=True)
            temporary.rename(path)


def collect_facts(
    config: PretrainConfig, model: PretrainingModel, data: PreparedData, summary: dict[str, Any]
) -> dict[str, str]:
    """Return the rows of the report's first table."""
    minutes, seconds = divmod(round(summary["seconds"]), 60)
    parameters = sum(p.numel() for p in model.parameters())
    main, coverage, warmup = model.spec.main, data.manifest.coverage, config.batch_warmup
    generator = {} if model.generator is None else {"generator": format_sizes(model.generator.config)}
    if model.generator is None and model.spec.objective.has_generator:
        generator = {"generator": f"{config.generator.kind} samples"}
    return {
        "text": ", ".join(config.text) or str(config.data),
        "data": f"{format_count(data.manifest.documents, 'document')}, {len(data.train):,} examples, "
        f"{data.train.tokens:,} tokens; {len(data.heldout):,} examples held out",
        "vocabulary": f"{main.vocab_size:,} tokens" + (f"; {coverage}" if coverage else ""),
        "encoder": format_sizes(main),
        **generator,
        "parameters": f"{parameters / 1e6:.2f} M",
        "trained": f"{summary['step']:,} steps, {summary['tokens']:,.0f} tokens, {summary['flops']:.3g} FLOPs, "
        f"{minutes} min {seconds} s",
        "budget": str(config.recipe().budget),
        "options start from": f"preset {config.preset}",
        "peak learning rate": f"{config.optimizer.learning_rate:g}",
        "batch": f"{config.training.batch_size:,} sequences of up to {data.manifest.seq_len} tokens"
        + (f", from {warmup.size:,} on in the first {warmup.steps:,} steps" if warmup.steps else ""),
        "masked": f"{config.masking.percentage} of the tokens",
        **({"loss weight": f"{model.spec.objective.weight:g}"} if model.spec.objective.weight != 1 else {}),
        "seed": str(config.seed),
        "hardware": summary["hardware"],
    }


def format_sizes(encoder: EncoderConfig) -> str:
    """Format an encoder's sizes."""
    return (
        f"{format_count(encoder.num_layers, 'layer')}, width {encoder.hidden_size:,}, "
        f"{format_count(encoder.num_heads, 'head')}, feed-forward {encoder.ffn_size:,}, "
        f"embeddings of {encoder.embedding_size:,}"
    )
