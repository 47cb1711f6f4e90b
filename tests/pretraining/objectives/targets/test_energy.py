"""Energies by noise-contrastive estimation: the loss from probabilities, known optima, mistakes that miss them, saved networks."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from jaxtyping import Float, Int64
from support.errors import raises
from support.tiny_models import ENCODER, MASK, SPECIAL, batch, choose, model, redraw
from support.toy import TINY_RUN
from torch import Tensor, nn

import electra
from electra.data.batch import Batch
from electra.errors import ModelError
from electra.model.flops import encoder_flops, masked_lm_head_flops, masked_lm_step_flops, replaced_token_head_flops
from electra.pretraining.objectives.corruptions.corruption import CorruptedBatch, Noise
from electra.pretraining.objectives.corruptions.masking import MaskingConfig, count_masked_in_row, mark_maskable_tokens
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.objectives.networks import GeneratorConfig

NO_DROPOUT = replace(ENCODER, dropout=0.0, attention_dropout=0.0)
MASKING = MaskingConfig(fraction=0.25)
TOKENS = tuple(range(5, 13))
"""Tokens of the independent and identically distributed data, and their probabilities."""
P = torch.tensor([0.3, 0.2, 0.15, 0.12, 0.1, 0.08, 0.04, 0.01])
SHARED = GeneratorConfig(size=1.0, tying="all")


def compute_noise_loss(noise: float, energy: float, is_noise: bool) -> float:
    """-log of the probability of noise or of data; `noise` is k q for one data token, and exp(-energy) its probability."""
    data = math.exp(-energy)
    return -math.log((noise if is_noise else data) / (noise + data))


@pytest.mark.parametrize("generator", [None, SHARED], ids=["own", "shared"])
def test_loss_with_a_generator_equals_that_of_its_probabilities(generator: GeneratorConfig | None) -> None:
    network = model("electric", masking=MASKING, encoder=NO_DROPOUT, generator=generator).train()
    nn.init.normal_(network.generator.head.bias, std=2.0)  # [MASK] has a probability of its own
    inputs = batch()
    output, masked = network(inputs), choose(inputs, MASKING)
    ids, noise = output.corrupted.input_ids, output.corrupted.noise
    sampled = output.corrupted.generated.sampled
    read = inputs.input_ids.clone()
    for row, slot in zip(*torch.where(masked.used), strict=True):
        read[row, masked.positions[row, slot]] = MASK
    logits = network.generator(read, inputs.token_type_ids, inputs.attention_mask, masked.positions)
    logits[..., MASK] = -math.inf
    q = logits.softmax(-1)
    energy = network.target.network(ids, inputs.token_type_ids, inputs.attention_mask)
    seen = set()
    for row, slot in zip(*torch.where(masked.used), strict=True):
        position = masked.positions[row, slot]
        is_noise, original = bool(noise.is_noise[row, slot]), inputs.input_ids[row, position]
        token = sampled[row, slot] if is_noise else original
        assert ids[row, position] == token
        expected = compute_noise_loss(
            float(q[row, slot, token].detach()), float(energy[row, position].detach()), is_noise
        )
        assert float(output.losses["electric_loss"][row, slot].detach()) == pytest.approx(expected, rel=1e-4, abs=2e-6)
        seen.add(is_noise)
    assert seen == {True, False}
    assert not output.losses["electric_loss"][~masked.used].any()
    unmasked = torch.ones_like(ids, dtype=torch.bool).scatter(1, masked.positions, False)
    assert torch.equal(ids[unmasked], inputs.input_ids[unmasked])


@pytest.mark.parametrize("training", [True, False], ids=["training", "held-out"])
def test_loss_with_frequencies_equals_that_of_their_probabilities(training: bool) -> None:
    network = model("electric-unigram", masking=MASKING, encoder=NO_DROPOUT).train(training)
    inputs = batch()
    output, masked = network(inputs), choose(inputs, MASKING)
    ids = output.corrupted.input_ids
    frequencies = (torch.arange(ENCODER.vocab_size) - 4).clamp(min=0) + 0.5
    frequencies[list(SPECIAL)] = 0.0
    q = frequencies / frequencies.sum()
    energy = network.target.network(ids, inputs.token_type_ids, inputs.attention_mask)
    for row, length in enumerate(inputs.lengths.tolist()):
        noise = set(masked.positions[row, masked.used[row]].tolist())
        special = [position for position in range(length) if int(inputs.input_ids[row, position]) in SPECIAL]
        data = length - len(special) - len(noise)
        for position in range(ids.shape[1]):
            loss = float(output.losses["electric_loss"][row, position].detach())
            if position in special or position >= length:
                assert loss == 0.0
                continue
            ratio = float(q[ids[row, position]]) * len(noise) / data
            expected = compute_noise_loss(ratio, float(energy[row, position].detach()), position in noise)
            assert loss == pytest.approx(expected, rel=1e-4, abs=2e-6)
    metrics = network.metrics(output.sums)
    assert metrics["electric_loss"] == pytest.approx(
        float(output.losses["electric_loss"].sum().detach()) / int(inputs.lengths.sum())
    )


def test_a_row_of_noise_alone_has_no_loss_and_finite_gradients() -> None:
    """A row of one token: k is 1 and n - k is 0."""
    network = model("electric-unigram").train()
    inputs = batch(lengths=(4, 4))
    inputs.input_ids[:, 2] = inputs.input_ids[:, 0]
    output = network(inputs)
    assert output.corrupted.noise.is_noise.sum() == 2
    loss = output.losses["electric_loss"].sum()
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())


def test_samples_that_equal_the_original_are_noise() -> None:
    network = model("electric", masking=MASKING).eval()
    network.generator.head.bias.data[7] = 50.0
    inputs = batch()
    sevens = torch.where(mark_maskable_tokens(inputs.input_ids, SPECIAL), 7, inputs.input_ids)
    output = network(replace(inputs, input_ids=sevens))
    assert torch.equal(output.corrupted.input_ids, sevens)
    assert output.corrupted.noise.is_noise.any()


def test_noise_is_a_random_half_that_does_not_depend_on_other_rows() -> None:
    network = model("electric", masking=MASKING).eval()
    inputs = batch(lengths=(40,) * 200)
    noise = network(inputs).corrupted.noise
    share = float(noise.is_noise[noise.used].float().mean())
    assert share == pytest.approx(0.5, abs=0.05)
    other = network(redraw(inputs, 9)).corrupted.noise
    assert not torch.equal(other.is_noise, noise.is_noise)
    first = Batch(*(each[:1] for each in inputs.tensors()[:3]), None, inputs.row_keys[:1])
    assert torch.equal(network(first).corrupted.noise.is_noise, noise.is_noise[:1])


class EnergyTable(nn.Module):
    """One energy for each token, independent of the context."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.energy = nn.Parameter(torch.zeros(size))

    def forward(
        self,
        input_ids: Int64[Tensor, "B L"],
        token_type_ids: Int64[Tensor, "B L"],
        attention_mask: None,
        positions: Int64[Tensor, "B K"] | None = None,
    ) -> Float[Tensor, "B Q"]:
        return self.energy[input_ids if positions is None else input_ids.gather(1, positions)]


