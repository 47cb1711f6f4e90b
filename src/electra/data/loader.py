"""Batches of examples as a pure function of the step, so that there is no position to save.

Dimensions: B rows, T tokens.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Int, Int64
from torch import Tensor

from electra.config.checks import check_limits
from electra.data.examples import MIN_SEQ_LEN
from electra.data.shards import Example, ExampleSet
from electra.errors import UsageError
from electra.runtime.memory import move_to_device
from electra.seeding import Stream, build_numpy_generator, derive_keys, derive_row_keys

PREFETCHED_STEPS = 2

StepBatches = TypeVar("StepBatches")


@dataclass(frozen=True)
class Batch:
    """One micro-batch, padded on the right to its longest row."""

    input_ids: Int64[Tensor, "B T"]
    token_type_ids: Int64[Tensor, "B T"]
    lengths: Int64[Tensor, " B"]
    """Tokens of each row, special ones included, without padding."""
    attention_mask: Bool[Tensor, "B T"] | None
    """True where a token stands; None where nothing is padded."""
    keys: Int64[Tensor, " B"] | None = None
    """Of what is drawn for each row (`electra.seeding`), in pre-training."""

    @property
    def row_keys(self) -> Int64[Tensor, " B"]:
        """`keys` of a batch that has them."""
        assert self.keys is not None
        return self.keys

    def tensors(self) -> list[Tensor]:
        """All that it consists of."""
        return [each for each in vars(self).values() if each is not None]

    def to(self, device: torch.device) -> "Batch":
        """On a device, for which the host does not wait."""
        return replace(self, **{name: move_to_device(t, device) for name, t in vars(self).items() if t is not None})


@dataclass(frozen=True)
class LengthWarmup:
    """Short sequences in the first updates, in which attention finds its neighbors sooner (docs/research/log).

    After the sequence length warm-up of Li, Zhang and He, "The Stability-Efficiency Dilemma" (NeurIPS 2022). Examples are
    cut into pieces, so that an update reads as many tokens as it does later. Held-out figures gain by it, STS-B loses
    (docs/research/results.md).
    """

    steps: int = 0
    """Updates that read pieces of examples; 0 for none. Two stages share them, as they do the budget."""
    length: int = 16
    """Tokens of the longest piece."""

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise UsageError(f"length_warmup.steps is {self.steps}; it must not be negative")
        check_limits(self, "length_warmup.", steps=10**12, length=10**7)
        if self.length < MIN_SEQ_LEN:
            raise UsageError(f"length_warmup.length is {self.length}; it must be at least {MIN_SEQ_LEN}")

    def scaled(self, share: float) -> "LengthWarmup":
        """The same for a share of a run."""
        return replace(self, steps=round(self.steps * share))


class BatchLoader:
    """An endless sequence of epochs, each a permutation of the examples that its number and the seed decide.

    A global batch is the next `batch_size` of them (it may span two epochs), sorted by length and cut into
    micro-batches, of which rank r of n takes numbers r, r + n, r + 2n, …: neither the padding that sorting
    saves nor the number of ranks changes what a step sees. What is drawn for a row depends on its number in the global batch,
    not on its micro-batch. Where shapes should be few, micro-batches are padded to one of the lengths `padded_to` (from
    short to long), and not to their longest row. `seed` is one number, or several that together are the seed.

    Raises:
        UsageError: ranks and micro-batches do not divide the batch, or the examples do not fill one.
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
        padded_to: Sequence[int] = (),
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if min(batch_size, micro_batch_size) < 1 or batch_size % (micro_batch_size * world_size):
            raise UsageError(
                f"batch_size={batch_size} is not a multiple of micro_batch_size={micro_batch_size} "
                f"times {world_size} process{'es' * (world_size > 1)}; change one of them"
            )
        if len(examples) < batch_size:
            raise UsageError(
                f"{len(examples):,} training examples do not fill one batch of {batch_size:,}; "
                "add text, or lower --training.batch-size or --seq-len"
            )
        self._examples = examples
        self._seed = seed
        self._batch_size = batch_size
        self._micro_batch_size = micro_batch_size
        self._pad_id = pad_id
        self._length_warmup = length_warmup
        self._padded_to = padded_to
        self._rank = rank
        self._world_size = world_size
        # A batch spans two epochs at most.
        self._order = lru_cache(maxsize=2)(lambda epoch: shuffle(len(examples), Stream.DATA_ORDER, *seed, epoch))

    def epoch(self, step: int) -> float:
        """How many times the examples have been seen when `step` steps are done."""
        return step * self._batch_size / len(self._examples)

    def batches(self, step: int) -> list[Batch]:
        """This rank's micro-batches of a global step."""
        rows = self._global_batch(step)
        rows = rows[np.argsort(self._examples.lengths(rows), kind="stable")]
        keys = derive_row_keys(np.arange(len(rows)), Stream.ROWS, *self._seed, step)
        longest = self._length_warmup.length if step < self._length_warmup.steps else None
        return [
            build_batch(self._examples, some, of_some, self._pad_id, longest, self._padded_to)
            for some, of_some in zip(self._select_rank(rows), self._select_rank(keys), strict=True)
        ]

    def _select_rank(self, of_rows: Int[np.ndarray, " B"]) -> Int[np.ndarray, "M B_M"]:
        """What belongs to the rows of this rank's micro-batches."""
        return of_rows.reshape(-1, self._micro_batch_size)[self._rank :: self._world_size]

    def iterate(self, first_step: int) -> Iterator[list[Batch]]:
        """`batches` of `first_step` and all after it, made ahead."""
        return prefetch(self.batches, first_step)

    def _global_batch(self, step: int) -> Int[np.ndarray, " B"]:
        """Which examples a step sees, in the order of their epoch."""
        first, size = step * self._batch_size, len(self._examples)
        epoch, start = divmod(first, size)
        rows = self._order(epoch)[start : start + self._batch_size]
        missing = self._batch_size - len(rows)
        return np.concatenate([rows, self._order(epoch + 1)[:missing]]) if missing else rows


