"""Random streams: they are independent, and the numbers of a row depend only on its key."""

import itertools

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from electra.seeding import (
    INCREMENT,
    MULTIPLIERS,
    SHIFTS,
    Draw,
    Stream,
    build_numpy_generator,
    derive_keys,
    derive_row_keys,
    hash_key,
    uniform,
)


def splitmix(state: int) -> int:
    """Return the output of SplitMix64 after one step from a state, without the last shift, in Python integers."""
    bits = (1 << 64) - 1
    x = state & bits
    for shift, multiplier in zip(SHIFTS, MULTIPLIERS, strict=True):
        x = (x ^ (x >> shift)) * multiplier & bits
    return x


def test_splitmix_has_its_published_values() -> None:
    """The first outputs from the state 1234567, as published with the reference implementation."""
    outputs = [splitmix(1234567 + i * INCREMENT) for i in range(1, 4)]
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [x ^ (x >> 31) for x in outputs] == expected
    derived = derive_keys(np.array(1234567), np.arange(1, 4)).view(np.uint64)
    assert derived.tolist() == expected


def test_uniform_numbers_equal_those_of_splitmix() -> None:
    keys = derive_row_keys(np.arange(5), Stream.ROWS, 0, 7)
    drawn = uniform(torch.from_numpy(keys), Draw.MASKS, 20)
    for row, place in itertools.product((0, 4), (0, 1, 19)):
        state = int(keys[row]) + ((int(Draw.MASKS) << 32) + place) * INCREMENT
        assert drawn[row, place].item() == (splitmix(state) >> 40) / 2**24


def test_numbers_are_uniform_and_independent() -> None:
    keys = torch.from_numpy(derive_row_keys(np.arange(2_000), Stream.ROWS, 0, 0))
    drawn = uniform(keys, Draw.POSITIONS, 100)
    assert 0 <= float(drawn.min()) < float(drawn.max()) < 1
    assert kstest(drawn.flatten().numpy(), "uniform").pvalue > 1e-3
    other = uniform(keys, Draw.SAMPLES, 100)
    for a, b in ((drawn[:, 1:], drawn[:, :-1]), (drawn[1:], drawn[:-1]), (drawn, other)):
        assert abs(float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1])) < 0.01


def test_padding_and_other_rows_do_not_change_numbers() -> None:
    keys = torch.from_numpy(derive_row_keys(np.arange(8), Stream.ROWS, 3, 1))
    assert torch.equal(uniform(keys, Draw.MASKS, 50)[:, :9], uniform(keys, Draw.MASKS, 9))
    assert torch.equal(uniform(keys, Draw.MASKS, 9)[3:5], uniform(keys[3:5], Draw.MASKS, 9))


def test_no_two_purposes_or_keys_share_a_stream() -> None:
    """Also if one key is a prefix of another, or has the same numbers in other positions."""
    keys = [(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 0, 1)]
    named = [(stream, *key) for stream in Stream for key in keys]
    assert len({hash_key(*each) for each in named}) == len(named)
    assert len({int(build_numpy_generator(*each).integers(2**62)) for each in named}) == len(named)


@pytest.mark.parametrize("number", [1, 40])
def test_derived_keys_differ(number: int) -> None:
    keys = derive_row_keys(np.arange(50), Stream.ROWS, 0)
    derived = derive_keys(keys.repeat(number), np.tile(np.arange(number), 50))
    assert len(set(derived.tolist()) | set(keys.tolist())) == 50 * number + 50
