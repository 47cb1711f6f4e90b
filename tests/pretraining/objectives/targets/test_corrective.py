"""Corrective language modeling: its losses and metrics by full softmax, the stopped gradient, its cost, its saved head."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.tiny_models import ENCODER, batch, choose, model
from support.toy import TINY_RUN

import electra
from electra.data.batch import Batch
from electra.model.checkpoints import find_pretraining_heads
from electra.model.flops import masked_lm_head_flops
from electra.pretraining.evaluation.networks import find_networks
from electra.pretraining.objectives.corruptions.masking import MaskingConfig, count_masked_in_row
from electra.pretraining.objectives.model import ForwardOutput, PretrainingModel
from electra.pretraining.objectives.networks import GeneratorConfig
from electra.pretraining.objectives.targets.corrective import CorrectiveConfig
from electra.pretraining.objectives.targets.replaced_tokens import TokenPredictionConfig

NO_DROPOUT = replace(ENCODER, dropout=0.0, attention_dropout=0.0)
MASKING = MaskingConfig(fraction=0.25)
ALL = CorrectiveConfig(all_tokens=True)
SHARED = GeneratorConfig(size=1.0, tying="all")


def build(**options: object) -> PretrainingModel:
    """A model with detector scores that are not near 0, so that copy probabilities differ."""
    network = model("corrective-lm", masking=MASKING, encoder=NO_DROPOUT, **options)
    torch.nn.init.normal_(network.target.network.head.score.weight, std=3.0)
    return network


def mark_masked(inputs: Batch) -> torch.Tensor:
    masked = choose(inputs, MASKING)
    marked = torch.zeros_like(inputs.input_ids, dtype=torch.bool)
    for row, (positions, used) in enumerate(zip(masked.positions, masked.used, strict=True)):
        marked[row, positions[used]] = True
    return marked


def compute_probabilities(network: PretrainingModel, inputs: Batch, output: ForwardOutput) -> torch.Tensor:
    """The mixture of copy and softmax over the vocabulary, at all positions."""
    ids = output.corrupted.input_ids
    logits, hidden = network.target.network(ids, inputs.token_type_ids, inputs.attention_mask, return_hidden=True)
    softmax = network.target.masked_lm(hidden=hidden).softmax(-1)
    if not network.spec.copies:
        return softmax
    replaced = logits.sigmoid()[..., None]
    return (1 - replaced) * torch.nn.functional.one_hot(ids, softmax.shape[-1]) + replaced * softmax


@pytest.mark.parametrize("generator", [None, SHARED, GeneratorConfig(kind="unigram")], ids=["own", "shared", "unigram"])
@pytest.mark.parametrize("corrective", [None, ALL], ids=["masked", "all"])
@pytest.mark.parametrize("copies", [True, False], ids=["copy", "softmax"])
def test_losses_and_accuracies_equal_those_of_the_full_softmax(
    copies: bool, corrective: CorrectiveConfig | None, generator: GeneratorConfig | None
) -> None:
    network, inputs = build(copies=copies, corrective=corrective, generator=generator).train(), batch()
    output = network(inputs)
    p = compute_probabilities(network, inputs, output)
    real = torch.arange(p.shape[1]) < inputs.lengths[:, None]
    scored = real if corrective else mark_masked(inputs)
    nll = -p.gather(-1, inputs.input_ids[..., None]).squeeze(-1).log()
    expected = float((nll * scored).sum().detach())
    assert float(output.losses["corrective_loss"].sum().detach()) == pytest.approx(expected, rel=1e-5)

    counts = network.counts(inputs)
    loss, sums = network(inputs, counts)
    parts = [
        50 * float(sums["discriminator_loss"]) / counts["tokens"],
        float(sums["generator_loss"]) / counts["masked"] if "generator_loss" in sums else 0.0,
        expected / counts["tokens" if corrective else "masked"],
    ]
    assert float(loss.detach()) == pytest.approx(sum(parts), rel=1e-5)

    metrics = network.metrics(sums)
    correct = p.argmax(-1) == inputs.input_ids
    replaced = scored & (output.corrupted.input_ids != inputs.input_ids)
    assert replaced.any()
    assert metrics["corrective_accuracy"] == pytest.approx(float(correct[scored].float().mean()))
    assert metrics["restored"] == pytest.approx(float(correct[replaced].float().mean()))


@pytest.mark.parametrize("corrective", [None, ALL], ids=["masked", "all"])
def test_the_prediction_does_not_train_the_copy_probability(corrective: CorrectiveConfig | None) -> None:
    """Its gradient is 0 at the detector's head and logits, and not at the encoder."""
    network = build(corrective=corrective).train()
    output = network(batch())
    loss, head = output.losses["corrective_loss"].sum(), network.target.network.head
    *of_head, of_logits = torch.autograd.grad(
        loss, [*head.parameters(), output.prediction.logits], allow_unused=True, retain_graph=True
    )
    assert of_head == [None] * 4
    assert of_logits is None
    (of_encoder,) = torch.autograd.grad(
        loss, [network.target.network.encoder.layers[0].ffn.up.weight], retain_graph=True
    )
    assert of_encoder.any()
    (of_detection,) = torch.autograd.grad(output.losses["discriminator_loss"].sum(), [head.score.weight])
    assert of_detection.any()


