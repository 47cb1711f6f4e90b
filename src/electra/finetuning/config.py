"""The configuration of a fine-tuning run. Hyperparameters that are None have the defaults of `recipe`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from electra.config.checks import check_local, check_range
from electra.config.options import choice_field, fixed_field
from electra.config.resolve import resolve
from electra.finetuning.classification.pooling import POOLINGS
from electra.finetuning.embedding.config import EmbeddingConfig
from electra.finetuning.qa.config import SpanConfig
from electra.finetuning.recipe import BATCH_SIZE, DROPOUT, WARMUP, WEIGHT_DECAY
from electra.finetuning.training.class_weights import parse_class_weights
from electra.runtime.setup import RuntimeConfig
from electra.train.trackers import TRACKERS, check_trackers

MIN_LENGTH = 5
"""Smallest maximum number of tokens of an example: `[CLS] a [SEP] b [SEP]`."""


@dataclass(frozen=True)
class FinetuneConfig:
    """The options of one fine-tuning run."""

    task: str = fixed_field("")
    """Name of the task in `electra.finetuning.registry.TASKS`."""
    model: str = ""
    """Hugging Face ELECTRA directory, run directory, or owner/name or owner/name@revision of the hub."""
    data: str | None = None
    """Folder of the task's data in its original layout, or hf://NAME for GLUE from the Hugging Face hub."""
    train: str | None = None
    """Training file, instead of `data`."""
    dev: str | None = None
    """File to score; without one, a share of the training examples is held out, or tagging scores a labeled test file."""
    test: str | None = None
    """File to predict, with or without labels."""
    text: str | None = None
    """Task table: column of the text; multiple-choice: column of the context, by default sent1, startphrase or context;
    embedding: column of the text."""
    text_pair: str | None = None
    """Task table: column of the second text of a pair; multiple-choice: of a text with which every ending begins, by default
    sent2 beside sent1; embedding: of a text with the same meaning."""
    label: str | None = None
    """Task table: column of the label; multiple-choice: of the number of the right ending, from 0, by default label;
    embedding: column with entailment, neutral or contradiction, by which pairs become positives and hard negatives."""
    kind: Literal["classification", "multilabel", "regression"] | None = None
    """Task table: the kind of labels; by default inferred from them and logged."""
    skip_bad_rows: bool = False
    """Skip and count training rows whose number of columns differs from that of the first line, instead of stopping."""
    dev_share: float = 0.1
    """Share of the training examples that is held out as dev if there is no dev file."""
    split_seed: int = 0
    """Seed of the choice of the held-out examples; they do not depend on `seed`."""
    seed: int = 0
    """Seed of the head's initial weights, the order of the examples and dropout."""
    epochs: float | None = None
    """Passes over the training examples; by default 10 for RTE and STS-B, 2 for question answering, 1 for embedding, 3 for
    other tasks, and for encoders narrower than 256 at least 10 over up to 10,000 examples."""
    learning_rate: float | None = None
    """Peak learning rate; by default 3e-4, 1e-4 or 5e-5 for the sizes Small, Base and Large, for narrower encoders 1e-3."""
    layerwise_decay: float | None = None
    """Ratio of the learning rate of each layer to that of the layer above; by default 0.8, for the size Large 0.9."""
    batch_size: int = BATCH_SIZE
    """Examples per step."""
    warmup: float = WARMUP
    """Share of the steps in which the learning rate increases."""
    weight_decay: float = WEIGHT_DECAY
    """Decoupled weight decay."""
    bias_correction: bool = False
    """Correct the bias of Adam's moments; the published scores were computed without it."""
    dropout: float = DROPOUT
    """Dropout probability of hidden states, attention and the head of text classification."""
    max_length: int | None = None
    """Maximum tokens of an example; by default 128 for texts, 256 for tagging, 512 for questions, or the model's positions if
    these are fewer."""
    pooling: str | None = choice_field(None, lambda: POOLINGS)
    """Text classification: the vector of a text is that of [CLS], the mean over its tokens, or a mean by learned attention;
    by default cls. Embedding: cls or mean, the default."""
    swap_pairs: bool | None = None
    """Train on pairs in both orders (Appendix B); by default for MRPC and STS-B."""
    summed_loss: bool = False
    """Sum the loss over the batch, as the original code does, instead of averaging; gradients are clipped at norm 1."""
    freeze: tuple[str, ...] = ()
    """Parameters that are not trained: patterns with the wildcards of a shell, which can begin after any dot of a name.
    embeddings.* are the embeddings, layers.0.* is the first layer, encoder.* all but the head."""
    select: Literal["last", "best"] = "last"
    """Weights to save: those of the last step, or of the epoch with the best dev score (which biases that score upwards)."""
    span: SpanConfig = field(default_factory=SpanConfig)
    """Question answering: windows, head and answers."""
    early_stopping: int | None = None
    """Stop after this many epochs without a better dev score, and save the weights of the best epoch as with --select best.
    The learning rate still falls over all of --epochs."""
    class_weights: tuple[str, ...] = ()
    """Classification and tagging: factors of the loss by class, "balanced" (N / (K n) for a class with n of N targets and K
    classes) or a number for each class in the order of the logits."""
    retry_failed_seeds: int = 0
    """Start a seed whose training failed (its loss in the last epoch is that of a constant prediction) again with another
    seed, at most this many times."""
    embedding: EmbeddingConfig = field(default_factory=EmbeddingConfig)
    """Embedding: the contrastive loss, and columns of its files."""
    from_scratch: bool = False
    """Start from random weights instead of the pre-trained ones, with the same sizes, as a baseline."""
    baseline: Literal["none", "simple", "random"] = "simple"
    """Scores to compare with. simple: the majority class and a linear model of TF-IDF, for tags each word's most frequent one;
    random: these, and the same network from random weights, which takes as long as the fine-tuning itself."""
    log_to: tuple[str, ...] = choice_field(("tensorboard",), lambda: TRACKERS)
    """Trackers that receive the metrics, beside metrics.jsonl: tensorboard; wandb or trackio, if installed."""
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    """Device and precision."""

    def __post_init__(self) -> None:
        check_range(self, "", "epochs", above=0, at_most=10**6)
        check_range(self, "", "learning_rate", above=0, at_most=100)
        check_range(self, "", "layerwise_decay", above=0, at_most=1)
        check_range(self, "", "batch_size", at_least=1, at_most=10**7)
        check_range(self, "", "warmup", "dropout", at_least=0, below=1)
        check_range(self, "", "dev_share", above=0, below=1)
        check_range(self, "", "seed", "split_seed", at_least=0, at_most=2**63 - 1)
        check_range(self, "", "weight_decay", at_least=0, at_most=1000)
        check_range(self, "", "max_length", at_least=MIN_LENGTH, at_most=10**7)
        check_local({f"--{name}": getattr(self, name) for name in ("model", "train", "dev", "test")})
        check_trackers(self.log_to)
        check_range(self, "", "early_stopping", at_least=1, at_most=10**6)
        check_range(self, "", "retry_failed_seeds", at_least=0, at_most=100)
        parse_class_weights(self.class_weights)

    @property
    def selects_best(self) -> bool:
        """Whether the weights of the epoch with the best dev score are saved."""
        return self.select == "best" or self.early_stopping is not None


def build_finetune_config(task: str, given: Mapping[str, Any], command: str = "finetune") -> FinetuneConfig:
    """Build the configuration of a task from options by name; nested names as in `electra.config.resolve.resolve`.

    Raises:
        UsageError: an unknown name or a wrong value; the message suggests options of `command`.
    """
    return resolve(FinetuneConfig(task=task), {}, given, command=command)
