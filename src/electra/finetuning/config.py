"""The whole configuration of a fine-tuning run. What is not given follows the paper's protocol (Table 7)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from electra.config.checks import check_limits, check_local
from electra.config.options import fixed
from electra.config.resolve import resolve
from electra.errors import UsageError
from electra.finetuning.classification.glue import GLUE
from electra.finetuning.qa.config import SpanConfig
from electra.runtime import RuntimeConfig

TASKS = (*GLUE, "ax", "squad1", "squad2", "mrqa", "chunk", "ner", "pos", "table", "tagging")


@dataclass(frozen=True)
class FinetuneConfig:
    """One fine-tuning run."""

    task: str = fixed("")
    """cola sst2 mrpc stsb qqp mnli qnli rte wnli ax, squad1 squad2 mrqa, chunk ner pos, or one's own: table, tagging."""
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
    """Task table: what the labels mean; by default found from them, and said."""
    skip_bad_rows: bool = False
    """Leave out (and count) training rows with another number of columns than the first, instead of stopping."""
    dev_share: float = 0.1
    """Share of the training examples that is held out where there is no dev file."""
    split_seed: int = 0
    """Decides which examples are held out: the same ones for every seed."""
    seed: int = 0
    """Decides the head's initial weights, the order of the examples and dropout."""
    epochs: float | None = None
    """Passes over the training examples; by default 10 for RTE and STS-B, 2 for SQuAD, 3 for all else."""
    learning_rate: float | None = None
    """Peak learning rate; by default 3e-4, 1e-4 or 5e-5 for a model of the size of Small, Base or Large."""
    layerwise_decay: float | None = None
    """What each layer's learning rate is of that of the layer above; by default 0.8, and 0.9 for Large."""
    batch_size: int = 32
    """Examples of one update."""
    warmup: float = 0.1
    """Share of the updates in which the learning rate rises."""
    weight_decay: float = 0.0
    """Decoupled weight decay."""
    bias_correction: bool = False
    """Correct Adam's moments for starting at zero; the published scores were made without it."""
    dropout: float = 0.1
    """Dropout of hidden states, attention and the head of sentence tasks."""
    max_length: int | None = None
    """Tokens of an example; by default 128 for sentences, 256 for tagging, 512 for SQuAD, or what the model can read."""
    swap_pairs: bool | None = None
    """Train on pairs in both orders (Appendix B); by default for MRPC and STS-B."""
    summed_loss: bool = False
    """Sum the loss over the batch before gradients are clipped at norm 1, as the original code does."""
    select: Literal["last", "best"] = "last"
    """The weights that are kept: the last ones, or those of the epoch that is best on dev (the scores then flatter)."""
    span: SpanConfig = field(default_factory=SpanConfig)
    """Question answering: chunks, head and answers."""
    wnli_candidates: bool = False
    """WNLI: score the sentence with the pronoun replaced by candidate antecedents (Appendix B)."""
    from_scratch: bool = False
    """Random weights of the model's sizes: what pre-training is compared with."""
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    """Device and precision."""

    def __post_init__(self) -> None:
        if self.task and self.task not in TASKS:
            raise UsageError(f"there is no task {self.task!r}; there are {', '.join(TASKS)}")
        for name, least in (("epochs", 0.0), ("learning_rate", 0.0), ("layerwise_decay", 0.0), ("batch_size", 0)):
            if (value := getattr(self, name)) is not None and not value > least:
                raise UsageError(f"--{name.replace('_', '-')} is {value}; it must be more than {least:g}")
        for name in ("warmup", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"--{name} is {getattr(self, name)}; it must be at least 0 and less than 1")
        if not 0 < self.dev_share < 1:
            raise UsageError(f"--dev-share is {self.dev_share}; it must lie between 0 and 1")
        for name in ("seed", "split_seed", "weight_decay"):
            if not getattr(self, name) >= 0:
                raise UsageError(f"--{name.replace('_', '-')} is {getattr(self, name)}; it must not be negative")
        check_local({f"--{name}": getattr(self, name) for name in ("model", "train", "dev", "test")}, "--model")
        if self.task not in (*GLUE, "ax", ""):
            check_local({"--data": self.data})
        check_limits(
            self, "--", epochs=10**6, learning_rate=100, layerwise_decay=1, batch_size=10**7, weight_decay=1000
        )
        check_limits(self, "--", seed=2**63 - 1, split_seed=2**63 - 1, max_length=10**7)
        self.check_belonging()
        if self.max_length is not None and self.max_length < 5:
            raise UsageError(f"--max-length is {self.max_length}; it must be at least 5")

    def check_belonging(self) -> None:
        """See that no option is given that the task would not use.

        Raises:
            UsageError: there is one.
        """
        if not self.task:
            return
        own = self.task in ("table", "tagging")
        belongs = {
            "data": not own,
            "train": self.task not in GLUE and self.task != "ax",
            "dev": self.task not in GLUE and self.task != "ax",
            "test": self.task not in GLUE and self.task != "ax",
            **dict.fromkeys(("text", "text_pair", "label", "kind"), self.task == "table"),
            "skip_bad_rows": self.task in GLUE or self.task in ("ax", "table"),
            "wnli_candidates": self.task == "wnli",
            "swap_pairs": self.task in GLUE or self.task in ("ax", "table"),
        }
        for name, fits in belongs.items():
            if not fits and getattr(self, name) not in (None, False):
                raise UsageError(f"--{name.replace('_', '-')} has no meaning for {self.task}")
        if self.data and (self.train or self.dev or self.test):
            raise UsageError("give either --data, a folder, or single files with --train, --dev and --test")


def from_options(task: str, given: Mapping[str, Any], command: str = "finetune") -> FinetuneConfig:
    """The configuration of a task out of options by name, nested ones as in `electra.config.resolve.resolve`.

    Raises:
        UsageError: a wrong name or value.
    """
    return resolve(FinetuneConfig(task=task), {}, given, command=command)
