"""Interfaces of fine-tuning: `Task` and `Head` for training, `SavedTask` for inference, `TaskSpec` for a kind of task.

A new kind of task is a `TaskSpec` in `registry.TASKS`; no other module has a list of the tasks.

Shapes: B examples of a batch, R rows of it (B, unless an example has several, see `EncodedExamples`), L tokens, H hidden size,
N examples of a split, C classes; Q is L, or 1 for a head that reads [CLS] alone.
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
"""For each example, the outputs of the head: name -> array. Arrays over tokens may be longer than the example (padding)."""
Prediction = dict[str, Any]
"""The prediction for one input, in JSON types."""
Values = str | Mapping[str, Any] | Iterable[Any]
"""Inputs from Python: a string or a mapping is one input, any other iterable a series of inputs."""


@runtime_checkable  # for the type checks under test, as below
class Head(Protocol):
    """Output layers on the encoder: an `nn.Module`, initialized as in the original code (Glorot uniform, zero biases)."""

    only_cls: bool
    """Whether it reads the hidden state of [CLS] alone; then `hidden` is [R, 1, H], else [R, L, H]."""

    def loss(self, hidden: Float[Tensor, "R Q H"], batch: LabeledBatch) -> Float[Tensor, " B"]:
        """Compute the loss of each example from the encoder's last hidden states."""

    def predict(self, hidden: Float[Tensor, "R Q H"], batch: LabeledBatch) -> dict[str, Tensor]:
        """Compute outputs by name, tensors [B, ...]; `batch` may have no targets."""


@runtime_checkable
class Task(Protocol):
    """One task for training: its examples, its head and its metrics."""

    @property
    def name(self) -> str:
        """Name in `registry.TASKS`."""

    @property
    def main_metric(self) -> str:
        """Metric of `score` that tables show and `--select best` maximizes."""

    @property
    def scored_splits(self) -> tuple[str, ...]:
        """Labeled splits that are scored after training, the main one (dev, if there is one) first."""

    @property
    def predicted_splits(self) -> tuple[str, ...]:
        """Splits that are predicted after training but not scored."""

    def build_head(self, encoder: EncoderConfig) -> nn.Module:
        """Build a newly initialized `Head` for an encoder of these sizes."""

    def encode(self, split: str) -> EncodedExamples:
        """Tokenize "train", one of `scored_splits`, or one of `predicted_splits` (whose targets may be empty).

        Raises:
            DataError: the split is missing, empty or malformed; the message names file and line.
        """

    def score(self, split: str, outputs: Outputs) -> dict[str, float]:
        """Compute metrics by name, in percent; `outputs` has an entry for each example of `encode(split)`, in order."""

    def format_predictions(self, split: str, outputs: Outputs) -> list[Prediction]:
        """Format the predictions of the split, as written to `predictions-SPLIT.jsonl`, from the outputs of the head."""

    def get_logits(self, split: str, outputs: Outputs) -> Float[np.ndarray, "N C"] | None:
        """Return the logits that an ensemble averages over runs; None for tasks without ensembles."""

    def get_settings(self) -> Mapping[str, Any]:
        """Return the content of `task.json`, from which inference builds the task's `SavedTask`: name -> JSON value."""


@runtime_checkable
class PredictOptions(Protocol):
    """Options of prediction that depend on the task; see `inference.config.PredictConfig`."""

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
    """A task for inference: a dataclass with the fields of `task.json`, validated by pydantic."""

    @property
    def max_length(self) -> int:
        """Maximum number of tokens of an example."""

    def build_head(self, encoder: EncoderConfig, kind: str) -> nn.Module:
        """Build the head into which weights are loaded; `kind` is that of the Hugging Face class in config.json."""

    def read_file(self, file: str, options: PredictOptions) -> Iterator[Any]:
        """Yield the inputs in a file ("-" is standard input); the file is read as the iterator advances.

        Raises:
            DataError: an input cannot be read; the message names file and line.
        """

    def read_values(self, values: Values, options: PredictOptions) -> Iterator[Any]:
        """Yield the inputs in values from Python.

        Raises:
            DataError: a value is of the wrong type; the message has its number, from 0.
        """

    def predict(
        self,
        examples: list[Any],
        tokenizer: Tokenizer,
        compute: Callable[[EncodedExamples], Outputs],
        options: PredictOptions,
    ) -> list[Prediction]:
        """Return a prediction for each input; `compute` runs the model and returns the outputs of its head."""


@dataclass(frozen=True)
class HuggingFaceHead:
    """A head in the form of a Hugging Face class."""

    kind: str
    """A key of `electra.model.architecture.Architecture.classes`."""
    weights: Mapping[str, Tensor]
    """Weights by the names of this package, without the prefix `head.`."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Additional entries of config.json."""


@dataclass(frozen=True)
class TaskSpec:
    """One kind of task: how it is built, which options it uses, how it is saved."""

    build: Callable[[FinetuneConfig, Tokenizer, Pretrained, int], Task]
    """Build the task from the configuration, the tokenizer, the pre-trained model and the maximum tokens of an example.

    It raises UsageError if an option is missing, DataError if data is missing or malformed.
    """
    recipe: TaskRecipe = TEXTS
    options: frozenset[str] = frozenset({"train", "dev", "test"})
    """Options of `registry.TASK_OPTIONS` that the task uses; the others raise an error."""
    reads_hub: bool = False
    """Whether --data may be hf://NAME."""
    list_data_folders: Callable[[Path], list[Path]] = lambda data: [data]
    """Folders in --data whose files a run may read; their checksums are saved with the run."""
    saved: type[Any] | None = None
    """The `SavedTask` class; None if a fine-tuned model cannot predict new inputs."""
    predict_options: frozenset[str] = frozenset()
    """Fields of `PredictOptions` that the task uses."""
    score_baselines: Callable[[Any, str], dict[str, dict[str, float]]] = lambda task, split: {}
    """Compute metrics of simple methods on a split of a task of this kind, by name of the method."""
    compute_chance_loss: Callable[[Any], float] | None = None
    """Compute the training loss of the best constant prediction for a task of this kind; None if no loss is known that only a
    run that has learned nothing has."""
    describe_errors: Callable[[Any, str, Outputs], dict[str, Any]] = lambda task, split, outputs: {}
    """Describe the errors on a split for the report: entries `confusion` or `residuals` of `run_directory.RunResults`."""
    head: str = "none"
    """Kind of head that `export` returns, a key of `electra.model.architecture.Architecture.classes`."""
    export: Callable[[nn.Module, Mapping[str, Any]], HuggingFaceHead | None] = lambda head, settings: None
    """Convert a head to a Hugging Face class, given `Task.get_settings()`; None: its weights are saved in their own file."""
    export_hint: str = ""
    """What to do if `export` returns None, for a message."""
    write_more: Callable[[Path, EncoderConfig, Mapping[str, Any]], None] = lambda directory, encoder, settings: None
    """Write further files into the directory of the saved model, given the sizes and `Task.get_settings()`."""
    from_hugging_face: Callable[[list[str], str | None, int], SavedTask] | None = None
    """Build the `SavedTask` of a model without `task.json`, from the labels, the `problem_type` and the number of positions in
    its config.json."""


def build_label_config(labels: Sequence[str]) -> dict[str, Any]:
    """Return the entries of config.json that name the logits."""
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }
