import numpy as np
import pytest

from electra.data.examples import cut_examples, pack_examples

CLS, SEP = 2, 3


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("seq_len", [5, 6, 9, 32, 128])
def test_every_token_is_in_exactly_one_example_in_order(seq_len: int) -> None:
    for seed in range(60):
        lengths = (rng(seed).pareto(1, rng(seed).integers(1, 60)) * 7).astype(int).tolist()  # many 0, some 1000
        cuts = cut_examples(lengths, seq_len, rng(seed))
        starts, boundaries, ends = cuts.T
        assert np.array_equal(np.append(starts, sum(lengths)), np.insert(ends, 0, 0))
        assert (starts < boundaries).all(), "segment a has at least one token"
        assert (boundaries <= ends).all()
        assert (ends - starts + 2 + (ends > boundaries) <= seq_len).all()


def test_empty_document_has_no_examples() -> None:
    assert cut_examples([], 128, rng()).shape == (0, 3)
    assert cut_examples([0, 0], 128, rng()).shape == (0, 3)
    assert cut_examples([0, 1, 0], 128, rng()).tolist() == [[0, 1, 1]]


def test_shares_and_sizes_equal_those_of_the_original_builder() -> None:
    """Lines of one token show every decision: build_pretraining_dataset.py, _create_example."""
    seq_len = 65
    starts, boundaries, ends = cut_examples([1] * 1_000_000, seq_len, rng())[:-1].T
    a, b = boundaries - starts, ends - boundaries
    n = len(a)
    full = a + b >= seq_len - 3
    assert 1 - full.mean() == pytest.approx(0.05 * 58 / 61, abs=0.006), "short examples, of uniform length"
    assert (a + b)[~full].min() == 5
    assert (a + b)[~full].mean() == pytest.approx(33, abs=1)
    assert (b == 0).mean() == pytest.approx(0.1, abs=0.01), "single segments"
    assert (a[full & (b == 0)] == seq_len - 2).all()
    pairs = full & (b > 0) & (a >= 29)  # the target of a is 31, except in short examples that became full
    assert np.isin(a[pairs], [30, 31]).mean() > 0.995
    assert (a[pairs] == 31).mean() == pytest.approx(0.5, abs=0.02), "half of the targets of a are 31"
    assert pairs.sum() > 0.8 * n


def test_overflowing_line_continues_in_the_next_example() -> None:
    cuts = cut_examples([300], 102, NoChance())
    assert cuts.tolist() == [[0, 100, 100], [100, 200, 200], [200, 300, 300]]


def test_no_line_joins_segment_a_after_segment_b_began() -> None:
    """The original code adds a short line to segment a even after b has begun, which changes the order of the text."""
    cuts = cut_examples([40, 30, 1, 1], 128, NoChance())
    assert cuts.tolist() == [[0, 40, 72]]


class NoChance(np.random.Generator):
    """Draws 0.999: full target lengths, two segments, and the shorter first segment."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64())

    def random(self) -> float:
        return 0.999


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_packing_equals_a_version_with_lists(dtype: type) -> None:
    lengths = [3, 50, 7, 1, 1, 1, 120, 4]
    tokens = rng().integers(10, 60_000, sum(lengths)).astype(dtype)
    cuts = np.concatenate(
        [cut_examples(lengths[:5], 20, rng()), cut_examples(lengths[5:], 20, rng()) + sum(lengths[:5])]
    )
    packed = pack_examples(tokens, cuts, CLS, SEP)
    assert packed.ids.dtype == dtype
    assert len(packed) == len(cuts) > 10
    kinds = set()
    for i, (start, boundary, end) in enumerate(cuts.tolist()):
        a, b = tokens[start:boundary].tolist(), tokens[boundary:end].tolist()
        expected = [CLS, *a, SEP, *b, SEP] if b else [CLS, *a, SEP]
        assert packed.ids[packed.offsets[i] : packed.offsets[i + 1]].tolist() == expected
        assert packed.segment_a[i] == len(a) + 2
        kinds.add(bool(b))
    assert kinds == {True, False}


def test_packing_of_no_tokens() -> None:
    packed = pack_examples(np.zeros(0, np.uint16), np.zeros((0, 3), np.int64), CLS, SEP)
    assert len(packed) == 0
    assert packed.offsets.tolist() == [0]
