"""Masked positions, and the tokens written there."""

import pytest
import torch
from scipy.stats import chisquare
from support.errors import raises
from support.tiny_models import CLS, MASK, PAD, SEP, SPECIAL, batch, choose, redraw

from electra.errors import UsageError
from electra.pretraining.objectives.corruptions.corruption import mask_for_generator, mask_like_bert
from electra.pretraining.objectives.corruptions.masking import (
    MaskedPositions,
    MaskingConfig,
    count_masked,
    write_samples,
    write_tokens,
)
from electra.seeding import Draw, uniform


@pytest.mark.parametrize(
    ("length", "fraction", "number"),
    [
        (128, 0.15, 19),
        (512, 0.15, 77),
        (512, 0.25, 128),
        (10, 0.25, 2),  # 2.5, half to even
        (14, 0.25, 4),  # 3.5, half to even
        (4, 0.15, 1),  # at least one
        (3, 0.5, 1),
        (5, 0.5, 2),
        (6, 0.5, 3),
        (8, 0.5, 4),
    ],
)
def test_number_of_masked_positions(length: int, fraction: float, number: int) -> None:
    assert int(count_masked(torch.tensor([length]), fraction)) == number


def test_no_special_token_or_padding_is_masked_and_no_position_twice() -> None:
    inputs = batch(lengths=(40, 33, 12, 7, 5, 4))
    for seed in range(50):
        chosen = choose(redraw(inputs, seed), MaskingConfig())
        assert chosen.positions.shape == (6, 6), "the number of slots of a full row"
        expected = count_masked(inputs.lengths, 0.15)
        assert torch.equal(chosen.used.sum(1), expected)
        for row in range(6):
            positions = chosen.positions[row, chosen.used[row]]
            assert len(set(positions.tolist())) == len(positions)
            assert not set(inputs.input_ids[row, positions].tolist()) & {PAD, CLS, SEP, MASK}


def test_positions_are_uniform_and_depend_on_the_key() -> None:
    inputs = batch(lengths=(23,) * 400)
    chosen = choose(inputs, MaskingConfig())
    counts = torch.bincount(chosen.positions[chosen.used], minlength=23)
    candidates = torch.tensor([i for i in range(23) if inputs.input_ids[0, i] not in SPECIAL])
    assert chisquare(counts[candidates].numpy()).pvalue > 1e-3
    again = choose(redraw(inputs, 7), MaskingConfig())
    assert not torch.equal(chosen.positions, again.positions)


def test_sampling_with_replacement_repeats_positions() -> None:
    inputs = batch(lengths=(60,) * 300)
    config = MaskingConfig(fraction=0.15, with_replacement=True)
    chosen = choose(inputs, config)
    assert chosen.used.all()
    distinct = torch.tensor([len(set(row.tolist())) for row in chosen.positions]).double().mean()
    candidates, draws = 57, 9
    expected = candidates * (1 - (1 - 1 / candidates) ** draws)
    assert float(distinct) == pytest.approx(expected, rel=0.02)
    assert expected < draws


def test_repeated_position_gets_the_floor_of_the_mean() -> None:
    ids = torch.tensor([[1, 10, 11, 12, 2]])
    chosen = MaskedPositions(torch.tensor([[1, 3, 1, 2]]), torch.tensor([[True, True, True, False]]))
    samples, config = torch.tensor([[20, 30, 23, 40]]), MaskingConfig(with_replacement=True)
    written = write_samples(ids, chosen.positions, samples, chosen.used, config)
    assert written.tolist() == [[1, 21, 11, 30, 2]]


def test_unused_slots_leave_ids_unchanged() -> None:
    ids = torch.tensor([[1, 10, 11, 12, 2], [1, 20, 21, 22, 2]])
    positions, where = torch.tensor([[1, 3], [2, 3]]), torch.tensor([[True, False], [True, True]])
    written = write_tokens(ids, positions, torch.tensor([[50, 51], [52, 53]]), where)
    assert written.tolist() == [[1, 50, 11, 12, 2], [1, 20, 52, 53, 2]]
    assert write_tokens(ids, positions, MASK, where).tolist() == [[1, MASK, 11, 12, 2], [1, 20, MASK, MASK, 2]]


