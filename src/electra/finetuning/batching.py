"""Tokenized examples with their targets, and batches as a pure function of the step.

Shapes: B examples of a batch, G sequences of each, L tokens of the longest of them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from electra.console import reading_progress
from electra.data.batch import Batch
from electra.data.loader import pad_batch, prefetch
from electra.seeding import Stream, shuffle

IGNORED = -100
"""Target of a token that is not scored; the default `ignore_index` of torch's cross-entropy."""

BUCKET_BATCHES = 32
"""Batches of a bucket, in which examples are sorted by length: little padding, and a nearly random order."""

ENCODING_CHUNK = 4096
"""Texts tokenized at a time: enough for all cores, and the progress display is updated every one or two seconds."""

Encoded = TypeVar("Encoded")


@dataclass(frozen=True)
class EncodedExamples:
    """Token ids of examples with their targets. A long context or sentence is several examples, one per window.

    A question with several choices is one example of several sequences, which are always in one batch.
    """

    input_ids: Sequence[Sequence[int]]
    """Token ids of `[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, without padding; those of an example are consecutive."""
    segment_a: Sequence[int]
    """Tokens of `[CLS] a [SEP]`, whose token type is 0; that of later tokens is 1."""
    targets: Mapping[str, np.ndarray | list[list[int]]]
    """Name -> targets: an array [N, ...] over the examples, or for each example a list with a target per token."""

    counts: Mapping[str, int] = field(default_factory=dict)
    """Counts for results.json, such as truncated texts and skipped rows."""
    group_size: int = 1
    """Sequences of an example."""

    def __len__(self) -> int:
        return len(self.input_ids) // self.group_size

    def measure_lengths(self) -> Int[np.ndarray, " N"]:
        """Return the number of tokens of the longest sequence of each example."""
        lengths = np.array([len(ids) for ids in self.input_ids], dtype=np.int64)
        return lengths.reshape(-1, self.group_size).max(1)


@dataclass(frozen=True)
class LabeledBatch:
    """Examples as tensors, padded on the right to the longest one."""

    inputs: Batch
    targets: dict[str, Tensor]
    """Name -> [B, ...]; targets per token are [B, L] with IGNORED at padding."""
    group_size: int = 1
    """Sequences of an example: the inputs are [B G, L]."""

    def __len__(self) -> int:
        return len(self.inputs.lengths) // self.group_size

    def to(self, device: torch.device) -> "LabeledBatch":
        """Move the batch to a device."""
        targets = {name: target.to(device) for name, target in self.targets.items()}
        return replace(self, inputs=self.inputs.to(device), targets=targets)


def encode_with_progress(encode: Callable[[list[str]], list[Encoded]], texts: list[str]) -> list[Encoded]:
    """Return `encode(texts)`; shows a progress display for more than ENCODING_CHUNK texts."""
    if len(texts) <= ENCODING_CHUNK:
        return encode(texts)
    encoded: list[Encoded] = []
    with reading_progress(f"encoding {len(texts):,} texts", len(texts)) as show:
        for start in range(0, len(texts), ENCODING_CHUNK):
            encoded += encode(texts[start : start + ENCODING_CHUNK])
            show(len(encoded), "")
    return encoded


def collate(examples: EncodedExamples, indices: Int[np.ndarray, " B"], pad_id: int) -> LabeledBatch:
    """Build a batch of the examples at `indices` (at least one), in this order."""
    size = examples.group_size
    rows = (indices[:, None] * size + np.arange(size)).ravel().tolist()
    inputs = pad_batch([examples.input_ids[i] for i in rows], [examples.segment_a[i] for i in rows], pad_id)
    length = inputs.input_ids.shape[1]
    targets = {name: collate_target(target, indices, length) for name, target in examples.targets.items()}
    return LabeledBatch(inputs, targets, size)


def collate_target(target: np.ndarray | list[list[int]], indices: Int[np.ndarray, " B"], length: int) -> Tensor:
    """Build the tensor of one target of the examples at `indices`; lists per token are padded to `length` with IGNORED."""
    if isinstance(target, np.ndarray):
        return torch.from_numpy(target[indices])
    padded = np.full((len(indices), length), IGNORED, dtype=np.int64)
    for row, index in enumerate(indices):
        padded[row, : len(target[index])] = target[index]
    return torch.from_numpy(padded)


class BatchLoader:
    """Batches of examples of similar length; their order is a function of the seed and the number of the epoch.

    A permutation of the examples is divided into buckets of BUCKET_BATCHES batches, each bucket is sorted by length, and the
    batches are shuffled. An epoch has every example once; one of its batches may be smaller than `batch_size`.
    """

    def __init__(self, examples: EncodedExamples, *, batch_size: int, pad_id: int, seed: int) -> None:
        self._examples = examples
        self._batch_size = batch_size
        self._pad_id = pad_id
        self._seed = seed
        self._lengths = examples.measure_lengths()
        self._get_epoch = lru_cache(maxsize=2)(self._plan_epoch)
        self.steps_per_epoch = -(-len(examples) // batch_size)

    def batch(self, step: int) -> LabeledBatch:
        """Build the batch of a step; steps are numbered from 0 over all epochs."""
        epoch, number = divmod(step, self.steps_per_epoch)
        return collate(self._examples, self._get_epoch(epoch)[number], self._pad_id)

    def iterate(self, first_step: int) -> Iterator[list[LabeledBatch]]:
        """Yield the batches of `first_step` and all later steps, each as a list of one micro-batch, with prefetching."""
        return prefetch(lambda step: [self.batch(step)], first_step)

    def _plan_epoch(self, epoch: int) -> list[Int[np.ndarray, " B"]]:
        """Return the indices of the examples of each batch."""
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
    """Yield every example once, sorted by length: (indices of the examples, their batch)."""
    order = np.argsort(examples.measure_lengths(), kind="stable")
    for start in range(0, len(order), batch_size):
        indices = order[start : start + batch_size]
        yield indices, collate(examples, indices, pad_id)
