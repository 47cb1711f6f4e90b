"""The chunked softmax against the plain computation: all logits, torch's loss, argmax."""

import math

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import chisquare

from electra.model.encoder import EncoderConfig
from electra.model.initialization import initialize
from electra.pretraining.objectives import chunked_softmax
from electra.pretraining.objectives.chunked_softmax import TokenScores
from electra.pretraining.objectives.networks import MaskedLM
from electra.pretraining.objectives.sampling import Sampling, sample_by_cumulative_sum, sample_by_partial_sums

SIZES = EncoderConfig(vocab_size=97, embedding_size=12, hidden_size=16, num_layers=1, num_heads=2, ffn_size=16)
MASK = 3


def score_tokens(network, hidden, targets, sampling=None, u=None) -> TokenScores:
    """Call the tested function, with random numbers for the samples."""
    u = torch.rand(targets.shape) if sampling is not None and u is None else u
    return network(hidden=hidden, targets=targets, sampling=sampling, u=u).scores


@pytest.fixture
def network() -> MaskedLM:
    return build_network(SIZES)


def build_network(sizes: EncoderConfig) -> MaskedLM:
    torch.manual_seed(0)
    network = MaskedLM(sizes)
    initialize(network, 0.5)
    torch.nn.init.normal_(network.encoder.embeddings.word.weight)
    torch.nn.init.normal_(network.head.bias)
    return network


@pytest.fixture
def hidden() -> torch.Tensor:
    return torch.randn(50, 6, SIZES.hidden_size, requires_grad=True)


@pytest.fixture
def targets() -> torch.Tensor:
    return torch.randint(SIZES.vocab_size, (50, 6))


@pytest.fixture(params=[1, 100, 10**9], ids=["one row per block", "several blocks", "one block"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked_softmax, "MIN_BLOCK_ROWS", 1)
    monkeypatch.setattr(chunked_softmax, "BLOCK_SIZE", {"cpu": request.param * SIZES.vocab_size})


@pytest.mark.slow
@pytest.mark.usefixtures("blocks")
def test_loss_and_gradients_equal_plain_softmax(network, hidden, targets) -> None:
    weights = torch.rand(targets.shape)  # a different gradient for every row
    scores = score_tokens(network, hidden, targets)
    logits = network(hidden=hidden)
    plain = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)
    torch.testing.assert_close(scores.nll, plain)
    assert scores.sampled is None
    assert scores.correct.any()
    assert torch.equal(scores.correct, logits.argmax(-1) == targets)
    torch.testing.assert_close(scores.log_normalizer, logits.logsumexp(-1))
    torch.testing.assert_close(scores.best, logits.amax(-1))
    learning = [hidden, *network.head.parameters(), network.encoder.embeddings.word.weight]
    ours, theirs = (torch.autograd.grad((nll * weights).sum(), learning) for nll in (scores.nll, plain))
    for our, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(our, their, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(2.5, MASK), Sampling(excluded=MASK, exclude_original_token=True)]
)
@torch.no_grad()
def test_samples_follow_the_softmax(network, sampling) -> None:
    hidden, targets = torch.randn(1, SIZES.hidden_size), torch.tensor([5])
    p = sampling.scores(network(hidden=hidden), targets).softmax(-1)[0].double()
    sampled = score_tokens(network, hidden.expand(40_000, -1), targets.expand(40_000), sampling).sampled
    counts = torch.bincount(sampled, minlength=SIZES.vocab_size)
    assert not counts[p == 0].any()
    likely = p > 1e-3
    seen = torch.stack([*counts[likely], counts[~likely].sum()])
    expected = torch.stack([*p[likely], p[~likely].sum()]) * 40_000
    kept = expected > 0
    assert chisquare(seen[kept].numpy(), (expected[kept] * seen.sum() / expected.sum()).numpy()).pvalue > 1e-3


