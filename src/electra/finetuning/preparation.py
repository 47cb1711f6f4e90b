"""What the runs of all seeds share: task, encoded splits and pre-trained encoder, read and checked before training begins."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from electra.errors import DataError, ModelError, UsageError
from electra.finetuning.batching import Features
from electra.finetuning.checks import (
    report_head,
    report_vocabulary,
    warn_of_few_scored,
    warn_of_untrained_positions,
)
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.recipe import size_protocol
from electra.finetuning.registry import EPOCHS, build_task
from electra.finetuning.task import Task
from electra.model.checkpoints import Pretrained, load_pretrained
from electra.model.encoder import Encoder, EncoderConfig
from electra.text.tokenizer import Tokenizer, load_tokenizer

log = logging.getLogger(__name__)


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


@dataclass(frozen=True)
class Prepared:
    """The same for every seed; no run changes it."""

    protocol: Protocol
    task: Task
    features: dict[str, Features]
    """Of every split that is trained on, scored or predicted."""
    tokenizer: Tokenizer
    encoder: Encoder
    """As it was pre-trained; each run trains a copy."""


def prepare(config: FinetuneConfig, directory: Path) -> Prepared:
    """Read the model in `directory` and every split; nothing is written, and the seed plays no part.

    Raises:
        ModelError: the model is of another architecture, or damaged.
        DataError: a split is missing, empty or broken.
        UsageError: options clash.
    """
    tokenizer, pretrained = load_tokenizer(directory), load_pretrained(directory)
    encoder = load_encoder(pretrained, config, tokenizer)
    task = build_task(config, tokenizer, pretrained)
    if config.select == "best" and "dev" not in task.scored:
        raise UsageError("--select best chooses by dev scores, and there is no dev file; give --dev")
    if config.task == "ax" and not task.predicted:
        raise UsageError(f"{config.data}: no AX/diagnostic.tsv here")
    features = {split: task.features(split) for split in ("train", *task.scored, *task.predicted)}
    for split, each in features.items():
        if not len(each):
            raise DataError(f"{config.task}: there is nothing in the {split} split that the task can use")
    report_vocabulary(task.name, features, tokenizer)
    warn_of_few_scored(task, features)
    if not config.from_scratch:
        warn_of_untrained_positions(directory, task, features)
    report_head(task.head(encoder.config), task)
    return Prepared(Protocol.of(config, encoder.config), task, features, tokenizer, encoder)


def load_encoder(pretrained: Pretrained, config: FinetuneConfig, tokenizer: Tokenizer) -> Encoder:
    """The encoder of a pre-trained model, with this run's dropout.

    Raises:
        ModelError: the tokenizer has more tokens than there are embeddings.
    """
    directory = pretrained.directory
    sizes = replace(pretrained.config, dropout=config.dropout, attention_dropout=config.dropout)
    if tokenizer.vocab_size > sizes.vocab_size:
        raise ModelError(f"{directory}: {tokenizer.vocab_size:,} tokens, but embeddings of {sizes.vocab_size:,} only")
    encoder = Encoder(sizes)
    state = {name.removeprefix("encoder."): tensor for name, tensor in pretrained.state("ElectraModel").items()}
    encoder.load_state_dict(state)
    log.info(
        f"{'sizes' if config.from_scratch else 'encoder'} of {directory} "
        f"({sizes.num_layers} layers of {sizes.hidden_size}{', random weights' * config.from_scratch})"
    )
    return encoder