def test_a_copied_token_trains_the_softmax_less() -> None:
    """At an original token that the detector copies, the softmax is trained less than at a replaced one."""
    gradients = {}
    for score in (-20.0, 20.0):
        network, inputs = build(corrective=ALL).train(), batch()
        torch.nn.init.zeros_(network.target.network.head.score.weight)
        torch.nn.init.constant_(network.target.network.head.score.bias, score)
        output = network(inputs)
        original = output.corrupted.input_ids == inputs.input_ids
        loss = (output.losses["corrective_loss"] * original).sum()
        (gradient,) = torch.autograd.grad(loss, [network.target.masked_lm.head.bias])
        gradients[score] = float(gradient.abs().sum())
    assert gradients[-20.0] < 1e-4 < gradients[20.0]


def test_without_copy_it_is_the_prediction_of_filled_tokens() -> None:
    ours = build(copies=False).train()
    theirs = model(token_prediction=TokenPredictionConfig(filled=1.0), masking=MASKING, encoder=NO_DROPOUT).train()
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    theirs.load_state_dict(ours.state_dict())
    (loss, sums), (other, theirs_sums) = (each(batch(), each.counts(batch())) for each in (ours, theirs))
    assert float(sums["corrective_loss"]) == pytest.approx(float(theirs_sums["filled_prediction_loss"]))
    assert float(loss.detach()) == pytest.approx(float(other.detach()))


def test_the_head_costs_flops() -> None:
    plain, masked, everywhere = (
        each.row_flops(40) for each in (model(masking=MASKING), build(), build(corrective=ALL))
    )
    assert masked - plain == 2 * count_masked_in_row(40, 0.25) * masked_lm_head_flops(ENCODER)
    assert everywhere - plain == 2 * 40 * masked_lm_head_flops(ENCODER)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"objective": "corrective-lm"}, {"token_prediction.filled": 1.0}], ids=str)
def test_a_head_that_never_read_masks_does_not_score_masked_sentences(
    options: dict[str, Any], text: Path, tmp_path: Path
) -> None:
    """It is saved, but `electra score` predicts masked tokens with the generator."""
    electra.pretrain(str(text), out=str(tmp_path / "run"), **options, **TINY_RUN)
    run = tmp_path / "run"
    assert find_pretraining_heads(run / "discriminator") == {"replaced-token", "masked-lm"}
    assert not find_networks(run).predicts_tokens
    (row,) = electra.score("the cat sees mice .", model=run, methods="masked-lm")
    (generator,) = electra.score("the cat sees mice .", model=run / "generator", methods="masked-lm")
    assert row["masked-lm"] == generator["masked-lm"]