def test_excluded_tokens_have_probability_zero(network) -> None:
    logits, targets = network(hidden=torch.randn(7, SIZES.hidden_size)), torch.arange(7)
    assert torch.equal(Sampling().scores(logits, targets), logits)
    scores = Sampling(2.0, MASK, exclude_original_token=True).scores(logits, targets)
    excluded = F.one_hot(targets, SIZES.vocab_size).bool()
    excluded[:, MASK] = True
    assert (scores[excluded] == -math.inf).all()
    torch.testing.assert_close(scores[~excluded], logits[~excluded] / 2)


@pytest.mark.slow
@pytest.mark.usefixtures("blocks")
def test_samples_do_not_depend_on_block_size(network, hidden, targets) -> None:
    torch.manual_seed(1)
    found = score_tokens(network, hidden, targets, Sampling(excluded=MASK)).sampled
    torch.manual_seed(1)
    cumulative = network(hidden=hidden).index_fill(-1, torch.tensor(MASK), -math.inf).softmax(-1).cumsum(-1)
    u = torch.rand(targets.numel()).view_as(targets)
    expected = (cumulative <= u.unsqueeze(-1) * cumulative[..., -1:]).sum(-1)
    assert torch.equal(found, expected)


def test_sampling_without_the_dominant_token_does_not_underflow() -> None:
    """Relative to the excluded token's exponential, all others are 0 in float32."""
    network = MaskedLM(EncoderConfig(4, 4, 4, 1, 1, 4, max_positions=4))
    with torch.no_grad():
        network.encoder.embeddings.word.weight.zero_()
        network.head.bias.copy_(torch.tensor([10.0, 0.2, 0.1, 0.0]))
    hidden, targets = torch.zeros(20_000, 4), torch.zeros(20_000, dtype=torch.long)
    sampled = score_tokens(network, hidden, targets, Sampling(0.1, exclude_original_token=True)).sampled
    p = torch.tensor([2.0, 1.0, 0.0]).softmax(0).double()
    assert chisquare(torch.bincount(sampled - 1, minlength=3).numpy(), (p * 20_000).numpy()).pvalue > 1e-3


DRAWS = pytest.mark.parametrize("draw", [sample_by_cumulative_sum, sample_by_partial_sums])


@DRAWS
def test_sampling_at_the_limits_of_u(draw) -> None:
    ends = torch.tensor([0.0, 1 - 2**-24])
    assert draw(torch.ones(2, 30_522), ends).tolist() == [0, 30_521]
    weights = torch.tensor([[0.0, 0.0, 1.0, 0.0, 1.0, 0.0]]).repeat(2, 1)
    assert draw(weights, ends).tolist() == [2, 4], "tokens of weight 0 are not sampled, even at the limits"


@pytest.mark.parametrize("size", [6, 256, 257, 512, 1_000])
def test_partial_sums_sample_as_one_cumulative_sum(size: int) -> None:
    torch.manual_seed(0)
    weights, u = torch.rand(500, size, dtype=torch.float64), torch.rand(500)
    weights[torch.rand(500, size) < 0.5] = 0.0
    weights[:, 3] = 1.0
    expected = (weights.cumsum(1) <= u.unsqueeze(1) * weights.sum(1, keepdim=True)).sum(1)
    assert torch.equal(sample_by_partial_sums(weights, u), expected)


@DRAWS
def test_nan_weights_give_a_valid_token(draw) -> None:
    """The loop stops a diverged run by its gradients; an index error here would hide the reason."""
    assert 0 <= int(draw(torch.full((1, 6), float("nan")), torch.tensor([0.5]))) < 6


def test_one_of_tied_tokens_is_correct_in_half_precision(network, hidden) -> None:
    with torch.no_grad():
        network.encoder.embeddings.word.weight.zero_()
        network.head.bias.zero_()
    with torch.autocast("cpu", torch.bfloat16):
        right = score_tokens(network, hidden, torch.arange(300).view(50, 6) % SIZES.vocab_size).correct
    assert int(right.sum()) <= 4, "all tokens are tied, and one of them counts as the best"


