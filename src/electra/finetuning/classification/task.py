"""Tasks over a sentence or a pair: classes, labels that may go together, or a number."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.special import expit, softmax
from torch import nn

from electra.errors import DataError
from electra.finetuning.batching import Features, encode_in_parts
from electra.finetuning.classification.heads import Kind, SentenceHead
from electra.finetuning.classification.metrics import scores
from electra.finetuning.task import Outputs
from electra.model.encoder import EncoderConfig
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sentences:
    """The examples of one split."""

    first: list[str]
    second: list[str] | None
    """The second sentence of each pair; None where the task has one sentence."""
    labels: np.ndarray | None
    """[N] class numbers or numbers, [N, C] zeros and ones; None where nobody knows them (a test split)."""
    ids: list[str] = field(default_factory=list)
    """What the file calls each example; where empty, its number."""
    notes: Mapping[str, int] = field(default_factory=dict)
    """Counts that belong into the results."""

    def __len__(self) -> int:
        return len(self.first)


@dataclass(frozen=True)
class SentenceTask:
    """One such task; implements `task.Task`."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    """The classes, in the order of the logits; empty for a number."""
    metrics: tuple[str, ...]
    """Names in `metrics.METRICS`; the first one is the main one."""
    read: Callable[[str], Sentences]
    """The examples of a split."""
    tokenizer: Tokenizer
    max_length: int = 128
    dropout: float = 0.1
    columns: tuple[str, ...] = ()
    """Of a table: the names of the columns of the texts, for those who predict."""
    scored: tuple[str, ...] = ("dev",)
    """See `task.Task`."""
    predicted: tuple[str, ...] = ()
    """See `task.Task`."""
    swap_pairs: bool = False
    """Train on every pair in both orders (Appendix B), for tasks that do not care which comes first."""
    shift: float = 0.0
    scale: float = 1.0
    """A number y is learnt as (y - shift) / scale."""

    @property
    def main_metric(self) -> str:
        """The metric of the paper's tables."""
        return self.metrics[0]

    def head(self, encoder: EncoderConfig) -> nn.Module:
        """A fresh head."""
        outputs = len(self.labels) or 1
        return SentenceHead(self.kind, encoder.hidden_size, outputs, self.dropout, self.shift, self.scale)

    def features(self, split: str) -> Features:
        """See `task.Task`; says how many texts are cut at `max_length`."""
        sentences = self.read(split)
        if not len(sentences):
            raise DataError(f"{self.name}: the {split} split is empty")
        ids, segment_a, cut = encode_pairs(self.tokenizer, sentences.first, sentences.second, self.max_length)
        if cut:
            log.warning(
                f"{self.name}: {cut:,} of {len(ids):,} {split} texts are cut at {self.max_length} tokens (--max-length)"
            )
        targets = {} if sentences.labels is None else {"label": sentences.labels}
        if split == "train" and self.swap_pairs and sentences.second is not None:
            swapped, swapped_a, _ = encode_pairs(self.tokenizer, sentences.second, sentences.first, self.max_length)
            ids, segment_a = ids + swapped, segment_a + swapped_a
            targets = {name: np.concatenate([target, target]) for name, target in targets.items()}
        return Features(ids, segment_a, targets, {"cut": cut, **sentences.notes})

    def score(self, split: str, outputs: Outputs) -> dict[str, float]:
        """The task's metrics over all examples of the split."""
        targets = self.read(split).labels
        if targets is None:
            raise DataError(f"{self.name}: the {split} split has no labels to score")
        assert len(targets) == len(outputs)
        return scores(self.metrics, self.decide(self.logits(split, outputs)), targets)

    def decide(self, logits: np.ndarray) -> np.ndarray:
        """Class numbers, zeros and ones, or numbers, out of logits [N, C]."""
        if self.kind == "classification":
            return logits.argmax(1)
        return (logits > 0).astype(np.int64) if self.kind == "multilabel" else logits[:, 0]

    def predictions(self, split: str, outputs: Outputs) -> list[dict[str, Any]]:
        """The prediction for each example, with probabilities."""
        ids = self.read(split).ids or [str(i) for i in range(len(outputs))]
        return [
            {"id": id, **readable(self.kind, self.labels, output["logits"])}
            for id, output in zip(ids, outputs, strict=True)
        ]

    def logits(self, split: str, outputs: Outputs) -> Float[np.ndarray, "N C"]:
        """See `task.Task`."""
        return np.stack([output["logits"] for output in outputs])

    def settings(self) -> Mapping[str, Any]:
        """What predicting needs."""
        pairs = self.read("train").second is not None
        settings = {"kind": self.kind, "labels": list(self.labels), "max_length": self.max_length, "pairs": pairs}
        return settings | ({"columns": list(self.columns)} if self.columns else {})


def readable(kind: Kind, labels: Sequence[str], logits: np.ndarray) -> dict[str, Any]:
    """One example's logits [C] as a label and probabilities, or as a number."""
    if kind == "regression":
        return {"value": float(logits[0])}
    if kind == "multilabel":
        probabilities = expit(logits.astype(np.float64))
        said = [label for label, p in zip(labels, probabilities, strict=True) if p > 0.5]
        return {"labels": said, "probabilities": dict(zip(labels, probabilities.tolist(), strict=True))}
    probabilities = softmax(logits.astype(np.float64))
    return {
        "label": labels[int(logits.argmax())],
        "probabilities": dict(zip(labels, probabilities.tolist(), strict=True)),
    }


def encode_pairs(
    tokenizer: Tokenizer, first: list[str], second: list[str] | None, max_length: int
) -> tuple[list[list[int]], list[int], int]:
    """`[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]` of each, the lengths of `[CLS] a [SEP]`, and how many were cut.

    What is too long loses tokens from the end of the longer text, of the second one if both are as long.
    """
    firsts = encode_in_parts(tokenizer.encode_lines, first)
    seconds = [[]] * len(first) if second is None else encode_in_parts(tokenizer.encode_lines, second)
    room = max_length - (2 if second is None else 3)
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    ids, segment_a, cut = [], [], 0
    for a, b in zip(firsts, seconds, strict=True):
        keep_a, keep_b = kept_lengths(len(a), len(b), room)
        cut += (keep_a, keep_b) != (len(a), len(b))
        tail = [] if second is None else [*b[:keep_b], sep]
        ids.append([cls, *a[:keep_a], sep, *tail])
        segment_a.append(keep_a + 2)
    return ids, segment_a, cut


def kept_lengths(a: int, b: int, room: int) -> tuple[int, int]:
    """How many tokens of two texts fit into `room` when the longer one gives up its last, the second one in a tie."""
    if a + b <= room:
        return a, b
    if min(a, b) >= (room + 1) // 2:  # both end about equally long; a tie has cost b one more
        return room - room // 2, room // 2
    return (a, room - a) if a < b else (room - b, b)


def finite(label: str) -> float:
    """A label as a number. Raises ValueError where it is none, or not a finite one."""
    number = float(label)
    if not math.isfinite(number):
        raise ValueError
    return number
