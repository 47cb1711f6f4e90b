"""What a network reads in fine-tuning and what it should say, and its batches as a pure function of the step."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from electra.console import reading_progress
from electra.data.loader import Batch, made_ahead, padded_batch, shuffle
from electra.seeding import Stream

IGNORED = -100
"""The target of a token that is not scored; the value that torch's cross-entropy passes over."""

BUCKET_BATCHES = 32
"""Batches whose examples are sorted by length together: enough to pad next to nothing, and still nearly random."""


ENCODED_TOGETHER = 4096
"""Texts that the tokenizer gets at a time: enough for all cores, and a second or two between two signs of life."""

Encoded = TypeVar("Encoded")


@dataclass(frozen=True)
class Features:
    """Encoded inputs with their targets. A long paragraph or sentence gives several of them."""

    ids: Sequence[Sequence[int]]
    """`[CLS] a [SEP]` or `[CLS] a [SEP] b [SEP]`, as token ids."""
    segment_a: Sequence[int]
    """Length of `[CLS] a [SEP]`: the token type is 0 before and 1 from there."""
    targets: Mapping[str, np.ndarray | list[list[int]]]
    """By name: an array whose first dimension is the example, or for every example a target for each of its tokens."""

    notes: Mapping[str, int] = field(default_factory=dict)
    """Counts that belong into the results: texts that were cut, rows that were left out."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class LabeledBatch:
    """Some features as tensors, padded on the right to the longest of them."""

    inputs: Batch
    targets: dict[str, Tensor]
    """[B, …], or [B, L] with IGNORED at padding where every token has a target."""

    def to(self, device: torch.device) -> "LabeledBatch":
        """The same on another device."""
        return LabeledBatch(self.inputs.to(device), {name: target.to(device) for name, target in self.targets.items()})


def encode_in_parts(encode: Callable[[list[str]], list[Encoded]], texts: list[str]) -> list[Encoded]:
    """`encode(texts)`, with a progress display where they are many."""
    if len(texts) <= ENCODED_TOGETHER:
        return encode(texts)
    encoded: list[Encoded] = []
    with reading_progress(f"encoding {len(texts):,} texts", len(texts)) as show:
        for start in range(0, len(texts), ENCODED_TOGETHER):
            encoded += encode(texts[start : start + ENCODED_TOGETHER])
            show(len(encoded), "")
    return encoded


def labeled_batch(features: Features, rows: Int[np.ndarray, " B"], pad_id: int) -> LabeledBatch:
    """The features at `rows` (at least one), in this order."""
    inputs = padded_batch([features.ids[row] for row in rows], [features.segment_a[row] for row in rows], pad_id)
    longest = inputs.input_ids.shape[1]
    targets = {name: target_tensor(target, rows, longest) for name, target in features.targets.items()}
    return LabeledBatch(inputs, targets)


def target_tensor(target: np.ndarray | list[list[int]], rows: Int[np.ndarray, " B"], longest: int) -> Tensor:
    """One target of the features at `rows`."""
    if isinstance(target, np.ndarray):
        return torch.from_numpy(target[rows])
    padded = np.full((len(rows), longest), IGNORED, dtype=np.int64)
    for i, row in enumerate(rows):
        padded[i, : len(target[row])] = target[row]
    return torch.from_numpy(padded)


class FeatureLoader:
    """Epochs of batches, each epoch a permutation that its number and the seed decide, bucketed by length.

    A permutation is cut into buckets of BUCKET_BATCHES batches, sorted by length within each, and the batches are
    drawn in random order. The last batch of an epoch may be smaller; every example comes once an epoch.
    """

    def __init__(self, features: Features, *, batch_size: int, pad_id: int, seed: int) -> None:
        self._features = features
        self._batch_size = batch_size
        self._pad_id = pad_id
        self._seed = seed
        self._lengths = np.array([len(ids) for ids in features.ids])
        self._plan = lru_cache(maxsize=2)(self._epoch_plan)
        self.steps_per_epoch = -(-len(features) // batch_size)

    def batch(self, step: int) -> LabeledBatch:
        """The batch of a step, counted from 0 over all epochs."""
        epoch, number = divmod(step, self.steps_per_epoch)
        return labeled_batch(self._features, self._plan(epoch)[number], self._pad_id)

    def iterate(self, first_step: int) -> Iterator[list[LabeledBatch]]:
        """`batch` of `first_step` and all after it, as the loop wants them, made ahead."""
        return made_ahead(lambda step: [self.batch(step)], first_step)

    def _epoch_plan(self, epoch: int) -> list[Int[np.ndarray, " B"]]:
        order = shuffle(len(self._features), Stream.DATA_ORDER, self._seed, epoch)
        size = self._batch_size * BUCKET_BATCHES
        batches = []
        for start in range(0, len(order), size):
            bucket = order[start : start + size]
            bucket = bucket[np.argsort(self._lengths[bucket], kind="stable")]
            batches += [bucket[i : i + self._batch_size] for i in range(0, len(bucket), self._batch_size)]
        return [batches[i] for i in shuffle(len(batches), Stream.BATCH_ORDER, self._seed, epoch)]


def in_order_of_length(features: Features, batch_size: int, pad_id: int) -> Iterator[tuple[np.ndarray, LabeledBatch]]:
    """Every example once, from short to long: which ones, and their batch."""
    order = np.argsort([len(ids) for ids in features.ids], kind="stable")
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        yield rows, labeled_batch(features, rows, pad_id)