@pytest.mark.parametrize("mask", ["generator", "bert", "bert with random tokens"])
def test_repeated_position_is_masked_if_either_slot_masks(mask: str) -> None:
    """As in the original code (REFERENCE: pretrain_helpers.py:201-205): nothing but [MASK] and originals is written."""
    inputs = batch(lengths=(60,) * 300, vocab=50_000)
    random = 0.1 if mask == "bert with random tokens" else 0.0
    config = MaskingConfig(with_replacement=True, generator_mask=0.5, mlm_mask=0.5, mlm_random=random)
    chosen = choose(inputs, config)
    if mask == "generator":
        corrupted = mask_for_generator(inputs, chosen, MASK, config)
    else:
        corrupted = mask_like_bert(inputs, chosen, MASK, 50_000, config)
    masked = uniform(inputs.row_keys, Draw.MASKS, chosen.positions.shape[1]) < 0.5
    times = torch.zeros_like(inputs.input_ids).scatter_add(1, chosen.positions, chosen.used.long())
    times_masked = torch.zeros_like(times).scatter_add(1, chosen.positions, (chosen.used & masked).long())
    assert ((times == 2) & (times_masked == 1)).any(), "the case occurs"
    assert torch.equal(corrupted == MASK, times_masked > 0)
    changed = (corrupted != inputs.input_ids) & (corrupted != MASK)
    assert bool(changed.any()) == (random > 0), "no other token is written, except configured random ones"


def compute_shares(corrupted: torch.Tensor, inputs, chosen: MaskedPositions) -> dict[str, float]:
    at = corrupted.gather(1, chosen.positions)[chosen.used]
    original = inputs.input_ids.gather(1, chosen.positions)[chosen.used]
    outside = torch.ones_like(corrupted, dtype=torch.bool).scatter(1, chosen.positions, ~chosen.used)
    assert torch.equal(corrupted[outside], inputs.input_ids[outside]), "other positions are unchanged"
    return {
        "mask": float((at == MASK).double().mean()),
        "kept": float((at == original).double().mean()),
    }


def test_generator_input_has_85_percent_masks() -> None:
    inputs = batch(lengths=(60,) * 600)
    chosen = choose(inputs, MaskingConfig())
    found = compute_shares(mask_for_generator(inputs, chosen, MASK, MaskingConfig()), inputs, chosen)
    assert found["mask"] == pytest.approx(0.85, abs=0.015)
    assert found["mask"] + found["kept"] == 1.0, "never a random token"


@pytest.mark.parametrize(("mask", "random"), [(0.8, 0.1), (0.85, 0.0), (0.5, 0.5)])
def test_bert_input_has_80_10_10_percent(mask: float, random: float) -> None:
    inputs = batch(lengths=(60,) * 600)
    config = MaskingConfig(mlm_mask=mask, mlm_random=random)
    chosen = choose(inputs, config)
    found = compute_shares(mask_like_bert(inputs, chosen, MASK, 64, config), inputs, chosen)
    by_chance = random / 64  # a random token may be [MASK] or the original
    assert found["mask"] == pytest.approx(mask + by_chance, abs=0.015)
    assert found["kept"] == pytest.approx(1 - mask - random + by_chance, abs=0.015)


@pytest.mark.parametrize(
    "options",
    [{"fraction": 0.0}, {"fraction": 0.6}, {"generator_mask": 1.5}, {"mlm_mask": 0.9, "mlm_random": 0.2}],
    ids=str,
)
def test_invalid_shares_raise(options: dict[str, float]) -> None:
    values = [f"masking.{name}".replace("_", "-" if len(options) == 1 else "_") for name in options] + list(
        options.values()
    )
    with raises(UsageError, "out-of-range", *values):
        MaskingConfig(**options)
