"""Random numbers: one stream per purpose, each a pure function of its key, so that no random state is saved.

The inputs of pre-training (masked positions, masks, samples) are drawn for each row of the global batch separately, from a
key that is a hash of the seed, the stage, the step and the row. They do not depend on the micro-batch size or the number of
processes or devices. Dropout uses PyTorch's generators, seeded for each micro-batch: fused attention on a GPU takes one seed
for all rows.
"""

import random
from enum import IntEnum

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor


class Stream(IntEnum):
    """Purpose of random numbers. It is part of every key, so that two purposes never share a stream."""

    INITIAL_WEIGHTS = 1
    DATA_ORDER = 2
    BATCH_ORDER = 3
    EXAMPLE_CUTTING = 4
    ROWS = 5
    HELDOUT_ROWS = 6
    DROPOUT = 7
    DEV_SPLIT = 8
    SOURCE_CHOICE = 9
    SOURCE_ORDER = 10


class Draw(IntEnum):
    """Quantity drawn for a row from its key."""

    POSITIONS = 1
    OTHER_POSITIONS = 2
    MASKS = 3
    RANDOM_TOKENS = 4
    SAMPLES = 5
    UNCHANGED = 6
    CROP = 7
    NOISE = 8
    MIXTURE = 9
    SAMPLE_SOURCE = 10
    SPAN_LENGTHS = 11
    UNIT_CUT = 12


# The increment, shifts and multipliers of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
INCREMENT = 0x9E3779B97F4A7C15
SHIFTS, MULTIPLIERS = (30, 27), (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def hash_key(stream: Stream, *key: int) -> int:
    """Hash a key to 64 bits."""
    return int(np.random.SeedSequence((int(stream), len(key), *key)).generate_state(1, np.uint64)[0])


def build_numpy_generator(stream: Stream, *key: int) -> np.random.Generator:
    """Build a NumPy generator from a key."""
    return np.random.Generator(np.random.PCG64([int(stream), len(key), *key]))


def shuffle(size: int, stream: Stream, *key: int) -> Int[np.ndarray, " N"]:
    """Permute the numbers below `size` by a key; 32 bits, if sufficient, take half the memory and two thirds of the time."""
    order = np.arange(size, dtype=np.int32 if size <= 2**31 else np.int64)
    build_numpy_generator(stream, *key).shuffle(order)
    return order


def seed_everything(stream: Stream, *key: int) -> None:
    """Seed the generators of Python, NumPy and PyTorch (all devices) with a hash of a key."""
    state = hash_key(stream, *key)
    random.seed(state)
    np.random.seed(state % 2**32)
    torch.manual_seed(state)


def derive_row_keys(rows: Int[np.ndarray, " B"], stream: Stream, *key: int) -> Int64[np.ndarray, " B"]:
    """Derive a key for each of the given row numbers."""
    return derive_keys(np.array(hash_key(stream, *key), np.uint64).view(np.int64), rows)


def derive_keys(keys: Int64[np.ndarray, "*B"], numbers: Int[np.ndarray, " B"]) -> Int64[np.ndarray, " B"]:
    """Output number `numbers` of SplitMix64 from the state `keys`: one state for all numbers, or one for each."""
    x = keys.view(np.uint64) + numbers.astype(np.uint64) * np.uint64(INCREMENT)
    for shift, multiplier in zip(SHIFTS, MULTIPLIERS, strict=True):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(multiplier)
    return (x ^ (x >> np.uint64(31))).view(np.int64)


def uniform(keys: Int64[Tensor, " B"], draw: Draw, number: int) -> Float[Tensor, "B n"]:
    """Draw `number` random numbers for each key, uniform in [0, 1) in steps of 2^-24, on the device of the keys.

    The first numbers of a row do not depend on how many are drawn, so padding does not change them.
    """
    places = torch.arange(int(draw) << 32, (int(draw) << 32) + number, device=keys.device)
    x = keys.unsqueeze(1) + places.mul_(to_signed(INCREMENT))
    for shift, multiplier in zip(SHIFTS, MULTIPLIERS, strict=True):
        # A right shift of signed integers copies the sign bit; the mask clears the copies.
        x = x.bitwise_xor_((x >> shift).bitwise_and_((1 << (64 - shift)) - 1)).mul_(to_signed(multiplier))
    return (x >> 40).bitwise_and_((1 << 24) - 1).float().mul_(2.0**-24)


def to_signed(bits: int) -> int:
    """Reinterpret 64 bits as a signed integer."""
    return bits - (1 << 64) if bits >> 63 else bits
