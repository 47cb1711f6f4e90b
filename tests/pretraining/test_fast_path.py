"""Optimizations do not change results: 50 updates with the fast path and with a plain implementation, from one seed."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from support.attention import CANNOT_COMPILE
from support.tiny_models import ENCODER, VOCAB, batch, model
from torch import Tensor

from electra.model import encoder, layers
from electra.model.cpu import enable_cpu_kernels
from electra.model.packing import Packed, Padded
from electra.pretraining.objectives import chunked_softmax, networks
from electra.pretraining.objectives.chunked_softmax import TokenScores
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.objectives.sampling import Sampling
from electra.seeding import Stream, seed_everything

STEPS = 50
QUICK = ("electra", "all-tokens-mlm", "mlm")


def score_tokens_plain(
    features: Tensor,
    word: Tensor,
    bias: Tensor,
    targets: Tensor,
    sampling: Sampling | None,
    u: Tensor | None,
    backend: str | None,
) -> TokenScores:
    """Compute all logits, torch's cross-entropy, and argmax."""
    logits = F.linear(features, word, bias)
    nll = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view_as(targets)
    sampled = None
    if sampling is not None:
        assert u is not None
        cumulative = sampling.scores(logits.detach(), targets).softmax(-1).cumsum(-1)
        sampled = torch.searchsorted(cumulative, (u * cumulative[..., -1]).unsqueeze(-1), right=True).squeeze(-1)
    return TokenScores(nll, logits.argmax(-1) == targets, logits.logsumexp(-1), logits.amax(-1), sampled)


def attend_plain(qkv: Tensor, layout: Padded | Packed, head_size: int, dropout: float) -> Tensor:
    """Compute attention as in its equation."""
    q, k, v = layout.split_heads(qkv, 3, head_size)
    scores = torch.einsum("bnqd,bnld->bnql", q, k) / math.sqrt(head_size)
    if layout.mask is not None:
        scores = scores.masked_fill(~layout.mask[:, None, None], -math.inf)
    return layout.merge_heads(torch.einsum("bnql,bnld->bnqd", scores.softmax(-1), v))


def use_plain_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "attend", attend_plain)
    monkeypatch.setattr(encoder, "choose_layout", lambda mask, min_padding: Padded(mask))
    monkeypatch.setattr(networks, "score_tokens", score_tokens_plain)


def train(electra: PretrainingModel) -> tuple[list[float], dict[str, Tensor]]:
    """Train; return the losses of all steps and the gradients of the first."""
    optimizer = torch.optim.AdamW(electra.parameters(), lr=2e-3)
    losses, first = [], {}
    for step in range(STEPS):
        inputs = batch(seed=step)
        seed_everything(Stream.DROPOUT, step)
        loss, _ = electra(inputs, electra.counts(inputs))
        loss.backward()
        first = first or {name: p.grad.clone() for name, p in electra.named_parameters() if p.grad is not None}
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses, first


def assert_equal(quick: tuple[list[float], dict[str, Tensor]], plain: tuple[list[float], dict[str, Tensor]]) -> None:
    (losses, gradients), (plain_losses, plain_gradients) = quick, plain
    assert losses == pytest.approx(plain_losses, rel=1e-4)
    assert gradients.keys() == plain_gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, plain_gradients[name], rtol=1e-5, atol=1e-5, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("objective", QUICK)
def test_packed_batches_and_blocks_train_as_the_plain_path(objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of logits and packed batches; without dropout, whose random numbers differ."""
    sizes = replace(ENCODER, dropout=0.0, attention_dropout=0.0)
    monkeypatch.setattr(chunked_softmax, "BLOCK_SIZE", {"cpu": 5 * VOCAB})
    monkeypatch.setattr(chunked_softmax, "MIN_BLOCK_ROWS", 5)  # several blocks, the last one shorter
    quick = train(model(objective, encoder=sizes))
    assert sum(quick[0][-10:]) < sum(quick[0][:10])
    use_plain_path(monkeypatch)
    assert_equal(quick, train(model(objective, encoder=sizes)))


@pytest.mark.slow
@pytest.mark.skipif(CANNOT_COMPILE is not None, reason=str(CANNOT_COMPILE))
@pytest.mark.parametrize("objective", QUICK)
def test_cpu_kernels_train_as_the_plain_path(objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without dropout; `tests/model/test_cpu_attention.py` compares them with dropout."""
    sizes = replace(ENCODER, dropout=0.0, attention_dropout=0.0)
    electra = model(objective, encoder=sizes)
    assert enable_cpu_kernels(electra) is None
    quick = train(electra)
    use_plain_path(monkeypatch)
    assert_equal(quick, train(model(objective, encoder=sizes)))