def prefetch(batches: Callable[[int], StepBatches], first_step: int) -> Iterator[StepBatches]:
    """`batches` of `first_step` and all after it, made ahead in a thread that ends with the iterator."""
    with ThreadPoolExecutor(1, thread_name_prefix="batches") as pool:
        steps = count(first_step)
        ahead = deque(pool.submit(batches, next(steps)) for _ in range(PREFETCHED_STEPS))
        while True:
            ready = ahead.popleft().result()
            ahead.append(pool.submit(batches, next(steps)))
            yield ready


def shuffle(size: int, stream: Stream, *key: int) -> Int[np.ndarray, " N"]:
    """The numbers below `size` in the order of a key: in 32 bits where they do, half the memory, two thirds of the time."""
    order = np.arange(size, dtype=np.int32 if size <= 2**31 else np.int64)
    build_numpy_generator(stream, *key).shuffle(order)
    return order


def build_batch(
    examples: ExampleSet,
    rows: Sequence[int] | Int[np.ndarray, " B"],
    keys: Int64[np.ndarray, " B"],
    pad_id: int,
    longest: int | None = None,
    padded_to: Sequence[int] = (),
) -> Batch:
    """The examples at `rows` (at least one) as one batch, in this order, with a key for each.

    In pieces of up to `longest` tokens, if given, whose keys follow from those of their examples.
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
    """An example cut into as few pieces of up to `longest` tokens as it takes, all about as long.

    From MIN_SEQ_LEN tokens on, each piece has one that is not special: no three in a row are.
    """
    start = 0
    for ids in np.array_split(example.ids, -(-len(example.ids) // longest)):
        yield Example(ids, min(max(example.segment_a - start, 0), len(ids)))
        start += len(ids)


def pad_batch(
    ids: Sequence[Sequence[int] | np.ndarray], segment_a: Sequence[int], pad_id: int, padded_to: Sequence[int] = ()
) -> Batch:
    """Token ids of some rows, and the lengths of their `[CLS] a [SEP]`, as one batch.

    It is as long as its longest row, or as the first number of `padded_to`, from short to long, that is no less.
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


def evaluation_batches(
    examples: ExampleSet, *, batch_size: int, pad_id: int, max_examples: int | None = None
) -> Iterator[Batch]:
    """Every example once, from short to long, the last batch smaller; always the same.

    Where there are more than `max_examples`, that many are taken at even distances, from all of the text.
    """
    size = len(examples)
    number = size if max_examples is None else min(size, max_examples)
    rows = np.arange(number) * size // max(number, 1)
    rows = rows[np.argsort(examples.lengths(rows), kind="stable")]
    for start in range(0, number, batch_size):
        some = rows[start : start + batch_size]
        yield build_batch(examples, some, derive_row_keys(some, Stream.HELDOUT_ROWS), pad_id)
