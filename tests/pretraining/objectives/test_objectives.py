"""Objectives: untrained losses, global means, complete registries."""

import math
from dataclasses import replace

import pytest
import torch
from support.errors import raises
from support.tiny_models import ENCODER, batch, model

from electra.data.batch import Batch
from electra.errors import UsageError
from electra.model.encoder import EncoderConfig
from electra.model.flops import discriminator_step_flops, masked_lm_step_flops
from electra.presets import tiny
from electra.pretraining.build import build_meta_model
from electra.pretraining.objectives.catalog import OBJECTIVES
from electra.pretraining.objectives.corruptions.masking import MaskingConfig
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.objectives.networks import Discriminator, GeneratorConfig, MaskedLM, compute_generator_sizes
from electra.pretraining.objectives.spec import CORRUPTIONS, SCORED_AT, TARGETS


def rows_of(inputs: Batch, rows: slice) -> Batch:
    mask = None if inputs.attention_mask is None else inputs.attention_mask[rows]
    return Batch(inputs.input_ids[rows], inputs.token_type_ids[rows], inputs.lengths[rows], mask, inputs.row_keys[rows])


@pytest.mark.slow
@torch.no_grad()
def test_untrained_loss_is_ln_v_plus_50_ln_2() -> None:
    vocab = 30_522
    electra = model(encoder=EncoderConfig(vocab_size=vocab, num_layers=2)).eval()
    inputs = batch(lengths=(128,) * 8, vocab=vocab)
    loss, sums = electra(inputs, electra.counts(inputs))
    assert math.log(vocab) + 50 * math.log(2) == pytest.approx(44.98, abs=0.005)
    assert float(loss) == pytest.approx(44.98, abs=1.5), "the initial logits of the discriminator are small, not 0"
    metrics = electra.metrics({name: t.double() for name, t in sums.items()})
    assert metrics["loss"] == pytest.approx(float(loss), rel=1e-5)
    assert metrics["generator_loss"] == pytest.approx(math.log(vocab), rel=0.01)
    assert metrics["replaced"] == pytest.approx(19 / 128, rel=0.01)


@torch.no_grad()
def test_untrained_masked_lm_loss_is_ln_v() -> None:
    bert, inputs = model("mlm").eval(), batch()
    loss, sums = bert(inputs, bert.counts(inputs))
    assert float(loss) == pytest.approx(math.log(64), rel=0.02)
    assert bert.metrics(sums)["mlm_loss"] == pytest.approx(float(loss), rel=1e-5)
    assert bert.generator is None


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("with_replacement", [False, True])
def test_corruption_of_a_row_does_not_depend_on_its_micro_batch(objective: str, with_replacement: bool) -> None:
    """Positions, masks and samples depend only on the row's key, not on other rows or on padding."""
    network = model(objective, masking=MaskingConfig(with_replacement=with_replacement)).eval()
    inputs = batch(lengths=(40, 23, 23, 7))
    full = network.run(inputs)
    for rows in (slice(0, 1), slice(1, 3), slice(3, 4)):
        length = int(inputs.lengths[rows].max())
        part = rows_of(inputs, rows)
        shorter = ("input_ids", "token_type_ids", "attention_mask")
        alone = network.run(replace(part, **{name: getattr(part, name)[:, :length] for name in shorter}))
        used = full.masked.used[rows]
        assert torch.equal(alone.masked.positions[alone.masked.used], full.masked.positions[rows][used])
        assert torch.equal(alone.corrupted.input_ids, full.corrupted.input_ids[rows, :length])


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_micro_batches_sum_to_the_global_loss(objective: str) -> None:
    """Micro-batch losses divided by global counts sum to the global loss; means of means do not (row lengths differ)."""
    network, inputs = model(objective).eval(), batch(lengths=(40, 40, 9, 7))
    halves = [rows_of(inputs, slice(0, 2)), rows_of(inputs, slice(2, 4))]
    counts = network.counts(inputs)
    in_parts = {name: sum(network.counts(half)[name] for half in halves) for name in counts}
    assert in_parts == counts
    with torch.no_grad():
        pieces = [network(half, counts) for half in halves]
        means = [network(half, network.counts(half))[0] for half in halves]
    assert counts["tokens"] == inputs.lengths.sum()
    sums = {name: pieces[0][1][name] + pieces[1][1][name] for name in pieces[0][1]}
    total = float(pieces[0][0] + pieces[1][0])
    assert network.metrics(sums)["loss"] == pytest.approx(total, rel=1e-5)
    assert float(sums["masked"]) == counts["masked"]
    assert abs(float(sum(means)) / 2 - total) > 1e-5, "a mean of means differs"


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_parameter_has_a_gradient(objective: str) -> None:
    row = OBJECTIVES[objective]
    assert row.corruption in CORRUPTIONS
    assert row.target in TARGETS
    assert row.scored in SCORED_AT
    network, inputs = model(objective), batch()
    loss, _ = network(inputs, network.counts(inputs))
    loss.backward()
    assert [name for name, p in network.named_parameters() if p.grad is None] == []


