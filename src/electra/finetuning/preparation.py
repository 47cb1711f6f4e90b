"""Inputs shared by the runs of all seeds: task, tokenized splits and pre-trained encoder, read and checked before training."""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from electra.errors import DataError, ModelError, UsageError
from electra.external import format_count
from electra.finetuning.batching import EncodedExamples
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.recipe import choose_pooling, find_size_recipe
from electra.finetuning.registry import build_task, find_task
from electra.finetuning.task import Task, TaskSpec
from electra.model.checkpoints import Pretrained, load_pretrained, read_pretrained_length
from electra.model.encoder import Encoder, EncoderConfig
from electra.text.coverage import Coverage, CoverageCounter, report_coverage
from electra.text.tokenizer import Tokenizer, load_tokenizer

log = logging.getLogger(__name__)

VOCABULARY_ADVICE = "take a model that was pre-trained on text of this language"
FEW_EXAMPLES = 50
"""Smallest number of scored examples without a warning: one of 50 changes an accuracy by 2 %."""


@dataclass(frozen=True)
class Hyperparameters:
    """Hyperparameters whose defaults depend on the task, the size of the model and the number of training examples."""

    epochs: float
    learning_rate: float
    layerwise_decay: float
    pooling: str | None = None
    """None for a task without pooling."""


@dataclass(frozen=True)
class PreparedInputs:
    """Inputs of the runs of all seeds; no run modifies them."""

    spec: TaskSpec
    hyperparameters: Hyperparameters
    task: Task
    examples: dict[str, EncodedExamples]
    """Split -> its examples, for train and every split that is scored or predicted."""
    tokenizer: Tokenizer
    encoder: Encoder
    """Pre-trained encoder; each run trains a copy."""

    @cached_property
    def chance_loss(self) -> float | None:
        """Training loss of the best constant prediction; None if the task has none."""
        compute = self.spec.compute_chance_loss
        return None if compute is None else compute(self.task)

    @cached_property
    def baselines(self) -> dict[str, dict[str, float]]:
        """Metrics of the task's baselines on its first scored split, by name."""
        return self.spec.score_baselines(self.task, self.task.scored_splits[0])


def resolve_hyperparameters(
    config: FinetuneConfig, spec: TaskSpec, encoder: EncoderConfig, examples: int
) -> Hyperparameters:
    """Return the hyperparameters of the configuration; those that are None are the defaults of `recipe`.

    Args:
        config: Configuration.
        spec: Kind of task.
        encoder: Sizes of the model.
        examples: Number of training examples.
    """
    size = find_size_recipe(encoder)
    return Hyperparameters(
        config.epochs or size.choose_epochs(spec.recipe, examples),
        config.learning_rate or size.learning_rate,
        config.layerwise_decay or size.layerwise_decay,
        choose_pooling(config.pooling or spec.recipe.pooling, encoder) if "pooling" in spec.options else None,
    )


def prepare_inputs(config: FinetuneConfig, directory: Path) -> PreparedInputs:
    """Read the model in `directory` and tokenize every split. Nothing is written, and nothing depends on `config.seed`.

    Raises:
        ModelError: the model is of another architecture, damaged, or has fewer embeddings than the tokenizer has tokens.
        TokenizerError: the tokenizer is missing or malformed.
        DataError: a split is missing, empty or malformed.
        UsageError: an option is missing, or options contradict each other.
    """
    tokenizer, pretrained = load_tokenizer(directory), load_pretrained(directory)
    encoder = load_encoder(pretrained, config, tokenizer)
    spec, task = find_task(config.task), build_task(config, tokenizer, pretrained)
    if config.selects_best and "dev" not in task.scored_splits:
        option = "--select best" if config.early_stopping is None else "--early-stopping"
        raise UsageError("no-dev", f"{option} uses dev scores, and there is no dev file; give --dev")
    if config.retry_failed_seeds and spec.compute_chance_loss is None:
        raise UsageError("meaningless-option", f"--retry-failed-seeds has no meaning for {config.task}")
    examples = {split: task.encode(split) for split in ("train", *task.scored_splits, *task.predicted_splits)}
    for split, encoded in examples.items():
        if not len(encoded):
            raise DataError(
                "empty-split", f"{config.task}: there is nothing in the {split} split that the task can use"
            )
    report_vocabulary(task.name, examples, tokenizer)
    warn_about_few_examples(task, examples)
    if not config.from_scratch:
        warn_about_untrained_positions(directory, task, examples)
    report_head(task, spec, encoder.config)
    hyperparameters = resolve_hyperparameters(config, spec, encoder.config, len(examples["train"]))
    report_defaults(config, hyperparameters, encoder.config, len(examples["train"]))
    return PreparedInputs(spec, hyperparameters, task, examples, tokenizer, encoder)


