"""Predictions of tokens by the discriminator (`TokenPredictionConfig`): its inputs, losses, gradients and cost."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from support.tiny_models import ENCODER, MASK, batch, choose, model

from electra.model.flops import masked_lm_head_flops
from electra.pretraining.objectives.corruptions.masking import MaskedPositions, MaskingConfig, count_masked_in_row
from electra.pretraining.objectives.networks import GeneratorConfig
from electra.pretraining.objectives.targets.replaced_tokens import TokenPredictionConfig

BOTH = TokenPredictionConfig(masked=2.0, filled=3.0)
NO_DROPOUT = replace(ENCODER, dropout=0.0, attention_dropout=0.0)
MASKING = MaskingConfig(fraction=0.25)
SHARED = GeneratorConfig(size=1.0, tying="all")


def mark(at: MaskedPositions, shape: torch.Size) -> torch.Tensor:
    """Mark positions in a boolean mask."""
    marked = torch.zeros(shape, dtype=torch.bool)
    for row, (positions, used) in enumerate(zip(at.positions, at.used, strict=True)):
        marked[row, positions[used]] = True
    return marked


@pytest.mark.parametrize(
    "generator",
    [None, SHARED, GeneratorConfig(kind="unigram")],
    ids=["own", "shared", "unigram"],
)
def test_losses_equal_those_by_hand(generator: GeneratorConfig | None) -> None:
    electra = model(token_prediction=BOTH, masking=MASKING, encoder=NO_DROPOUT, generator=generator).train()
    inputs = batch()
    output = electra(inputs)
    at, ids = output.corrupted.remasked, output.corrupted.input_ids
    assert at is not None
    masked_by_generator = mark(choose(inputs, MASKING), ids.shape)
    remasked = mark(at, ids.shape)
    assert torch.equal(ids == MASK, remasked)
    assert torch.equal(ids[~masked_by_generator & ~remasked], inputs.input_ids[~masked_by_generator & ~remasked])
    assert not torch.equal(remasked, masked_by_generator), "other positions"

    discriminator = electra.target.network
    logits, hidden = discriminator(ids, inputs.token_type_ids, inputs.attention_mask, return_hidden=True)
    real = torch.arange(ids.shape[1]) < inputs.lengths[:, None]
    replaced = (ids != inputs.input_ids).float()
    expected = F.binary_cross_entropy_with_logits(logits, replaced, reduction="none") * (real & ~remasked)
    torch.testing.assert_close(output.losses["discriminator_loss"], expected)
    vocabulary_logits = electra.target.masked_lm(hidden=hidden)
    nll = F.cross_entropy(vocabulary_logits.flatten(0, 1), inputs.input_ids.flatten(), reduction="none")
    nll = nll.view_as(ids)
    torch.testing.assert_close(output.losses["masked_prediction_loss"].sum(), (nll * remasked).sum())
    torch.testing.assert_close(output.losses["filled_prediction_loss"].sum(), (nll * masked_by_generator).sum())

    counts = electra.counts(inputs)
    loss, sums = electra(inputs, counts)
    parts = [
        50 * float(sums["discriminator_loss"]) / counts["tokens"],
        float(sums["generator_loss"]) / counts["masked"] if "generator_loss" in electra.loss_terms else 0.0,
        2 * float(sums["masked_prediction_loss"]) / counts["others"],
        3 * float(sums["filled_prediction_loss"]) / counts["masked"],
    ]
    assert float(loss.detach()) == pytest.approx(sum(parts))


def test_detection_does_not_depend_on_remasked_positions() -> None:
    """The discriminator's loss has no gradient with respect to its logits there."""
    electra = model(token_prediction=BOTH, masking=MASKING).train()
    output = electra(batch())
    assert output.corrupted.remasked is not None
    (gradient,) = torch.autograd.grad(output.losses["discriminator_loss"].sum(), output.prediction.logits)
    remasked = mark(output.corrupted.remasked, gradient.shape)
    assert not gradient[remasked].any()
    assert gradient[~remasked].any()


def test_a_shared_encoder_has_one_head_for_both_predictions() -> None:
    shared, alone = (model(token_prediction=config, generator=SHARED, masking=MASKING) for config in (BOTH, None))
    assert shared.target.masked_lm is shared.generator
    assert sum(p.numel() for p in shared.parameters()) == sum(p.numel() for p in alone.parameters())
    shared.train()
    losses = shared(batch()).losses
    weight = shared.generator.head.dense.weight
    for name in ("generator_loss", "masked_prediction_loss", "filled_prediction_loss"):
        assert torch.autograd.grad(losses[name].sum(), weight, retain_graph=True)[0].any(), name


def test_held_out_text_is_not_remasked() -> None:
    electra, plain = (model(token_prediction=config, masking=MASKING).eval() for config in (BOTH, None))
    plain.load_state_dict(electra.state_dict(), strict=False)
    ours, theirs = electra(batch()), plain(batch())
    assert ours.corrupted.remasked is None
    assert not [name for name in ours.losses if "prediction" in name]
    assert torch.equal(ours.prediction.logits, theirs.prediction.logits)
    assert electra.metrics(ours.sums).keys() == plain.metrics(theirs.sums).keys()


def test_weight_zero_changes_nothing() -> None:
    off, plain = (model(token_prediction=config, masking=MASKING).train() for config in (TokenPredictionConfig(), None))
    assert off.state_dict().keys() == plain.state_dict().keys()
    assert off(batch()).corrupted.remasked is None


def test_the_head_costs_flops() -> None:
    with_head, without = (model(token_prediction=config, masking=MASKING).row_flops(40) for config in (BOTH, None))
    assert with_head - without == 2 * 2 * count_masked_in_row(40, 0.25) * masked_lm_head_flops(ENCODER)
