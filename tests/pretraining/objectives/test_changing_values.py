"""Options that change over training: the model at any share of the run equals one with the values of this share."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from support.tiny_models import ENCODER, MASK, SPECIAL, batch, model
from torch import nn

from electra.model.flops import discriminator_step_flops, masked_lm_step_flops
from electra.pretraining.evaluation.held_out import evaluate
from electra.pretraining.objectives.corruptions.corruption import compute_frequencies
from electra.pretraining.objectives.corruptions.masking import MaskingConfig, count_masked, count_masked_over_run
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.objectives.networks import GeneratorConfig
from electra.pretraining.objectives.progress import interpolate, list_changing, resolve_at
from electra.pretraining.objectives.spec import GENERATORS
from electra.runtime.setup import Runtime
from electra.seeding import Draw, uniform
from electra.train.loop import FollowsProgress

CHANGES: dict[str, tuple[Any, str]] = {
    "masking.fraction": (MaskingConfig(fraction=0.3, final_fraction=0.1), "fraction"),
    "generator.temperature": (GeneratorConfig(temperature=3.0, final_temperature=0.5), "temperature"),
    "generator.frequency_share": (GeneratorConfig(frequency_share=0.9, final_frequency_share=0.1), "frequency_share"),
    "generator.loss_weight": (GeneratorConfig(loss_weight=2.0, final_loss_weight=0.5), "loss_weight"),
}
"""A configuration with the option, and its name in there."""


def build(config: MaskingConfig | GeneratorConfig, **parts: Any) -> PretrainingModel:
    return model(**{"masking" if isinstance(config, MaskingConfig) else "generator": config}, **parts)


def compute(electra: PretrainingModel, lengths: tuple[int, ...] = (60, 60, 23)) -> dict[str, torch.Tensor]:
    """Return the loss of a batch, its sums and the gradients, with the same dropout each time."""
    inputs = batch(lengths)
    torch.manual_seed(7)
    electra.zero_grad()
    loss, sums = electra(inputs, electra.counts(inputs))
    loss.backward()
    gradients = {name: each.grad for name, each in electra.named_parameters() if each.grad is not None}
    return {"total": loss.detach(), **sums, **gradients}


def assert_same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


def test_interpolation_is_linear_and_exact_at_both_ends() -> None:
    assert interpolate(0.3, 0.1, 0.0) == 0.3
    assert interpolate(0.3, 0.1, 1.0) == 0.1
    assert interpolate(2.0, 4.0, 0.25) == 2.5


def test_values_of_a_share_of_the_run() -> None:
    config = GeneratorConfig(temperature=2.0, final_temperature=1.0, final_loss_weight=0.0, frequency_share=0.5)
    assert list_changing(config) == ["temperature", "loss_weight"]
    assert resolve_at(config, 0.25) == GeneratorConfig(temperature=1.75, loss_weight=0.75, frequency_share=0.5)
    assert list_changing(resolve_at(config, 0.25)) == []
    constant = GeneratorConfig(temperature=2.0)
    assert resolve_at(constant, 0.25) is constant


@pytest.mark.parametrize("done", [0.0, 0.3, 0.999])
@pytest.mark.parametrize("option", CHANGES)
def test_update_equals_that_of_constant_values(option: str, done: float) -> None:
    """Loss, sums and gradients are equal to the bit, and so are counts and FLOPs."""
    config, name = CHANGES[option]
    value = interpolate(getattr(config, name), getattr(config, f"final_{name}"), done)
    changing, constant = build(config), build(replace(config, **{name: value, f"final_{name}": None}))
    changing.set_progress(done)
    assert_same(compute(changing), compute(constant))
    inputs = batch()
    assert changing.counts(inputs) == constant.counts(inputs)
    assert changing.flops(inputs) == constant.flops(inputs)
    if done:
        changing.set_progress(0.0)
        before = compute(changing)
        assert any(not torch.equal(each, before[key]) for key, each in compute(constant).items())


@pytest.mark.parametrize("kind", [name for name, kind in GENERATORS.items() if kind.is_network])
def test_values_change_in_every_generator_network(kind: str) -> None:
    deep = replace(ENCODER, num_layers=4)
    for option, (config, name) in CHANGES.items():
        if not option.startswith("generator."):
            continue
        value = getattr(config, name)
        changing = build(replace(config, kind=kind), encoder=deep)
        first, last = (
            build(replace(config, kind=kind, **{name: each, f"final_{name}": None}), encoder=deep)
            for each in (value, getattr(config, f"final_{name}"))
        )
        for done, constant in ((0.0, first), (1.0, last)):
            changing.set_progress(done)
            assert_same(compute(changing), compute(constant))
        assert not torch.equal(compute(first)["total"], compute(last)["total"]), option


@pytest.mark.parametrize("option", CHANGES)
def test_held_out_metrics_use_final_values(option: str) -> None:
    config, name = CHANGES[option]
    changing = build(config)
    final = build(replace(config, **{name: getattr(config, f"final_{name}"), f"final_{name}": None}))
    changing.set_progress(0.2)
    cpu, unigrams = Runtime(torch.device("cpu"), torch.float32), torch.ones(64, dtype=torch.long)
    ours, theirs = (evaluate(each, [batch()], unigrams, cpu) for each in (changing, final))
    assert ours == theirs
    assert changing.training
    assert changing.progress == 0.2


@pytest.mark.parametrize("option", CHANGES)
def test_current_value_is_a_metric_of_training(option: str) -> None:
    config, name = CHANGES[option]
    changing = build(config)
    changing.set_progress(0.5)
    inputs = batch()
    _, sums = changing(inputs, changing.counts(inputs))
    expected = (getattr(config, name) + getattr(config, f"final_{name}")) / 2
    assert changing.metrics(sums)[option.replace(".", "_")] == pytest.approx(expected)
    assert option.replace(".", "_") not in model().metrics(sums)


def test_options_of_a_generator_are_no_metrics_without_one() -> None:
    assert build(CHANGES["generator.temperature"][0], objective="mlm").changing_values == {}


def test_modules_without_changing_values_do_not_follow_the_progress() -> None:
    assert isinstance(model(), FollowsProgress)
    assert not isinstance(nn.Linear(1, 1), FollowsProgress)


def test_slots_counts_and_flops_follow_the_masked_share() -> None:
    masking = MaskingConfig(fraction=0.3, final_fraction=0.1)
    electra, inputs = model(masking=masking), batch((40, 40, 23))
    for done, in_full_row in ((0.0, 12), (0.5, 8), (0.99, 4)):
        electra.set_progress(done)
        output = electra.run(inputs)
        number = count_masked(inputs.lengths, 0.3 - 0.2 * done)
        assert output.masked.positions.shape[1] == in_full_row
        assert torch.equal(output.masked.used.sum(1), number)
        assert electra.counts(inputs)["masked"] == float(number.sum())
        generator = masked_lm_step_flops(electra.generator.config, 40, in_full_row)
        assert electra.flops(inputs) == 3 * (generator + discriminator_step_flops(ENCODER, 40))


@pytest.mark.parametrize("final", [0.05, 0.3, None])
def test_mean_costs_are_those_of_the_updates_of_a_run(final: float | None) -> None:
    electra, updates = model(masking=MaskingConfig(fraction=0.3, final_fraction=final)), 370
    spent = 0
    for update in range(updates):
        electra.set_progress((update + 0.5) / updates)
        spent += electra.row_flops(40)
    assert electra.mean_row_flops(40) == pytest.approx(spent / updates, rel=1e-4)
    assert sum(count_masked_over_run(40, electra.spec.masking).values()) == pytest.approx(1.0)
    if final in (0.3, None):
        assert electra.mean_row_costs(40) == electra.row_costs(40)
    else:
        assert count_masked_over_run(40, electra.spec.masking)[7] == pytest.approx(1 / 10, abs=2e-3)


@pytest.mark.parametrize("exclude", [False, True])
def test_samples_come_from_the_network_or_from_the_frequencies(exclude: bool) -> None:
    """Which one, a random number of each position decides, and the other source does not matter there."""
    inputs = batch((60,) * 50)
    mixture, network, frequencies = (
        model(generator=GeneratorConfig(size=0.25, exclude_original_token=exclude, **options)).eval()
        for options in ({"frequency_share": 0.3}, {}, {"kind": "unigram"})
    )
    with torch.no_grad():
        outputs = [each.run(inputs) for each in (mixture, network, frequencies)]
    masked = outputs[0].masked
    mixed, sampled, drawn = (output.corrupted.input_ids.gather(1, masked.positions) for output in outputs)
    chosen = uniform(inputs.row_keys, Draw.SAMPLE_SOURCE, masked.positions.shape[1]) < 0.3
    assert torch.equal(mixed[masked.used], torch.where(chosen, drawn, sampled)[masked.used])
    assert float(chosen.double().mean()) == pytest.approx(0.3, abs=0.06)
    if exclude:
        assert not (mixed == inputs.input_ids.gather(1, masked.positions))[masked.used].any()
    sums = outputs[0].sums
    assert int(sums["sampled_correct"]) == int(
        (mixed == inputs.input_ids.gather(1, masked.positions))[masked.used].sum()
    )
    assert float(sums["generator_loss"]) == float(outputs[1].sums["generator_loss"]), (
        "the network's loss is at all positions"
    )


def test_samples_from_the_frequencies_follow_them_at_any_temperature() -> None:
    electra = model(generator=GeneratorConfig(size=0.25, frequency_share=1.0, temperature=9.0)).eval()
    inputs = batch((60,) * 400)
    with torch.no_grad():
        output = electra.run(inputs)
    sampled = output.corrupted.input_ids.gather(1, output.masked.positions)[output.masked.used]
    p = compute_frequencies(electra.spec.unigrams, SPECIAL).double().numpy()
    counts = torch.bincount(sampled, minlength=64).numpy()
    assert counts[[*SPECIAL]].sum() == 0
    assert MASK in SPECIAL
    assert chisquare(counts[p > 0], p[p > 0] / p.sum() * counts.sum()).pvalue > 1e-3


def test_generator_without_loss_weight_has_no_gradient() -> None:
    electra = model(generator=GeneratorConfig(size=0.25, tying="none", final_loss_weight=0.0))
    for done, trained in ((0.5, True), (1.0, False)):
        electra.set_progress(done)
        compute(electra)
        gradients = [p.grad.abs().sum() for p in electra.generator.parameters()]
        assert bool(torch.stack(gradients).any()) == trained
    discriminator = electra.target.network.head.dense.weight.grad
    assert discriminator is not None
    assert discriminator.any()


def test_total_is_weighted() -> None:
    electra, inputs = model(generator=GeneratorConfig(size=0.25, loss_weight=3.0, final_loss_weight=1.0)), batch()
    electra.set_progress(0.25)
    loss, sums = electra(inputs, electra.counts(inputs))
    metrics = electra.metrics(sums)
    assert metrics["loss"] == pytest.approx(50 * metrics["discriminator_loss"] + 2.5 * metrics["generator_loss"])
    assert metrics["loss"] == pytest.approx(float(loss.detach()), rel=1e-5)
