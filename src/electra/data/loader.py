"""Batches of examples as a pure function of the step, so that no position has to be saved.

Dimensions: B rows, T tokens.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int, Int64

from electra.config.checks import check_range
from electra.data.batch import Batch
from electra.data.examples import MIN_SEQ_LEN
from electra.data.shards import Example, ExampleSet
from electra.data.sources import Mixture, SourceRows
from electra.errors import UsageError
from electra.seeding import Stream, derive_keys, derive_row_keys, shuffle

PREFETCHED_STEPS = 2

StepBatches = TypeVar("StepBatches")


@dataclass(frozen=True)
class LengthWarmup:
    """Short sequences in the first updates, with which attention learns neighbors sooner (docs/research/log).

    See the sequence length warm-up of Li, Zhang and He, "The Stability-Efficiency Dilemma" (NeurIPS 2022). Examples are
    split into pieces, so that an update reads as many tokens as later ones. Held-out metrics improve, STS-B gets worse
    (docs/research/results.md).
    """

    steps: int = 0
    """Updates that read pieces of examples; 0 for none. Two stages share them in proportion to their steps."""
    length: int = 16
    """Tokens of the longest piece."""

    def __post_init__(self) -> None:
        check_range(self, "length_warmup", "steps", at_least=0, at_most=10**12)
        check_range(self, "length_warmup", "length", at_least=MIN_SEQ_LEN, at_most=10**7)

    def scale(self, share: float) -> "LengthWarmup":
        """Scale the warm-up to a share of a run."""
        return replace(self, steps=round(self.steps * share))


@dataclass(frozen=True)
class BatchWarmup:
    """Small batches in the first updates, which makes them cheap: gradients have little noise then, relative to their size.

    See McCandlish et al., "An Empirical Model of Large-Batch Training" (2018), and the batch size of GPT-3 (Brown et al.,
    2020, appendix B), which grows linearly.
    """

    steps: int = 0
    """Updates in which the batch grows to training.batch_size; 0 for none. Two stages share them in proportion to their
    steps."""
    size: int = 16
    """Sequences of the first updates, and those by which the batch grows, each time after as many updates; a divisor of
    training.batch_size."""

    def __post_init__(self) -> None:
        check_range(self, "batch_warmup", "steps", at_least=0, at_most=10**9)
        check_range(self, "batch_warmup", "size", at_least=1, at_most=10**7)

    def scale(self, share: float) -> "BatchWarmup":
        """Scale the warm-up to a share of a run."""
        return replace(self, steps=round(self.steps * share))

    def count(self, step: int, batch_size: int) -> tuple[int, int]:
        """Count the sequences of all updates before `step`, and those of the update `step`, for the full `batch_size`."""
        if not self.steps:
            return step * batch_size, batch_size
        increments = batch_size // self.size - 1
        grows_at = -(-np.arange(1, increments + 1) * self.steps // increments)  # rounded up
        before = self.size * (step + int(np.maximum(step - grows_at, 0).sum()))
        return before, self.size * (1 + int((grows_at <= step).sum()))


class BatchLoader:
    """Endless sequence of epochs; the seed and the number of an epoch determine its permutation of the examples.

    A global batch is the next `batch_size` examples (it may span two epochs), sorted by length and split into micro-batches,
    of which rank r of n takes numbers r, r + n, r + 2n, …. Sorting saves padding. Neither sorting nor the number of ranks
    changes the examples of a step. Random numbers of a row depend on its index in the global batch, not on its micro-batch.
    With `padded_to` (ascending lengths), micro-batches are padded to one of these, not to their longest row, to have few
    shapes. With `batch_warmup`, the micro-batches of a smaller batch are the largest that divide `micro_batch_size` and
    the batch's share of a rank. With a `mixture`, it determines the sequence of examples, in epochs for each source. `seed`
    is one number or several.

    Raises:
        UsageError: ranks and micro-batches do not divide the batch, or there are fewer examples than one batch.
    """

    def __init__(
        self,
        examples: ExampleSet,
        *,
        batch_size: int,
        micro_batch_size: int,
        pad_id: int,
        seed: tuple[int, ...],
        length_warmup: LengthWarmup = LengthWarmup(),
        batch_warmup: BatchWarmup = BatchWarmup(),
        mixture: Mixture | None = None,
        padded_to: Sequence[int] = (),
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if min(batch_size, micro_batch_size) < 1 or batch_size % (micro_batch_size * world_size):
            raise UsageError(
                "uneven-batch",
                f"batch_size={batch_size} is not a multiple of micro_batch_size={micro_batch_size} "
                f"times {world_size} process{'es' * (world_size > 1)}; change one of them",
            )
        if batch_warmup.steps and batch_warmup.size % world_size:
            raise UsageError(
                "uneven-batch",
                f"batch_warmup.size {batch_warmup.size} cannot be shared evenly by {world_size} processes; "
                "use a multiple of their number",
            )
        if len(examples) < batch_size:
            raise UsageError(
                "too-little-text",
                f"{len(examples):,} training examples do not fill one batch of {batch_size:,}; "
                "add text, or lower --training.batch-size or --seq-len",
            )
        self._examples = examples
        self._seed = seed
        self._batch_size = batch_size
        self._micro_batch_size = micro_batch_size
        self._pad_id = pad_id
        self._length_warmup = length_warmup
        self._batch_warmup = batch_warmup
        self.mixture = mixture
        self._padded_to = padded_to
        self._rank = rank
        self._world_size = world_size
        # A batch spans two epochs at most.
        self._order = lru_cache(maxsize=2)(lambda epoch: shuffle(len(examples), Stream.DATA_ORDER, *seed, epoch))

    def count(self, step: int) -> int:
        """Number of examples in the first `step` steps."""
        return self._batch_warmup.count(step, self._batch_size)[0]

    def epoch(self, step: int) -> float:
        """Number of epochs after `step` steps; with a mixture, the mean over the examples."""
        return self.count(step) / len(self._examples)

    def batches(self, step: int) -> list[Batch]:
        """Build this rank's micro-batches of a global step."""
        rows = self._global_batch(step)
        rows = rows[np.argsort(self._examples.lengths(rows), kind="stable")]
        keys = derive_row_keys(np.arange(len(rows)), Stream.ROWS, *self._seed, step)
        longest = self._length_warmup.length if step < self._length_warmup.steps else None
        return [
            build_batch(self._examples, batch_rows, batch_keys, self._pad_id, longest, self._padded_to)
            for batch_rows, batch_keys in zip(self._select_rank(rows), self._select_rank(keys), strict=True)
        ]

    def _select_rank(self, values: Int[np.ndarray, " B"]) -> Int[np.ndarray, "M B_M"]:
        """Select the values of this rank's micro-batches from one value per row of the global batch."""
        micro_batch_size = math.gcd(self._micro_batch_size, len(values) // self._world_size)
        return values.reshape(-1, micro_batch_size)[self._rank :: self._world_size]

    def iterate(self, first_step: int) -> Iterator[list[Batch]]:
        """Yield `batches` from `first_step` on, prefetched."""
        return prefetch(self.batches, first_step)

    def _global_batch(self, step: int) -> Int[np.ndarray, " B"]:
        """Indices of the examples of a step, in the order of their epoch."""
        first, number = self._batch_warmup.count(step, self._batch_size)
        if self.mixture is not None:
            return self.mixture.rows(first, number)
        epoch, start = divmod(first, len(self._examples))
        rows = self._order(epoch)[start : start + number]
        missing = number - len(rows)
        return np.concatenate([rows, self._order(epoch + 1)[:missing]]) if missing else rows


def prefetch(batches: Callable[[int], StepBatches], first_step: int) -> Iterator[StepBatches]:
    """Yield `batches` from `first_step` on, prefetched in a thread that ends with the iterator."""
    with ThreadPoolExecutor(1, thread_name_prefix="batches") as pool:
        steps = count(first_step)
        ahead = deque(pool.submit(batches, next(steps)) for _ in range(PREFETCHED_STEPS))
        while True:
            ready = ahead.popleft().result()
            ahead.append(pool.submit(batches, next(steps)))
            yield ready


def build_batch(
    examples: ExampleSet,
    rows: Sequence[int] | Int[np.ndarray, " B"],
    keys: Int64[np.ndarray, " B"],
    pad_id: int,
    longest: int | None = None,
    padded_to: Sequence[int] = (),
) -> Batch:
    """Build one batch of the examples at `rows` (at least one), in this order, with a key for each.

    With `longest`, examples are split into pieces of up to `longest` tokens, with keys derived from those of the examples.
    """
    chosen = list(examples.rows(rows))
    if longest is not None:
        pieces = [list(split_example(example, longest)) for example in chosen]
        numbers = [np.arange(len(each)) for each in pieces]
        keys = derive_keys(keys.repeat([len(each) for each in pieces]), np.concatenate(numbers))
        chosen = [piece for each in pieces for piece in each]
    ids, segment_a = [example.ids for example in chosen], [example.segment_a for example in chosen]
    return replace(pad_batch(ids, segment_a, pad_id, padded_to), keys=torch.from_numpy(keys))


def split_example(example: Example, longest: int) -> Iterator[Example]:
    """Split an example into the smallest number of pieces of up to `longest` tokens, all about as long.

    If `longest` is at least MIN_SEQ_LEN, each piece has a token that is not special: at most two adjacent tokens are special.
    """
    start = 0
    for ids in np.array_split(example.ids, -(-len(example.ids) // longest)):
        yield Example(ids, min(max(example.segment_a - start, 0), len(ids)))
        start += len(ids)


def pad_batch(
    ids: Sequence[Sequence[int] | np.ndarray], segment_a: Sequence[int], pad_id: int, padded_to: Sequence[int] = ()
) -> Batch:
    """Pad token ids of some rows to one batch; `segment_a` are the lengths of their `[CLS] a [SEP]`.

    Its length is that of the longest row, or the first number of `padded_to` (ascending) that is not less.
    """
    lengths = np.array([len(row) for row in ids], dtype=np.int64)
    longest = next((length for length in padded_to if length >= lengths.max()), int(lengths.max()))
    positions = np.arange(longest)
    real = positions < lengths[:, None]
    padded = np.full((len(ids), longest), pad_id, dtype=np.int64)
    padded[real] = np.concatenate(ids)
    types = (positions >= np.asarray(segment_a)[:, None]) & real
    return Batch(
        torch.from_numpy(padded),
        torch.from_numpy(types.astype(np.int64)),
        torch.from_numpy(lengths),
        None if int(lengths.min()) == longest else torch.from_numpy(real),
    )


def iterate_evaluation_batches(
    examples: ExampleSet,
    *,
    batch_size: int,
    pad_id: int,
    max_examples: int | None = None,
    source: SourceRows | None = None,
) -> Iterator[Batch]:
    """Yield every example, or every one of a source, once, in ascending length; the last batch may be smaller.

    If there are more than `max_examples`, that many are selected evenly from all of the text.
    """
    size = len(examples) if source is None else len(source)
    number = size if max_examples is None else min(size, max_examples)
    rows = np.arange(number) * size // max(number, 1)
    rows = rows if source is None else source[rows]
    rows = rows[np.argsort(examples.lengths(rows), kind="stable")]
    for start in range(0, number, batch_size):
        batch_rows = rows[start : start + batch_size]
        yield build_batch(examples, batch_rows, derive_row_keys(batch_rows, Stream.HELDOUT_ROWS), pad_id)
