import threading
from collections import Counter

import numpy as np
import pytest
import torch
from support.errors import raises

from electra.data.batch import Batch
from electra.data.examples import Examples
from electra.data.loader import (
    BatchLoader,
    BatchWarmup,
    LengthWarmup,
    build_batch,
    iterate_evaluation_batches,
    pad_batch,
    split_example,
)
from electra.data.shards import Example, ExampleSet, Shard
from electra.errors import UsageError

PAD = 0


def example_set(number: int, lengths: tuple[int, int] = (3, 17), seed: int = 0) -> ExampleSet:
    """Build a set in which the first id of example i is i + 1000."""
    rng = np.random.default_rng(seed)
    shards = []
    for first in range(0, number, 40):
        sizes = rng.integers(*lengths, min(40, number - first))
        ids = rng.integers(5, 1000, sizes.sum()).astype(np.uint16)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        ids[offsets[:-1]] = np.arange(first, first + len(sizes)) + 1000
        examples = Examples(ids, offsets, rng.integers(2, sizes + 1).astype(np.int32))
        shards.append(Shard(len(examples), len(examples.ids), lambda examples=examples: examples))
    return ExampleSet(shards)


def loader(examples: ExampleSet, **changes: int | LengthWarmup | BatchWarmup) -> BatchLoader:
    settings = {"batch_size": 24, "micro_batch_size": 4, "pad_id": PAD, "seed": (3,)} | changes
    return BatchLoader(examples, **settings)


def rows(batches: list[Batch]) -> list[int]:
    return [row - 1000 for batch in batches for row in batch.input_ids[:, 0].tolist()]


def same(a: Batch, b: Batch) -> bool:
    return all(
        (x is None and y is None) or (x is not None and y is not None and torch.equal(x, y))
        for x, y in zip(vars(a).values(), vars(b).values(), strict=True)
    )


def test_batch_equals_a_version_with_lists() -> None:
    examples = example_set(100)
    batch = build_batch(examples, [57, 3, 99], np.arange(3), PAD)
    longest = max(len(examples[i].ids) for i in (57, 3, 99))
    assert batch.input_ids.shape == (3, longest)
    assert batch.attention_mask is not None
    for row, i in enumerate((57, 3, 99)):
        ids, segment_a = examples[i]
        padding = longest - len(ids)
        assert batch.lengths[row] == len(ids)
        assert batch.input_ids[row].tolist() == ids.tolist() + [PAD] * padding
        assert batch.token_type_ids[row].tolist() == [0] * segment_a + [1] * (len(ids) - segment_a) + [0] * padding
        assert batch.attention_mask[row].tolist() == [True] * len(ids) + [False] * padding


def test_batch_without_padding_has_no_mask() -> None:
    assert build_batch(example_set(100, lengths=(9, 10)), [1, 2], np.arange(2), PAD).attention_mask is None


@pytest.mark.parametrize("number", [24, 25, 47, 100, 240])
def test_every_epoch_has_every_example_once(number: int) -> None:
    steps = 24 * number // np.gcd(24, number) // 24
    order = loader(example_set(number))
    seen = Counter(row for step in range(steps) for row in rows(order.batches(step)))
    assert set(seen) == set(range(number))
    assert set(seen.values()) == {steps * 24 // number}
    first = [row for step in range(-(-number // 24)) for row in rows(order.batches(step))]
    assert set(first) == set(range(number)), "also in the first epoch alone"


def test_epochs_are_shuffled_by_the_seed() -> None:
    examples = example_set(24)
    orders = [loader(examples)._global_batch(step).tolist() for step in (0, 1)]
    orders.append(loader(examples, seed=(4,))._global_batch(0).tolist())
    assert len({tuple(order) for order in [*orders, list(range(24))]}) == 4
    assert loader(examples)._global_batch(1).tolist() == orders[1], "independent of earlier calls"


def test_micro_batches_have_rows_of_similar_length() -> None:
    batches = loader(example_set(100)).batches(2)
    lengths = [length for batch in batches for length in batch.lengths.tolist()]
    assert lengths == sorted(lengths)
    assert [batch.input_ids.shape for batch in batches] == [(4, batch.lengths.max()) for batch in batches]


@pytest.mark.parametrize("world_size", [2, 3, 6])
def test_ranks_divide_the_micro_batches(world_size: int) -> None:
    examples = example_set(100)
    for step in (0, 4, 11):
        alone = loader(examples).batches(step)
        ranks = [loader(examples, rank=rank, world_size=world_size).batches(step) for rank in range(world_size)]
        assert len(alone) == 6
        for number, batch in enumerate(alone):
            assert same(ranks[number % world_size][number // world_size], batch)


@pytest.mark.parametrize("micro_batch_size", [1, 2, 8, 24])
def test_accumulation_does_not_change_the_global_batch(micro_batch_size: int) -> None:
    examples = example_set(100)
    changed = loader(examples, micro_batch_size=micro_batch_size).batches(5)
    assert len(changed) == 24 // micro_batch_size
    assert rows(changed) == rows(loader(examples).batches(5))


def test_iteration_can_start_at_any_step() -> None:
    order = loader(example_set(50))
    for first in (0, 7):
        for step, batches in zip(range(first, first + 6), order.iterate(first), strict=False):
            assert all(same(a, b) for a, b in zip(batches, order.batches(step), strict=True))


def test_thread_ends_with_the_iterator() -> None:
    before = threading.active_count()
    iterator = loader(example_set(50)).iterate(0)
    next(iterator)
    assert threading.active_count() == before + 1
    iterator.close()
    assert threading.active_count() == before


def test_error_in_the_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    order = loader(example_set(50))
    good = order.batches

    def fails_at_3(step: int) -> list[Batch]:
        if step == 3:
            raise OSError("the disk is gone")
        return good(step)

    monkeypatch.setattr(order, "batches", fails_at_3)
    iterator = order.iterate(0)
    assert [len(next(iterator)) for _ in range(3)] == [6, 6, 6]
    with pytest.raises(OSError, match="the disk is gone"):
        next(iterator)


def test_number_of_epochs() -> None:
    assert loader(example_set(48)).epoch(0) == 0
    assert loader(example_set(48)).epoch(5) == 2.5


def test_batch_size_must_be_divisible() -> None:
    examples = example_set(100)
    with raises(UsageError, "uneven-batch", "batch_size=24", "micro_batch_size=5", 1):
        loader(examples, micro_batch_size=5)
    with raises(UsageError, "uneven-batch", "batch_size=24", "micro_batch_size=4", 5):
        loader(examples, world_size=5)
    with raises(UsageError, "uneven-batch", "batch_size=0"):
        loader(examples, batch_size=0)


def test_too_few_examples_are_rejected() -> None:
    with raises(UsageError, "too-little-text", 23, 24):
        loader(example_set(23))
    loader(example_set(24))


@pytest.mark.parametrize(("longest", "length"), [(3, 8), (8, 8), (9, 12), (12, 12), (13, 13)])
def test_micro_batches_are_padded_to_given_lengths(longest: int, length: int) -> None:
    batch = pad_batch([[2] * longest, [2, 5, 3]], [longest, 3], 0, padded_to=(8, 12))
    assert batch.input_ids.shape == batch.token_type_ids.shape == (2, length)
    assert batch.lengths.tolist() == [longest, 3]
    assert batch.input_ids[0].tolist() == [2] * longest + [0] * (length - longest)
    assert batch.attention_mask is not None
    assert batch.attention_mask.sum(1).tolist() == [longest, 3]


@pytest.mark.parametrize(("maximum", "expected"), [(None, 100), (1000, 100), (30, 30), (1, 1)])
def test_evaluation_uses_every_example_or_an_even_selection(maximum: int | None, expected: int) -> None:
    examples = example_set(100)
    batches = list(iterate_evaluation_batches(examples, batch_size=8, pad_id=PAD, max_examples=maximum))
    seen = rows(batches)
    assert len(set(seen)) == len(seen) == expected
    assert {len(batch.lengths) for batch in batches[:-1]} <= {8}
    distance = -(-100 // expected)
    assert max(np.diff([-1, *sorted(seen), 100])[:-1], default=0) <= distance
    assert max(seen) >= 100 - distance
    again = list(iterate_evaluation_batches(examples, batch_size=8, pad_id=PAD, max_examples=maximum))
    assert all(same(a, b) for a, b in zip(batches, again, strict=True))


def test_evaluation_of_no_examples() -> None:
    assert list(iterate_evaluation_batches(ExampleSet([]), batch_size=8, pad_id=PAD)) == []


@pytest.mark.parametrize("lengths", [(3, 17), (9, 10)])
def test_batches_move_to_a_device(lengths: tuple[int, int]) -> None:
    batch = build_batch(example_set(10, lengths), [0, 1, 2, 3], np.arange(4), PAD)
    assert same(batch.to(torch.device("cpu")), batch)
    device = torch.device("cuda" if torch.cuda.is_available() else "meta")
    moved = batch.to(device)
    assert {tensor.device.type for tensor in vars(moved).values() if tensor is not None} == {device.type}
    assert (moved.attention_mask is None) == (lengths == (9, 10))
    if device.type == "cuda":
        assert same(moved.to(torch.device("cpu")), batch)


@pytest.mark.parametrize(("tokens", "pieces"), [(5, [5]), (8, [8]), (9, [5, 4]), (16, [8, 8]), (17, [6, 6, 5])])
def test_pieces_cover_an_example(tokens: int, pieces: list[int]) -> None:
    whole = Example(np.arange(tokens, dtype=np.uint16), segment_a=4)
    cut = list(split_example(whole, 8))
    assert [len(piece.ids) for piece in cut] == pieces
    assert np.concatenate([piece.ids for piece in cut]).tolist() == whole.ids.tolist()
    types = [int(i >= piece.segment_a) for piece in cut for i in range(len(piece.ids))]
    assert types == [0] * 4 + [1] * (tokens - 4)


def test_length_warmup_reads_pieces_of_the_same_examples() -> None:
    examples = example_set(100, lengths=(5, 33))
    warm, plain = loader(examples, length_warmup=LengthWarmup(steps=2, length=8)), loader(examples)
    for step in range(4):
        ours, theirs = warm.batches(step), plain.batches(step)
        if step >= 2:
            assert all(map(same, ours, theirs))
            continue
        assert max(batch.input_ids.shape[1] for batch in ours) == 8
        assert tokens(ours) == tokens(theirs)


def tokens(batches: list[Batch]) -> Counter[int]:
    return Counter(int(token) for batch in batches for token in batch.input_ids[batch.input_ids != PAD])


@pytest.mark.parametrize(
    ("steps", "first", "expected"),
    [
        (8, 6, [6, 6, 6, 12, 12, 12, 18, 18, 24, 24]),
        (7, 12, [12] * 7 + [24, 24]),
        (2, 4, [4, 12, 24, 24]),
        (1, 8, [8, 24, 24]),
        (0, 8, [24, 24]),
    ],
)
def test_batch_warmup_grows_by_equal_amounts(steps: int, first: int, expected: list[int]) -> None:
    warmup = BatchWarmup(steps, first)
    assert [warmup.count(step, 24) for step in range(len(expected))] == [
        (sum(expected[:step]), size) for step, size in enumerate(expected)
    ]
    later = 10**6
    assert warmup.count(later, 24) == (sum(expected) + 24 * (later - len(expected)), 24)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_batch_warmup_reads_the_same_examples_in_smaller_batches(world_size: int) -> None:
    """All ranks together read each epoch in the order of the plain loader; 50 examples are 2 epochs of it."""
    examples = example_set(50, lengths=(5, 33))
    both = {"batch_warmup": BatchWarmup(6, 6), "length_warmup": LengthWarmup(2, 8)}
    ranks = [
        loader(examples, **both, rank=rank, world_size=world_size, micro_batch_size=4) for rank in range(world_size)
    ]
    order = np.concatenate([loader(examples)._global_batch(step) for step in range(5)])
    read = 0
    for step, size in enumerate([6, 6, 12, 12, 18, 18, 24]):
        expected = order[read : read + size]
        read += size
        batches = [rank.batches(step) for rank in ranks]
        assert len({len(each) for each in batches}) == 1
        assert tokens([batch for each in batches for batch in each]) == Counter(
            int(token) for row in expected for token in examples[int(row)].ids
        )
        assert ranks[0].epoch(step) == pytest.approx((read - size) / 50)
        if step >= 2:
            assert {row for each in batches for row in rows(each)} == set(expected.tolist())
            assert {len(batch.lengths) for each in batches for batch in each} == {np.gcd(4, size // world_size)}


def test_batch_warmup_does_not_change_later_batches() -> None:
    examples = example_set(100)
    warm, plain = loader(examples, batch_warmup=BatchWarmup(2, 12)), loader(examples)
    read = [warm.batches(step) for step in range(5)]
    assert [sum(len(batch.lengths) for batch in batches) for batches in read] == [12, 12, 24, 24, 24]
    for step in (2, 3, 4):
        assert rows(read[step]) == rows(plain.batches(step - 1))


def test_ranks_that_cannot_share_the_first_batches_are_rejected() -> None:
    with raises(UsageError, "uneven-batch", "batch_warmup.size 3", 2):
        loader(example_set(100), batch_warmup=BatchWarmup(4, 3), world_size=2)