def draw_independent_tokens() -> Batch:
    """Rows of independent tokens with the probabilities P."""
    inputs = batch(lengths=(42,) * 1500)
    draw = torch.multinomial(P, inputs.input_ids.numel(), replacement=True, generator=torch.Generator().manual_seed(0))
    tokens = torch.tensor(TOKENS)[draw].view_as(inputs.input_ids)
    return replace(
        inputs, input_ids=torch.where(mark_maskable_tokens(inputs.input_ids, SPECIAL), tokens, inputs.input_ids)
    )


def build_for_independent_tokens(objective: str) -> PretrainingModel:
    """A model with noise other than the data, that samples the data's tokens often enough."""
    network = model(objective, masking=MASKING, encoder=NO_DROPOUT).eval()
    if network.generator is not None:
        network.generator.head.bias.data[list(TOKENS)] = torch.linspace(4.0, 6.0, len(TOKENS))
        network.generator.head.bias.data[MASK] = 5.0  # excluded from samples
    else:
        unigrams = torch.zeros(ENCODER.vocab_size, dtype=torch.long)
        unigrams[list(TOKENS)] = torch.arange(1, len(TOKENS) + 1) * 1000
        spec = replace(network.spec, unigrams=unigrams)
        network = PretrainingModel(spec).eval()
    return network