def test_objectives_use_all_corruptions_and_targets() -> None:
    rows = OBJECTIVES.values()
    assert {row.corruption for row in rows} == set(CORRUPTIONS)
    assert {row.target for row in rows} == set(TARGETS)


def test_objectives_scored_at_all_tokens() -> None:
    scored = {name: model(name).scores_all_tokens for name in OBJECTIVES}
    assert [name for name in scored if scored[name]] == [
        "electra",
        "all-tokens-mlm",
        "corrective-lm",
        "electric-unigram",
    ]


def test_configuration_reaches_the_model() -> None:
    def built(**settings: object) -> PretrainingModel:
        return build_meta_model(replace(tiny(), **settings))

    assert built().spec.objective.weight == 5.0
    assert built(loss_weight=7.0).spec.objective.weight == 7.0
    assert built(loss_weight=None).spec.objective.weight == 50.0
    assert built(objective="mlm", loss_weight=7.0).spec.objective.weight == 1.0, "a single loss has no weight"
    every = {copy: built(objective="all-tokens-mlm", loss_weight=None, copy=copy) for copy in (None, True, False)}
    assert [model.target.copy is None for model in every.values()] == [False, False, True]
    assert built(masking=MaskingConfig(fraction=0.4)).spec.masking.fraction == 0.4
    hot = built(generator=GeneratorConfig(size=0.5, temperature=3.0))
    assert hot.corruption.sampling.temperature == 3.0


@torch.no_grad()
def test_options_reach_the_loss() -> None:
    inputs = batch(lengths=(40,) * 50)
    torch.manual_seed(0)
    electra = model()
    heavy = replace(electra.spec, objective=replace(electra.spec.objective, weight=100.0))
    counts = electra.counts(inputs)
    losses = []
    for setting in (electra.spec, heavy):
        electra.spec = setting
        torch.manual_seed(1)
        losses.append(float(electra.eval()(inputs, counts)[0]))
    assert losses[1] - losses[0] == pytest.approx(50 * math.log(2), rel=0.1)
    many = model(masking=MaskingConfig(fraction=0.25))
    assert many.counts(inputs)["masked"] == 50 * 10

    electra.generator.head.bias.data[7] = 6.0  # a generator that nearly always samples 7 at temperature 1
    shares = {}
    for temperature in (1.0, 100.0):
        electra.corruption.sampling = replace(electra.corruption.sampling, temperature=temperature)
        chosen, corrupted, *_ = electra.run(inputs)
        at = corrupted.input_ids.gather(1, chosen.positions)[chosen.used]
        shares[temperature] = float((at == 7).double().mean())
    assert shares[1.0] > 0.8
    assert shares[100.0] < 0.1


def test_generator_sizes_and_conflicts() -> None:
    base = EncoderConfig(embedding_size=768, hidden_size=768, num_heads=12, ffn_size=3072)
    third = compute_generator_sizes(base, GeneratorConfig(size=1 / 3))
    assert (third.hidden_size, third.num_heads, third.ffn_size, third.num_layers) == (256, 4, 1024, 12)
    quarter = compute_generator_sizes(EncoderConfig(), GeneratorConfig(size=0.25))
    assert (quarter.hidden_size, quarter.num_heads, quarter.ffn_size, quarter.embedding_size) == (64, 1, 256, 128)
    with raises(UsageError, "indivisible", "generator.size 0.7", 179, "3 heads"):
        compute_generator_sizes(EncoderConfig(), GeneratorConfig(size=0.7))
    with raises(UsageError, "out-of-range", "generator.size", "0.0"):
        GeneratorConfig(size=0.0)


def parameters(*networks: torch.nn.Module) -> float:
    return sum({id(p): p.numel() for network in networks for p in network.parameters()}.values()) / 1e6


def test_small_has_as_many_parameters_as_in_the_paper() -> None:
    main = Discriminator(EncoderConfig())
    assert parameters(main) == pytest.approx(13.483 + 0.066, abs=0.001)
    both = MaskedLM(compute_generator_sizes(EncoderConfig(), GeneratorConfig(size=0.25)), main.encoder.embeddings)
    own = parameters(main, both) - parameters(main)
    assert own == pytest.approx(0.647, abs=0.001)


def test_flops_follow_the_computed_shapes() -> None:
    electra, inputs = model(), batch(lengths=(40, 23))
    expected = 2 * (discriminator_step_flops(ENCODER, 40) + masked_lm_step_flops(electra.generator.config, 40, 6))
    assert electra.flops(inputs) == expected
    bert = model("mlm")
    assert bert.flops(inputs) == 2 * masked_lm_step_flops(ENCODER, 40, 6)
    assert list(electra.row_costs(40)) == ["generator", "discriminator"]
    assert list(bert.row_costs(40)) == ["main encoder"]
    assert 0 < electra.utilized_share(40) < 1.5
