"""Text classification and regression: a class, any number of labels, or a number, for a text or a pair of texts."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.metrics import confusion_matrix
from torch import nn

from electra.errors import DataError, UsageError
from electra.finetuning.batching import EncodedExamples
from electra.finetuning.classification.heads import LabelKind, TextClassificationHead
from electra.finetuning.classification.inference import SavedClassification, encode_pairs, format_prediction
from electra.finetuning.classification.metrics import compute_scores
from electra.finetuning.recipe import DROPOUT, TEXTS
from electra.finetuning.task import Outputs, Prediction
from electra.finetuning.training.class_weights import compute_chance_loss, resolve_class_weights
from electra.model.encoder import EncoderConfig
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

MAX_RESIDUALS = 2_000
"""Largest number of examples of which the report has residuals."""


@dataclass(frozen=True)
class LabeledTexts:
    """The texts of one split with their labels."""

    first: list[str]
    second: list[str] | None
    """Second text of each pair; None if the task reads single texts."""
    labels: np.ndarray | None
    """Class indices [N], zeros and ones [N, C] (multilabel) or numbers [N]; None if unknown (a test split)."""
    ids: list[str] = field(default_factory=list)
    """Ids in the file; if empty, the ids are the numbers of the examples, from 0."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Counts for results.json."""

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True)
class TextClassification:
    """Classification or regression of texts or pairs of texts; implements `task.Task`."""

    name: str
    kind: LabelKind
    labels: tuple[str, ...]
    """Names of the classes or labels, in the order of the logits; empty for regression."""
    metrics: tuple[str, ...]
    """Names in `metrics.METRICS`, the main metric first."""
    read: Callable[[str], LabeledTexts]
    """Returns the examples of a split."""
    tokenizer: Tokenizer
    max_length: int = TEXTS.max_length
    dropout: float = DROPOUT
    columns: tuple[str, ...] = ()
    """Columns of the texts in a table, saved for prediction."""
    scored_splits: tuple[str, ...] = ("dev",)
    """See `task.Task`."""
    predicted_splits: tuple[str, ...] = ()
    """See `task.Task`."""
    swap_pairs: bool = False
    """Train on every pair in both orders (Appendix B), for tasks in which the order has no meaning."""
    pooling: str = "cls"
    """A key of `pooling.POOLINGS`."""
    shift: float = 0.0
    scale: float = 1.0
    """Regression: the head predicts a number y as (y - shift) / scale."""
    class_weights: tuple[float, ...] | None = None
    """Classification: factor of the loss of each class."""

    @property
    def main_metric(self) -> str:
        """See `task.Task`."""
        return self.metrics[0]

    def build_head(self, encoder: EncoderConfig) -> nn.Module:
        """See `task.Task`."""
        outputs = len(self.labels) or 1
        return TextClassificationHead(
            self.kind,
            encoder.hidden_size,
            outputs,
            self.dropout,
            self.shift,
            self.scale,
            self.pooling,
            self.class_weights,
        )

    def read_training_labels(self) -> np.ndarray:
        """Read the labels of train.

        Raises:
            DataError: the split is missing, empty or malformed.
        """
        labels = self.read("train").labels
        assert labels is not None
        return labels

    def compute_chance_loss(self) -> float:
        """Compute the training loss of the best constant prediction: class probabilities, or the mean of the numbers."""
        labels = self.read_training_labels()
        if self.kind == "regression":
            return float(np.var((labels.astype(np.float64) - self.shift) / self.scale))
        if self.kind == "multilabel":
            present = labels.mean(0, dtype=np.float64)
            return sum(compute_chance_loss(np.array([share, 1 - share]), None) for share in present)
        return compute_chance_loss(np.bincount(labels, minlength=len(self.labels)) / len(labels), self.class_weights)

    def weigh_classes(self, given: Sequence[str]) -> "TextClassification":
        """Return the task with the class weights of the option --class-weights.

        Raises:
            UsageError: the labels are not classes, or the weights are wrong.
            DataError: train cannot be read.
        """
        if given and self.kind != "classification":
            raise UsageError("meaningless-option", f"--class-weights needs classes, and {self.name} is {self.kind}")
        labels = self.read_training_labels() if given else np.empty(0)
        return replace(self, class_weights=resolve_class_weights(given, self.labels, labels))

    def encode(self, split: str) -> EncodedExamples:
        """See `task.Task`; logs a warning if texts are truncated at `max_length` tokens.

        Raises:
            DataError: the split is missing, empty or malformed.
        """
        texts = self.read(split)
        if not len(texts):
            raise DataError("empty-split", f"{self.name}: the {split} split is empty")
        input_ids, segment_a, truncated = encode_pairs(self.tokenizer, texts.first, texts.second, self.max_length)
        if truncated:
            log.warning(
                f"{self.name}: {truncated:,} of {len(input_ids):,} {split} texts are cut at {self.max_length} tokens "
                "(--max-length)",
                extra={"code": "truncated"},
            )
        targets = {} if texts.labels is None else {"label": texts.labels}
        if split == "train" and self.swap_pairs and texts.second is not None:
            swapped, swapped_a, _ = encode_pairs(self.tokenizer, texts.second, texts.first, self.max_length)
            input_ids, segment_a = input_ids + swapped, segment_a + swapped_a
            targets = {name: np.concatenate([target, target]) for name, target in targets.items()}
        return EncodedExamples(input_ids, segment_a, targets, {"cut": truncated, **texts.counts})

    def score(self, split: str, outputs: Outputs) -> dict[str, float]:
        """See `task.Task`.

        Raises:
            DataError: the split has no labels.
        """
        targets = self.read(split).labels
        if targets is None:
            raise DataError("no-labels", f"{self.name}: the {split} split has no labels to score")
        assert len(targets) == len(outputs)
        return compute_scores(self.metrics, self.decode(self.get_logits(split, outputs)), targets)

    def describe_errors(self, split: str, outputs: Outputs) -> dict[str, Any]:
        """Count labels and predictions as a confusion matrix, or list numbers and predictions; nothing for several labels."""
        targets, predicted = self.read(split).labels, self.decode(self.get_logits(split, outputs))
        if targets is None or self.kind == "multilabel":
            return {}
        if self.kind == "regression":
            pairs = (each[:MAX_RESIDUALS].astype(np.float64).tolist() for each in (targets, predicted))
            return {"residuals": dict(zip(("targets", "predicted"), pairs, strict=True))}
        counts = confusion_matrix(targets, predicted, labels=range(len(self.labels)))
        return {"confusion": {"labels": list(self.labels), "counts": counts.tolist()}}

    def decode(self, logits: np.ndarray) -> np.ndarray:
        """Decode logits [N, C] into class indices [N], zeros and ones [N, C], or numbers [N]."""
        if self.kind == "classification":
            return logits.argmax(1)
        return (logits > 0).astype(np.int64) if self.kind == "multilabel" else logits[:, 0]

    def format_predictions(self, split: str, outputs: Outputs) -> list[Prediction]:
        """See `task.Task`; labels have probabilities."""
        ids = self.read(split).ids or [str(i) for i in range(len(outputs))]
        return [
            {"id": id, **format_prediction(self.kind, self.labels, output["logits"])}
            for id, output in zip(ids, outputs, strict=True)
        ]

    def get_logits(self, split: str, outputs: Outputs) -> Float[np.ndarray, "N C"]:
        """See `task.Task`."""
        return np.stack([output["logits"] for output in outputs])

    def get_settings(self) -> Mapping[str, Any]:
        """See `task.Task`."""
        pairs, columns = self.read("train").second is not None, list(self.columns) or None
        labels = list(self.labels)
        return asdict(SavedClassification(self.name, self.kind, labels, self.max_length, pairs, columns, self.pooling))


def parse_number(label: str) -> float:
    """Parse a label as a number.

    Raises:
        ValueError: it is not a finite number.
    """
    number = float(label)
    if not math.isfinite(number):
        raise ValueError
    return number
