"""The interfaces of fine-tuning: `Task` and `Head` for training, `SavedTask` for inference, `TaskSpec` for a kind of task.

A new kind of task is a `TaskSpec` in `registry.TASKS`; nothing else lists tasks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from electra.finetuning.batching import EncodedExamples, LabeledBatch
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.recipe import TEXTS, TaskRecipe
from electra.model.checkpoints import Pretrained
from electra.model.encoder import EncoderConfig
from electra.text.tokenizer import Tokenizer

Outputs = list[dict[str, np.ndarray]]
"""The outputs of a head for each example, by name; arrays over tokens may be padded."""
Record = dict[str, Any]
"""The prediction for one example, as JSON."""
Values = str | Mapping[str, Any] | Iterable[Any]
"""Inputs from Python: a string or a mapping is one input, any other iterable is many."""


@runtime_checkable  # for the type checks under test, as below
class Head(Protocol):
    """The layers on the encoder: an `nn.Module`, initialized as in the original code (Glorot uniform, zero biases)."""

    only_cls: bool
    """Whether it reads the hidden state of [CLS] alone: then `hidden` has no other."""

    def loss(self, hidden: Float[Tensor, "B Q H"], batch: LabeledBatch) -> Float[Tensor, " B"]:
        """The loss of each example."""

    def predict(self, hidden: Float[Tensor, "B Q H"], batch: LabeledBatch) -> dict[str, Tensor]:
        """Outputs by name: tensors whose first dimension is the example. `batch` has no targets."""


@runtime_checkable
class Task(Protocol):
    """The data of one task, its head and its scores, for training."""

    @property
    def name(self) -> str:
        """Its name in `registry.TASKS`."""

    @property
    def main_metric(self) -> str:
        """The metric of `score` that tables show."""

    @property
    def scored(self) -> tuple[str, ...]:
        """Splits with labels that are scored after training, the main one first."""

    @property
    def predicted(self) -> tuple[str, ...]:
        """Splits that are predicted and not scored."""

    def head(self, encoder: EncoderConfig) -> nn.Module:
        """A newly initialized `Head`."""

    def encode(self, split: str) -> EncodedExamples:
        """The examples of "train", of one of `scored`, or of one of `predicted` (whose targets may be empty).

        Raises:
            DataError: the split is missing, empty or broken; the message names file and line.
        """

    def score(self, split: str, outputs: Outputs) -> dict[str, float]:
        """Metrics in percent, over all examples of the split, from the outputs for `encode(split)` in their order."""

    def predictions(self, split: str, outputs: Outputs) -> list[Record]:
        """A prediction for each example of the split, as written to `predictions-SPLIT.jsonl`."""

    def logits(self, split: str, outputs: Outputs) -> Float[np.ndarray, "N C"] | None:
        """The logits that an ensemble averages over runs; None where averaging has no meaning."""

    def settings(self) -> Mapping[str, Any]:
        """The fields of the task's `SavedTask`, as JSON."""


@runtime_checkable
class PredictOptions(Protocol):
    """The options of predicting that depend on the task; see `inference.config.PredictConfig`."""

    @property
    def text(self) -> str | None: ...
    @property
    def text_pair(self) -> str | None: ...
    @property
    def form(self) -> str: ...
    @property
    def null_threshold(self) -> float | None: ...


@runtime_checkable
class SavedTask(Protocol):
    """A task as a fine-tuned directory has it: a dataclass whose fields are those of `task.json`, validated by pydantic."""

    @property
    def max_length(self) -> int:
        """Tokens of the longest example."""

    def head(self, encoder: EncoderConfig, kind: str) -> nn.Module:
        """The head whose weights are read next; `kind` is that of the Hugging Face class in config.json."""

    def read_file(self, file: str, options: PredictOptions) -> Iterator[Any]:
        """The examples in a file ("-" is standard input), read as the iterator is advanced.

        Raises:
            DataError: an example cannot be read; the message names file and line.
        """

    def read_values(self, values: Values, options: PredictOptions) -> Iterator[Any]:
        """The examples in values from Python.

        Raises:
            DataError: a value is not an example.
        """

    def predict(
        self,
        examples: list[Any],
        tokenizer: Tokenizer,
        compute: Callable[[EncodedExamples], Outputs],
        options: PredictOptions,
    ) -> list[Record]:
        """A prediction for each of some examples; `compute` returns the outputs of the head."""


@dataclass(frozen=True)
class HuggingFaceHead:
    """A head as a class of Hugging Face has it."""

    kind: str
    """A key of `electra.model.architecture.Architecture.classes`."""
    weights: Mapping[str, Tensor]
    """By our names, without `head.`."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """More entries of config.json."""


@dataclass(frozen=True)
class TaskSpec:
    """One kind of task: all that the package knows of it."""

    build: Callable[[FinetuneConfig, Tokenizer, Pretrained, int], Task]
    """The task of a configuration, over its data, with examples of at most so many tokens.

    Raises UsageError where an option is missing, DataError where the data is missing or broken.
    """
    recipe: TaskRecipe = TEXTS
    options: frozenset[str] = frozenset({"train", "dev", "test"})
    """The options of `registry.TASK_OPTIONS` that it uses; others are refused."""
    reads_hub: bool = False
    """Whether --data may be hf://NAME."""
    data_folders: Callable[[Path], list[Path]] = lambda data: [data]
    """The folders in --data whose files a run reads; their checksums are saved."""
    saved: type[Any] | None = None
    """Its `SavedTask`; None: a fine-tuned model does not predict new examples."""
    predict_options: frozenset[str] = frozenset()
    """The fields of `PredictOptions` that it uses."""
    head: str = "none"
    """The kind of head that `export` returns, a key of `electra.model.architecture.Architecture.classes`."""
    export: Callable[[nn.Module, Mapping[str, Any]], HuggingFaceHead | None] = lambda head, settings: None
    """A head, with the task's settings, as a class of Hugging Face has it; None: its weights are saved beside the encoder."""
    export_hint: str = ""
    """What to do where `export` returns None, for a message."""
    from_hugging_face: Callable[[list[str], str | None, int], SavedTask] | None = None
    """The task of a model that others fine-tuned, from its labels, `problem_type` and positions."""


def label_config(labels: Sequence[str]) -> dict[str, Any]:
    """The names of the logits in config.json."""
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }
