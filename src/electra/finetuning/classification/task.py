"""Text classification: one of several classes, labels that may go together, or a number, for a text or a pair."""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import nn

from electra.errors import DataError
from electra.finetuning.batching import EncodedExamples
from electra.finetuning.classification.heads import Kind, TextClassificationHead
from electra.finetuning.classification.inference import SavedClassification, encode_pairs, format_prediction
from electra.finetuning.classification.metrics import compute_scores
from electra.finetuning.recipe import DROPOUT, TEXTS
from electra.finetuning.task import Outputs, Record
from electra.model.encoder import EncoderConfig
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LabeledTexts:
    """The examples of one split."""

    first: list[str]
    second: list[str] | None
    """The second text of each pair; None where the task reads single texts."""
    labels: np.ndarray | None
    """[N] class numbers or numbers, [N, C] zeros and ones; None where they are unknown (a test split)."""
    ids: list[str] = field(default_factory=list)
    """The ids in the file; where empty, the number of each example."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Counts for the results."""

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True)
class TextClassification:
    """A task over texts or pairs: classes, labels that may go together, or a number; implements `task.Task`."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    """The classes, in the order of the logits; empty for a number."""
    metrics: tuple[str, ...]
    """Names in `metrics.METRICS`; the first one is the main one."""
    read: Callable[[str], LabeledTexts]
    """The examples of a split."""
    tokenizer: Tokenizer
    max_length: int = TEXTS.max_length
    dropout: float = DROPOUT
    columns: tuple[str, ...] = ()
    """The columns of the texts in a table, saved for predicting."""
    scored: tuple[str, ...] = ("dev",)
    """See `task.Task`."""
    predicted: tuple[str, ...] = ()
    """See `task.Task`."""
    swap_pairs: bool = False
    """Train on every pair in both orders (Appendix B), for tasks in which the order has no meaning."""
    shift: float = 0.0
    scale: float = 1.0
    """The target of a number y is (y - shift) / scale."""

    @property
    def main_metric(self) -> str:
        """The metric of the paper's tables."""
        return self.metrics[0]

    def head(self, encoder: EncoderConfig) -> nn.Module:
        """See `task.Task`."""
        outputs = len(self.labels) or 1
        return TextClassificationHead(self.kind, encoder.hidden_size, outputs, self.dropout, self.shift, self.scale)

    def encode(self, split: str) -> EncodedExamples:
        """See `task.Task`; warns of texts that are truncated at `max_length`."""
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
        """The task's metrics over all examples of the split."""
        targets = self.read(split).labels
        if targets is None:
            raise DataError("no-labels", f"{self.name}: the {split} split has no labels to score")
        assert len(targets) == len(outputs)
        return compute_scores(self.metrics, self.decode(self.logits(split, outputs)), targets)

    def decode(self, logits: np.ndarray) -> np.ndarray:
        """Class numbers, zeros and ones, or numbers, from logits [N, C]."""
        if self.kind == "classification":
            return logits.argmax(1)
        return (logits > 0).astype(np.int64) if self.kind == "multilabel" else logits[:, 0]

    def predictions(self, split: str, outputs: Outputs) -> list[Record]:
        """The prediction for each example, with probabilities."""
        ids = self.read(split).ids or [str(i) for i in range(len(outputs))]
        return [
            {"id": id, **format_prediction(self.kind, self.labels, output["logits"])}
            for id, output in zip(ids, outputs, strict=True)
        ]

    def logits(self, split: str, outputs: Outputs) -> Float[np.ndarray, "N C"]:
        """See `task.Task`."""
        return np.stack([output["logits"] for output in outputs])

    def settings(self) -> Mapping[str, Any]:
        """See `task.Task`."""
        pairs, columns = self.read("train").second is not None, list(self.columns) or None
        return asdict(SavedClassification(self.name, self.kind, list(self.labels), self.max_length, pairs, columns))


def parse_number(label: str) -> float:
    """A label as a number. Raises ValueError where it is not a finite number."""
    number = float(label)
    if not math.isfinite(number):
        raise ValueError
    return number
