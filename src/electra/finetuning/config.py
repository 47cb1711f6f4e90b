"""The configuration of a fine-tuning run. What is not given follows the paper's recipe (Table 7; see `recipe`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from electra.config.checks import check_limits, check_local
from electra.config.options import choice_field, fixed_field
from electra.config.resolve import resolve
from electra.errors import UsageError
from electra.finetuning.qa.config import SpanConfig
from electra.finetuning.recipe import BATCH_SIZE, DROPOUT, WARMUP, WEIGHT_DECAY
from electra.runtime.setup import RuntimeConfig
from electra.train.trackers import TRACKERS, check_trackers

MIN_LENGTH = 5
"""Tokens that every model reads at least: `[CLS] a [SEP] b [SEP]`."""


@dataclass(frozen=True)
class FinetuneConfig:
    """One fine-tuning run."""

    task: str = fixed_field("")
    """Its name in `electra.finetuning.registry.TASKS`."""
    model: str = ""
    """Hugging Face ELECTRA directory, run directory, or hub name."""
    data: str | None = None
    """Folder of the task's data in its ordinary layout, or hf://NAME for GLUE out of the hub."""
    train: str | None = None
    """Training file, instead of --data."""
    dev: str | None = None
    """File that is scored; without one, a share of a table's training rows is held out."""
    test: str | None = None
    """File that is predicted, with or without labels."""
    text: str | None = None
    """Task table: column of the text."""
    text_pair: str | None = None
    """Task table: column of the second text of a pair."""
    label: str | None = None
    """Task table: column of the label."""
    kind: Literal["classification", "multilabel", "regression"] | None = None
    """Task table: what the labels are; by default inferred from them, and logged."""
    skip_bad_rows: bool = False
    """Leave out (and count) training rows with another number of columns than the first, instead of stopping."""
    dev_share: float = 0.1
    """Share of the training examples that is held out as dev where there is no dev file."""
    split_seed: int = 0
    """Seed of the choice of the examples that are held out: the same ones for every `seed`."""
    seed: int = 0
    """Seed of the head's initial weights, the order of the examples and dropout."""
    epochs: float | None = None
    """Passes over the training examples; by default 10 for RTE and STS-B, 2 for SQuAD, 3 for all else."""
    learning_rate: float | None = None
    """Peak learning rate; by default 3e-4, 1e-4 or 5e-5 for the sizes Small, Base and Large."""
    layerwise_decay: float | None = None
    """Factor of the learning rate from each layer to the one below; by default 0.8, and 0.9 for Large."""
    batch_size: int = BATCH_SIZE
    """Examples of one step."""
    warmup: float = WARMUP
    """Share of the steps in which the learning rate rises."""
    weight_decay: float = WEIGHT_DECAY
    """Decoupled weight decay."""
    bias_correction: bool = False
    """Correct Adam's moments for starting at zero; the published scores were made without it."""
    dropout: float = DROPOUT
    """Dropout of hidden states, attention and the head of text classification."""
    max_length: int | None = None
    """Tokens of an example; by default 128 for texts, 256 for tagging, 512 for questions, at most the model's positions."""
    swap_pairs: bool | None = None
    """Train on pairs in both orders (Appendix B); by default for MRPC and STS-B."""
    summed_loss: bool = False
    """Sum the loss over the batch before gradients are clipped at norm 1, as the original code does."""
    select: Literal["last", "best"] = "last"
    """Weights to keep: the last ones, or those of the epoch with the best dev score (which biases that score upwards)."""
    span: SpanConfig = field(default_factory=SpanConfig)
    """Question answering: chunks, head and answers."""
    from_scratch: bool = False
    """Start from random weights of the model's sizes, as a baseline for pre-training."""
    log_to: tuple[str, ...] = choice_field(("tensorboard",), lambda: TRACKERS)
    """Trackers that receive the metrics, beside metrics.jsonl: tensorboard; wandb or trackio, if installed."""
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    """Device and precision."""

    def __post_init__(self) -> None:
        for name, least in (("epochs", 0.0), ("learning_rate", 0.0), ("layerwise_decay", 0.0), ("batch_size", 0)):
            if (value := getattr(self, name)) is not None and not value > least:
                raise UsageError(
                    "out-of-range", f"--{name.replace('_', '-')} is {value}; it must be more than {least:g}"
                )
        for name in ("warmup", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(
                    "out-of-range", f"--{name} is {getattr(self, name)}; it must be at least 0 and less than 1"
                )
        if not 0 < self.dev_share < 1:
            raise UsageError("out-of-range", f"--dev-share is {self.dev_share}; it must be between 0 and 1")
        for name in ("seed", "split_seed", "weight_decay"):
            if not getattr(self, name) >= 0:
                raise UsageError(
                    "out-of-range", f"--{name.replace('_', '-')} is {getattr(self, name)}; it must not be negative"
                )
        check_local({f"--{name}": getattr(self, name) for name in ("model", "train", "dev", "test")}, "--model")
        check_limits(
            self, "--", epochs=10**6, learning_rate=100, layerwise_decay=1, batch_size=10**7, weight_decay=1000
        )
        check_limits(self, "--", seed=2**63 - 1, split_seed=2**63 - 1, max_length=10**7)
        check_trackers(self.log_to)
        if self.max_length is not None and self.max_length < MIN_LENGTH:
            raise UsageError("out-of-range", f"--max-length is {self.max_length}; it must be at least {MIN_LENGTH}")


def from_options(task: str, given: Mapping[str, Any], command: str = "finetune") -> FinetuneConfig:
    """The configuration of a task out of options by name, nested ones as in `electra.config.resolve.resolve`.

    Raises:
        UsageError: a wrong name or value.
    """
    return resolve(FinetuneConfig(task=task), {}, given, command=command)