def fit_energies(network: PretrainingModel, corrupted: CorruptedBatch, inputs: Batch) -> torch.Tensor:
    """The table of energies with the least loss on a corrupted batch."""
    table = EnergyTable(ENCODER.vocab_size)
    network.target.network = table
    at = choose(inputs, MASKING) if network.generator else None
    optimizer = torch.optim.LBFGS([table.energy], max_iter=100, line_search_fn="strong_wolfe")

    def compute_loss() -> torch.Tensor:
        optimizer.zero_grad()
        loss = network.target(inputs, corrupted, at).losses["electric_loss"].sum() / 10_000
        loss.backward()
        return loss

    optimizer.step(compute_loss)
    return table.energy.detach()[list(TOKENS)]


Mutate = Callable[[Noise, Batch, CorruptedBatch], Noise]
MUTANTS: dict[str, Mutate] = {
    "without the noise probability": lambda noise, *_: noise._replace(
        log_odds=torch.where(noise.used, noise.log_odds[noise.used].mean(), 0.0)
    ),
    "without the ratio of noise to data": lambda noise, *_: noise._replace(
        log_odds=noise.log_odds + math.log(3) * noise.used
    ),
    "with the opposite sign": lambda noise, *_: noise._replace(log_odds=-noise.log_odds),
}


@pytest.mark.parametrize("objective", ["electric", "electric-unigram"])
def test_energies_of_independent_tokens_converge_to_minus_log_probabilities(objective: str) -> None:
    """The optimum, with its normalizer of 1, and not that of wrong formulas; the expected gradient is 0 there."""
    inputs, network = draw_independent_tokens(), build_for_independent_tokens(objective)
    with torch.no_grad():
        corrupted = network(inputs).corrupted
    error = (fit_energies(network, corrupted, inputs) + P.log()).abs()
    assert float(error[:-1].max()) < 0.12
    assert float(error[-1]) < 0.5, "a rare token"
    for name, mutate in MUTANTS.items():
        wrong = corrupted._replace(noise=mutate(corrupted.noise, inputs, corrupted))
        error = (fit_energies(network, wrong, inputs) + P.log()).abs()
        assert float(error[:-1].max()) > 0.3, name


def test_labels_by_equality_miss_the_optimum() -> None:
    """The labels of replaced token detection, with which a sample that equals the original is data."""
    inputs, network = draw_independent_tokens(), build_for_independent_tokens("electric-unigram")
    with torch.no_grad():
        corrupted = network(inputs).corrupted
    changed = corrupted.input_ids != inputs.input_ids
    wrong = corrupted._replace(noise=corrupted.noise._replace(is_noise=changed))
    assert float((fit_energies(network, wrong, inputs) + P.log()).abs()[:-1].max()) > 0.3


def test_energies_do_not_train_the_generator() -> None:
    network = model("electric", masking=MASKING, generator=GeneratorConfig(size=0.25, tying="none")).train()
    network(batch()).losses["electric_loss"].sum().backward()
    assert all(p.grad is None for p in network.generator.parameters())
    assert all(p.grad is not None for p in network.target.parameters())


def test_flops() -> None:
    number = count_masked_in_row(40, 0.25)
    network = model("electric", masking=MASKING)
    generator = network.generator.config
    probability = 3 * number * masked_lm_head_flops(replace(generator, vocab_size=1))
    target = encoder_flops(ENCODER, 40) + number * replaced_token_head_flops(ENCODER)
    assert network.row_flops(40) == masked_lm_step_flops(generator, 40, number) + 2 * (probability + target)
    everywhere = encoder_flops(ENCODER, 40) + 40 * replaced_token_head_flops(ENCODER)
    assert model("electric-unigram").row_flops(40) == 2 * everywhere


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["electric", "electric-unigram"])
def test_a_saved_energy_model_is_fine_tuned_and_continued_and_does_not_score_as_a_discriminator(
    objective: str, text: Path, tmp_path: Path
) -> None:
    run, table = tmp_path / "run", tmp_path / "table.csv"
    electra.pretrain(str(text), out=str(run), objective=objective, **TINY_RUN)
    for directory in (run, run / "energy_model"):
        with raises(ModelError, "no-probabilities", run / "energy_model"):
            electra.score("the cat sees mice .", model=directory)
    more = TINY_RUN | {"steps": 2}
    electra.pretrain(str(text), out=str(tmp_path / "more"), objective=objective, init=str(run), **more)
    with raises(ModelError, "no-head"):
        electra.pretrain(str(text), out=str(tmp_path / "other"), objective="electra", init=str(run), **more)
    table.write_text("text,label\n" + "the cat sees mice .,a\nthe dog likes milk .,b\n" * 8)
    electra.finetune("table", model=str(run), train=str(table), text="text", label="label", out=str(tmp_path / "tuned"))