def load_encoder(pretrained: Pretrained, config: FinetuneConfig, tokenizer: Tokenizer) -> Encoder:
    """Build the encoder with the pre-trained weights and the dropout of the configuration.

    Raises:
        ModelError: the tokenizer has more tokens than the encoder has embeddings.
    """
    directory = pretrained.directory
    sizes = replace(pretrained.config, dropout=config.dropout, attention_dropout=config.dropout)
    if tokenizer.vocab_size > sizes.vocab_size:
        raise ModelError(
            "vocabulary-over-embeddings",
            f"{directory}: its tokenizer has {tokenizer.vocab_size:,} tokens, but the model has embeddings of "
            f"{sizes.vocab_size:,}",
        )
    encoder = Encoder(sizes)
    state = {name.removeprefix("encoder."): tensor for name, tensor in pretrained.state("none").items()}
    encoder.load_state_dict(state)
    log.info(
        f"{'sizes' if config.from_scratch else 'encoder'} of {directory} "
        f"({sizes.num_layers} layers of {sizes.hidden_size}{', random weights' * config.from_scratch})",
        extra={"code": "encoder"},
    )
    return encoder


def report_vocabulary(name: str, examples: Mapping[str, EncodedExamples], tokenizer: Tokenizer) -> None:
    """Log the shares of [UNK] and of words split into single characters, with a warning for each split where they are high."""
    counter = CoverageCounter(tokenizer)
    by_split = {split: counter.count_rows(each.input_ids) for split, each in examples.items()}
    poor = {f"{name} {split}": coverage for split, coverage in by_split.items() if coverage.is_poor}
    for text, coverage in (poor or {name: sum(by_split.values(), Coverage())}).items():
        report_coverage(coverage, text, VOCABULARY_ADVICE)


def warn_about_few_examples(task: Task, examples: Mapping[str, EncodedExamples]) -> None:
    """Log a warning for each scored split with fewer than FEW_EXAMPLES examples."""
    for split in task.scored_splits:
        number = examples[split].counts.get("questions", len(examples[split]))
        if number < FEW_EXAMPLES:
            log.warning(
                f"{task.name}: only {format_count(number, 'example')} in {split}: each changes an accuracy by "
                f"{1 / number:.0%}, so scores are rough; more examples help (a larger --dev file, or --dev-share)",
                extra={"code": "few-examples"},
            )


def warn_about_untrained_positions(directory: Path, task: Task, examples: Mapping[str, EncodedExamples]) -> None:
    """Log a warning if examples are longer than the sequences of pre-training."""
    length = read_pretrained_length(directory)
    if length is None:
        return
    longer = {split: sum(len(ids) > length for ids in each.input_ids) for split, each in examples.items()}
    if any(longer.values()):
        shares = ", ".join(
            f"{number:,} of {len(examples[split].input_ids):,} in {split}" for split, number in longer.items()
        )
        log.warning(
            f"{task.name}: examples longer than the {length} tokens of the sequences that {directory} was pre-trained on: "
            f"{shares}; its later positions were never trained in pre-training. Use --max-length {length}, or a model "
            "pre-trained with a larger --seq-len",
            extra={"code": "longer-than-pretraining"},
        )


def report_defaults(
    config: FinetuneConfig, hyperparameters: Hyperparameters, encoder: EncoderConfig, examples: int
) -> None:
    """Log the hyperparameters that the configuration leaves open, and where their values are from."""
    open_ones = {name: value for name, value in asdict(hyperparameters).items() if getattr(config, name) is None}
    values = ", ".join(
        f"--{name.replace('_', '-')} {value if isinstance(value, str) else format(value, 'g')}"
        for name, value in open_ones.items()
        if value is not None
    )
    if values:
        log.info(
            f"{config.task}: defaults for a hidden size of {encoder.hidden_size} and "
            f"{format_count(examples, 'training example')}, from {find_size_recipe(encoder).source}: {values}",
            extra={"code": "defaults"},
        )


def report_head(task: Task, spec: TaskSpec, encoder: EncoderConfig) -> None:
    """Log, before training, if no Hugging Face class will be able to read the fine-tuned model."""
    if spec.export(task.build_head(encoder), task.get_settings()) is None:
        hint = f" ({spec.export_hint})" if spec.export_hint else ""
        log.info(
            f"{task.name}: no class of Hugging Face has this head; electra predict reads the model{hint}",
            extra={"code": "no-hf-class"},
        )
