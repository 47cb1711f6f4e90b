"""A mixture of generators: losses and samples of several layers of one network."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import chisquare
from support.errors import raises
from support.tiny_models import ENCODER, batch, model, redraw
from torch import Tensor

from electra.data.batch import Batch
from electra.errors import UsageError
from electra.model.flops import masked_lm_head_flops
from electra.presets import tiny
from electra.pretraining.objectives.corruptions.corruption import mask_for_generator
from electra.pretraining.objectives.corruptions.layer_mixture import LayerMixtureSamples, resolve_mixture_layers
from electra.pretraining.objectives.corruptions.masking import MaskedPositions, MaskingConfig
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.objectives.networks import GeneratorConfig
from electra.seeding import Draw, uniform

DEEP = replace(ENCODER, num_layers=4)
MIXTURE = GeneratorConfig(kind="layer-mixture", size=0.5)
LAYERS = (2, 3, 4)
"""Of a generator with four layers, by default."""


def compute_outputs(electra: PretrainingModel, inputs: Batch, masked: MaskedPositions) -> list[Tensor]:
    """Return the logits at the masked positions after each of `LAYERS`, by another path and without stopped gradients."""
    ids = mask_for_generator(inputs, masked, 4, electra.spec.masking)
    hidden = list(electra.generator.encoder.hidden_states(ids, inputs.token_type_ids, inputs.attention_mask))
    at = masked.positions[..., None].expand(-1, -1, electra.generator.config.hidden_size)
    return [electra.generator(hidden=hidden[layer].gather(1, at)) for layer in LAYERS]


def compute_losses(electra: PretrainingModel, inputs: Batch, masked: MaskedPositions) -> list[Tensor]:
    """Return the loss at each masked position, predicted from each of `LAYERS`."""
    original = inputs.input_ids.gather(1, masked.positions)
    return [
        F.cross_entropy(logits.flatten(0, 1), original.flatten(), reduction="none").view_as(original) * masked.used
        for logits in compute_outputs(electra, inputs, masked)
    ]


@pytest.mark.parametrize("lengths", [(40, 40, 23, 7), (40, 40)], ids=["packed", "padded"])
def test_loss_is_the_mean_over_the_layers(lengths: tuple[int, ...]) -> None:
    electra, inputs = model(encoder=DEEP, generator=MIXTURE).eval(), batch(lengths)
    done = electra.run(inputs)
    expected = torch.stack(compute_losses(electra, inputs, done.masked)).mean(0)
    torch.testing.assert_close(done.losses["generator_loss"], expected)
    assert done.sums["generator_loss"] == pytest.approx(float(expected.detach().sum()))


@pytest.mark.parametrize("tying", ["embeddings", "trunk"])
def test_gradients_stop_between_the_layers(tying: str) -> None:
    """A layer has the gradient of the next prediction only; the input embeddings have that of the first one."""
    generator = replace(MIXTURE, tying=tying, size=1.0)
    electra, inputs = model(encoder=DEEP, generator=generator).eval(), batch()
    done = electra.run(inputs)
    losses = compute_losses(electra, inputs, done.masked)
    encoder = electra.generator.encoder
    for number, layer in enumerate([encoder.project, *encoder.layers]):
        loss = losses[next(i for i, last in enumerate(LAYERS) if number <= last)].sum() / len(LAYERS)
        expected = torch.autograd.grad(loss, list(layer.parameters()), retain_graph=True)
        found = torch.autograd.grad(
            done.losses["generator_loss"].sum(), list(layer.parameters()), retain_graph=True, materialize_grads=True
        )
        for ours, theirs in zip(found, expected, strict=True):
            assert theirs.abs().sum() > 0
            torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-4)


@torch.no_grad()
def test_samples_are_those_of_a_layer_chosen_uniformly() -> None:
    electra = model(encoder=DEEP, generator=MIXTURE, masking=MaskingConfig(fraction=0.5)).eval()
    for parameter in electra.generator.parameters():  # so that the layers predict different tokens
        parameter.normal_(std=0.3)
    chosen = torch.zeros(len(LAYERS))
    for seed in range(20):
        inputs = redraw(batch((60,) * 20), seed)
        done = electra.run(inputs)
        u = uniform(inputs.row_keys, Draw.SAMPLES, done.masked.positions.shape[1])
        samples = []
        for logits in compute_outputs(electra, inputs, done.masked):
            logits[..., 4] = -torch.inf  # [MASK]
            cumulative = logits.softmax(-1).cumsum(-1)
            samples.append(torch.searchsorted(cumulative, (u * cumulative[..., -1]).unsqueeze(-1)).squeeze(-1))
        found = done.corrupted.input_ids.gather(1, done.masked.positions)
        equal = torch.stack([found == sample for sample in samples]) & done.masked.used
        assert (equal.any(0) == done.masked.used).double().mean() > 0.999, "but for rounding"
        first, second, third = samples
        chosen += equal[:, (first != second) & (second != third) & (first != third)].sum(1)
    assert chosen.sum() > 500
    assert chisquare(chosen.numpy()).pvalue > 1e-3


def test_choice_of_the_layer_does_not_depend_on_the_sample() -> None:
    keys = batch((40,) * 500).row_keys
    choice, sample = (uniform(keys, draw, 8).flatten() for draw in (Draw.MIXTURE, Draw.SAMPLES))
    assert abs(float(torch.corrcoef(torch.stack([choice, sample]))[0, 1])) < 0.05


def test_metrics_are_of_the_chosen_layer() -> None:
    electra, inputs = model(encoder=DEEP, generator=MIXTURE).eval(), batch((60,) * 50)
    done = electra.run(inputs)
    original = inputs.input_ids.gather(1, done.masked.positions)
    correct = [
        int(((logits.argmax(-1) == original) & done.masked.used).sum())
        for logits in compute_outputs(electra, inputs, done.masked)
    ]
    assert min(correct) <= int(done.sums["generator_correct"]) <= sum(correct)
    assert electra.generator is not None
    assert "generator_accuracy" in electra.metrics(done.sums)


def test_flops_count_a_prediction_for_each_layer() -> None:
    plain, mixture = (
        model(encoder=DEEP, generator=replace(MIXTURE, kind=kind)).corruption for kind in ("masked-lm", "layer-mixture")
    )
    heads = mixture.cost(40, 6).flops - plain.cost(40, 6).flops
    assert heads == 2 * 2 * 6 * masked_lm_head_flops(mixture.generator.config)


def test_layers_that_predict() -> None:
    for depth, layers in ((2, (1, 2)), (8, (4, 6, 8)), (12, (6, 9, 12))):
        assert resolve_mixture_layers(replace(DEEP, num_layers=depth), MIXTURE) == layers
    electra = model(encoder=DEEP, generator=replace(MIXTURE, mixture_layers=(1, 4)))
    assert isinstance(electra.corruption, LayerMixtureSamples)
    assert electra.corruption.layers == (1, 4)


@pytest.mark.parametrize("layers", [(2,), (2, 1), (1, 1, 2), (0, 2), (1, 3), (1,)])
def test_impossible_layers_are_refused(layers: tuple[int, ...]) -> None:
    assert tiny().model.num_layers == 2
    with raises(UsageError, "wrong-layers", "layer-mixture", 2, " ".join(map(str, layers))):
        replace(tiny(), generator=replace(MIXTURE, mixture_layers=layers))


def test_mixture_of_one_layer_is_refused() -> None:
    with raises(UsageError, "wrong-layers", "layer-mixture", 1, "--generator.depth"):
        replace(tiny(), generator=replace(MIXTURE, depth=0.5))