def test_empty_input_gives_zero_gradients(network) -> None:
    scores = score_tokens(network, torch.zeros(0, SIZES.hidden_size), torch.zeros(0, dtype=torch.long), Sampling())
    assert scores.nll.shape == scores.sampled.shape == (0,)
    scores.nll.sum().backward()
    for weight in (network.encoder.embeddings.word.weight, network.head.bias):
        assert not weight.grad.any()


def test_half_precision_loss_and_gradient_types(network, hidden, targets) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        scores = score_tokens(network, hidden, targets)
    assert scores.nll.dtype == torch.float32
    torch.testing.assert_close(scores.nll, score_tokens(network, hidden, targets).nll, rtol=0.05, atol=0.2)
    learning = [hidden, network.encoder.embeddings.word.weight, network.head.bias]
    found = torch.autograd.grad(scores.nll.sum(), learning)
    exact = torch.autograd.grad(score_tokens(network, hidden, targets).nll.sum(), learning)
    for ours, theirs in zip(found, exact, strict=True):
        assert float(((ours - theirs).norm() / theirs.norm()).detach()) < 0.03


LARGE_VOCABULARY = EncoderConfig(
    vocab_size=1_001, embedding_size=263, hidden_size=16, num_layers=1, num_heads=2, ffn_size=16
)


def test_sampling_at_the_limits_of_u_with_several_parts() -> None:
    """Two tokens in different parts can be sampled; a third, the most likely one, is excluded."""
    network = build_network(LARGE_VOCABULARY)
    with torch.no_grad():
        network.encoder.embeddings.word.weight.zero_()
        network.head.bias.fill_(-200.0)
        network.head.bias[[100, MASK, 900]] = torch.tensor([0.0, 5.0, 0.0])
    ends = torch.tensor([0.0, 0.49, 0.51, 1 - 2**-24])
    targets = torch.zeros(4, dtype=torch.long)
    sampled = score_tokens(network, torch.zeros(4, 16), targets, Sampling(excluded=MASK), ends).sampled
    assert sampled.tolist() == [100, 100, 900, 900]


def test_nan_features_affect_only_their_row() -> None:
    """Loss, gradients and sample of the row are affected; other rows are not."""
    network = build_network(LARGE_VOCABULARY)
    hidden = torch.zeros(3, 16)
    hidden[1] = float("nan")
    hidden.requires_grad_()
    scores = score_tokens(network, hidden, torch.tensor([7, 8, 1_000]), Sampling(excluded=MASK))
    assert scores.nll.isnan().tolist() == [False, True, False]
    assert not scores.correct[1]
    assert scores.sampled[1] == 1_000
    scores.nll.sum().backward()
    assert hidden.grad.isnan().all(1).tolist() == [False, True, False]
    assert network.encoder.embeddings.word.weight.grad.isnan().any()


def test_target_outside_the_vocabulary_raises() -> None:
    for target in (-1, 97):
        with pytest.raises((IndexError, RuntimeError), match="97"):
            score_tokens(build_network(SIZES), torch.zeros(1, 16), torch.tensor([target]))


def test_tokens_with_bias_minus_infinity_are_excluded() -> None:
    """A bias of -inf excludes tokens and changes nothing else."""
    network = build_network(LARGE_VOCABULARY)
    with torch.no_grad():
        network.head.bias[:600] = -math.inf
    hidden, targets = torch.randn(9, 16), torch.arange(600, 609)
    scores = score_tokens(network, hidden, targets, Sampling())
    logits = network(hidden=hidden)[:, 600:]
    torch.testing.assert_close(scores.nll, F.cross_entropy(logits, targets - 600, reduction="none"))
    assert int(scores.sampled.min()) >= 600
    scores.nll.sum().backward()
    assert network.head.bias.grad.isfinite().all()
    assert not network.head.bias.grad[:600].any()
