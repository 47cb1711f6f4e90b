"""Appendix G: the formula inverts an optimal discriminator, and the batched networks compute it."""

from decimal import Decimal, localcontext

import pytest
import torch
from support.tiny_models import MASK, SPECIAL, VOCAB, batch, model

from electra.data.batch import Batch
from electra.pretraining.evaluation import discriminator_mlm
from electra.pretraining.evaluation.discriminator_mlm import (
    ElectraAsMaskedLM,
    PlainMaskedLM,
    compute_unmasked_per_masked,
    log_data_probability,
)

FRACTIONS = [0.15, 0.25, 0.5]


def distributions(number: int = 50, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample p_data and p_G over a vocabulary."""
    draw = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(number, generator=draw, dtype=torch.float64).mul(3).softmax(0) for _ in range(2))


def paper_loss(d: torch.Tensor, p_data: torch.Tensor, p_g: torch.Tensor, p_mask: float, unmasked: bool) -> torch.Tensor:
    """Compute L_Disc as in Appendix G; with `unmasked`, unmasked tokens are scored too."""
    gain = p_mask * p_data * p_g * d.log() + p_mask * (1 - p_data) * p_g * (1 - d).log()
    return -(gain + (1 - p_mask) * p_data * d.log() * unmasked).sum()


@pytest.mark.parametrize("p_mask", FRACTIONS)
@pytest.mark.parametrize("masked_only", [False, True])
def test_formula_inverts_an_optimal_discriminator(p_mask: float, masked_only: bool) -> None:
    p_data, p_g = distributions()
    a = compute_unmasked_per_masked(p_mask, masked_only)
    assert a == pytest.approx(0 if masked_only else (1 - p_mask) / p_mask)
    optimal = p_data * (a + p_g) / (a * p_data + p_g)
    d = optimal.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(paper_loss(d, p_data, p_g, p_mask, not masked_only), d)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), atol=1e-9, rtol=0)
    found = log_data_probability(-optimal.logit(), p_g.log(), a).exp()
    torch.testing.assert_close(found, p_data, atol=0, rtol=1e-9)


@pytest.mark.parametrize("logit", [-700.0, -40.0, 0.0, 40.0, 700.0])
@pytest.mark.parametrize("log_p_g", [-1e-9, -50.0, -700.0])
@pytest.mark.parametrize("a", [0.0, 17 / 3])
def test_formula_is_exact_for_extreme_logits(logit: float, log_p_g: float, a: float) -> None:
    with localcontext() as context:
        context.prec = 700
        d, p_g = 1 / (1 + Decimal(logit).exp()), Decimal(log_p_g).exp()
        expected = float((d * p_g / (Decimal(a) * (1 - d) + p_g)).ln())
    logits, logs = (torch.tensor([value], dtype=torch.float64) for value in (logit, log_p_g))
    assert float(log_data_probability(logits, logs, a)) == pytest.approx(expected, rel=1e-12, abs=1e-14)


@pytest.fixture
def electra() -> ElectraAsMaskedLM:
    """Random networks far from uniform."""
    networks = model()
    for parameter in networks.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    pair = ElectraAsMaskedLM(
        networks.generator, networks.target.network, networks.spec.vocabulary, 17 / 3, temperature=0.7
    )
    return pair.eval()


def masked(lengths: tuple[int, ...], positions: list[int]) -> tuple[Batch, torch.Tensor]:
    """Build a batch with [MASK] at one position of each row."""
    examples, where = batch(lengths), torch.tensor(positions)
    examples.input_ids[torch.arange(len(lengths)), where] = MASK
    return examples, where


@torch.no_grad()
def generator_probabilities(electra: ElectraAsMaskedLM, examples: Batch, row: int, position: int) -> torch.Tensor:
    """Compute softmax(logits / temperature) without [MASK] for a single row."""
    length = int(examples.lengths[row])
    ids, types = examples.input_ids[row : row + 1, :length], examples.token_type_ids[row : row + 1, :length]
    p = (electra.generator(ids, types, None, torch.tensor([[position]]))[0, 0].double() / 0.7).softmax(0)
    p[MASK] = 0
    return p / p.sum()


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("chunk", [1, 700, 8_192])
def test_batched_candidates_equal_single_sequences(
    electra: ElectraAsMaskedLM, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare with each candidate in a separate sequence without padding, and the formula as printed."""
    monkeypatch.setattr(discriminator_mlm, "CHUNK_TOKENS", chunk)
    examples, positions = masked((23, 7, 40), [5, 3, 38])
    found = electra(examples, positions, VOCAB)
    assert found.tokens.shape == (3, VOCAB - len(SPECIAL))
    for row, position in enumerate(positions.tolist()):
        assert sorted(found.tokens[row].tolist()) == [token for token in range(VOCAB) if token not in SPECIAL]
        length = int(examples.lengths[row])
        types = examples.token_type_ids[row : row + 1, :length]
        p_g = generator_probabilities(electra, examples, row, position)
        for k, token in enumerate(found.tokens[row].tolist()):
            ids = examples.input_ids[row : row + 1, :length].clone()
            ids[0, position] = token
            d = 1 - float(electra.discriminator(ids, types, None)[0, position].double().sigmoid())
            p = float(p_g[token])
            assert float(found.generator[row, k]) == pytest.approx(p, rel=1e-4)
            assert float(found.original[row, k]) == pytest.approx(d, rel=1e-4)
            assert float(found.probability[row, k]) == pytest.approx(d * p / (17 / 3 * (1 - d) + p), rel=1e-3)
        assert found.probability[row].diff().le(0).all(), "the best candidate is first"


def test_candidates_are_the_generators_most_likely_tokens(electra: ElectraAsMaskedLM) -> None:
    examples, positions = masked((40, 12), [17, 4])
    few, all_of_them = electra(examples, positions, 6), electra(examples, positions, VOCAB)
    for row, position in enumerate(positions.tolist()):
        p_g = generator_probabilities(electra, examples, row, position)
        p_g[list(SPECIAL)] = 0
        best = p_g.argsort(descending=True)[:6]
        assert set(few.tokens[row].tolist()) == set(best.tolist())
        kept = [token for token in all_of_them.tokens[row].tolist() if token in best]
        assert few.tokens[row].tolist() == kept


def test_optimal_discriminator_ranks_candidates_by_p_data(
    electra: ElectraAsMaskedLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any generator, the candidates have the order and values of p_data."""
    examples, positions = masked((40,), [17])
    p_data = distributions(VOCAB, seed=3)[0]
    p_data[list(SPECIAL)] = 0
    p_data /= p_data.sum()
    p_g = generator_probabilities(electra, examples, 0, 17)
    a = electra.unmasked_per_masked
    optimal = p_data * (a + p_g) / (a * p_data + p_g)
    monkeypatch.setattr(electra, "replaced_logits", lambda batch, positions, tokens: -optimal[tokens].logit())
    found = electra(examples, positions, VOCAB)
    assert found.tokens[0].tolist() == p_data.argsort(descending=True)[: -len(SPECIAL)].tolist()
    torch.testing.assert_close(found.probability[0], p_data[found.tokens[0]], atol=0, rtol=1e-4)
    assert float(found.probability.sum()) == pytest.approx(1)
    assert int(found.tokens[0, 0]) != int(p_g.argmax()), "the generator alone would have been wrong"


def test_plain_masked_lm_returns_its_most_likely_tokens(electra: ElectraAsMaskedLM) -> None:
    examples, positions = masked((40, 12), [17, 4])
    alone = PlainMaskedLM(electra.generator, electra.vocabulary)
    found = alone(examples, positions, 3)
    logits = electra.generator(examples.input_ids, examples.token_type_ids, examples.attention_mask, positions[:, None])
    probabilities = logits[:, 0].double().softmax(1)
    probabilities = probabilities / (1 - probabilities[:, [MASK]])
    probabilities[:, list(SPECIAL)] = 0
    best = probabilities.topk(3)
    assert found.tokens.tolist() == best.indices.tolist()
    torch.testing.assert_close(found.probability, best.values)
    everything = alone(examples, positions, VOCAB)
    torch.testing.assert_close(everything.probability.sum(), probabilities.sum().detach())
    assert not set(everything.tokens.flatten().tolist()) & set(SPECIAL), (
        "special tokens are never masked, so they are not candidates"
    )
