"""Encoded examples with their targets, and their batches as a pure function of the step."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from electra.console import reading_progress
from electra.data.loader import Batch, pad_batch, prefetch, shuffle
from electra.seeding import Stream

IGNORED = -100
"""The target of a token that is not scored; torch's cross-entropy ignores it by default."""

BUCKET_BATCHES = 32
"""Batches of a bucket, whose examples are sorted by length: next to no padding, and still a nearly random order."""

ENCODING_CHUNK = 4096
"""Texts that the tokenizer encodes at a time: enough for all cores, with a second or two between updates of the progress."""

Encoded = TypeVar("Encoded")


@dataclass(frozen=True)
class EncodedExamples:
    """Token ids of examples with their targets. A long context or sentence is split into several examples."""

    input_ids: Sequence[Sequence[int]]
    """`[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, as token ids."""
    segment_a: Sequence[int]
    """The length of `[CLS] a [SEP]`, whose token type is 0; it is 1 after that."""
    targets: Mapping[str, np.ndarray | list[list[int]]]
    """By name: an array whose first dimension is the example, or for every example a list with a target for each token."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """Counts for the results: texts that were truncated, rows that were left out."""

    def __len__(self) -> int:
        return len(self.input_ids)


@dataclass(frozen=True)
class LabeledBatch:
    """Some examples as tensors, padded on the right to the longest of them."""

    inputs: Batch
    targets: dict[str, Tensor]
    """[B, …], or [B, L] with IGNORED at padding where every token has a target."""

    def to(self, device: torch.device) -> "LabeledBatch":
        """The same on another device."""
        return LabeledBatch(self.inputs.to(device), {name: target.to(device) for name, target in self.targets.items()})


def encode_with_progress(encode: Callable[[list[str]], list[Encoded]], texts: list[str]) -> list[Encoded]:
    """`encode(texts)`, with a progress display where they are many."""
    if len(texts) <= ENCODING_CHUNK:
        return encode(texts)
    encoded: list[Encoded] = []
    with reading_progress(f"encoding {len(texts):,} texts", len(texts)) as show:
        for start in range(0, len(texts), ENCODING_CHUNK):
            encoded += encode(texts[start : start + ENCODING_CHUNK])
            show(len(encoded), "")
    return encoded


def collate(examples: EncodedExamples, rows: Int[np.ndarray, " B"], pad_id: int) -> LabeledBatch:
    """The examples at `rows` (at least one), in this order, as a batch."""
    inputs = pad_batch([examples.input_ids[row] for row in rows], [examples.segment_a[row] for row in rows], pad_id)
    length = inputs.input_ids.shape[1]
    targets = {name: collate_target(target, rows, length) for name, target in examples.targets.items()}
    return LabeledBatch(inputs, targets)


def collate_target(target: np.ndarray | list[list[int]], rows: Int[np.ndarray, " B"], length: int) -> Tensor:
    """One target of the examples at `rows`, with IGNORED up to `length` where it is a list for each example."""
    if isinstance(target, np.ndarray):
        return torch.from_numpy(target[rows])
    padded = np.full((len(rows), length), IGNORED, dtype=np.int64)
    for i, row in enumerate(rows):
        padded[i, : len(target[row])] = target[row]
    return torch.from_numpy(padded)


class BatchLoader:
    """Epochs of batches bucketed by length; the order is a function of the seed and the number of the epoch.

    A permutation is cut into buckets of BUCKET_BATCHES batches, each bucket is sorted by length, and the batches are
    shuffled. Every example comes once an epoch, and the last batch of an epoch may be smaller.
    """

    def __init__(self, examples: EncodedExamples, *, batch_size: int, pad_id: int, seed: int) -> None:
        self._examples = examples
        self._batch_size = batch_size
        self._pad_id = pad_id
        self._seed = seed
        self._lengths = np.array([len(ids) for ids in examples.input_ids])
        self._plan = lru_cache(maxsize=2)(self._epoch_plan)
        self.steps_per_epoch = -(-len(examples) // batch_size)

    def batch(self, step: int) -> LabeledBatch:
        """The batch of a step, counted from 0 over all epochs."""
        epoch, number = divmod(step, self.steps_per_epoch)
        return collate(self._examples, self._plan(epoch)[number], self._pad_id)

    def iterate(self, first_step: int) -> Iterator[list[LabeledBatch]]:
        """The batches of `first_step` and of all steps after it, each as a list of one micro-batch, prefetched."""
        return prefetch(lambda step: [self.batch(step)], first_step)

    def _epoch_plan(self, epoch: int) -> list[Int[np.ndarray, " B"]]:
        order = shuffle(len(self._examples), Stream.DATA_ORDER, self._seed, epoch)
        size = self._batch_size * BUCKET_BATCHES
        batches = []
        for start in range(0, len(order), size):
            bucket = order[start : start + size]
            bucket = bucket[np.argsort(self._lengths[bucket], kind="stable")]
            batches += [bucket[i : i + self._batch_size] for i in range(0, len(bucket), self._batch_size)]
        return [batches[i] for i in shuffle(len(batches), Stream.BATCH_ORDER, self._seed, epoch)]


def iterate_by_length(
    examples: EncodedExamples, batch_size: int, pad_id: int
) -> Iterator[tuple[np.ndarray, LabeledBatch]]:
    """Every example once, from short to long: (numbers of the examples, their batch)."""
    order = np.argsort([len(ids) for ids in examples.input_ids], kind="stable")
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        yield rows, collate(examples, rows, pad_id)
