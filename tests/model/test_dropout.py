"""Dropout: its rate, its scale, its gradient, its seed; attention with it is attention."""

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import binomtest

from electra.model.cpu.attention import attend
from electra.model.cpu.dropout import Dropout, dropped
from electra.model.layers import SelfAttention
from electra.model.packing import Rows


@pytest.mark.parametrize("p", [0.1, 0.5, 0.003])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rate_and_scale(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.ones(999, 101, dtype=dtype)
    y = dropped(x, p)
    zeroed = int((y == 0).sum())
    assert binomtest(zeroed, x.numel(), p).pvalue > 1e-3
    assert y.dtype == dtype
    assert y[y != 0].unique().tolist() == pytest.approx([1 / (1 - p)], rel=1e-4 if dtype == torch.float32 else 1e-2)


def test_elements_are_independent_and_every_call_is_another() -> None:
    """Neighbors come from the same draw of 64 bits; they have nothing to do with each other all the same."""
    torch.manual_seed(0)
    zero = (dropped(torch.ones(400_000), 0.1) == 0).double()
    for shift in (1, 2, 3, 4, 5):
        both = float((zero[:-shift] * zero[shift:]).mean())
        assert both == pytest.approx(0.01, rel=0.06)
    again = (dropped(torch.ones(400_000), 0.1) == 0).double()
    assert float((zero * again).mean()) == pytest.approx(0.01, rel=0.06)
    torch.manual_seed(0)
    assert torch.equal((dropped(torch.ones(400_000), 0.1) == 0).double(), zero)


def test_the_gradient_is_that_of_what_was_kept() -> None:
    x = torch.randn(7, 9, requires_grad=True, dtype=torch.float64)
    y = dropped(x, 0.3)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient * x, y)
    torch.manual_seed(4)
    state = torch.get_rng_state()

    def seeded(x: torch.Tensor) -> torch.Tensor:
        torch.set_rng_state(state)
        return dropped(x, 0.3)

    assert torch.autograd.gradcheck(seeded, (x,))


def test_a_rate_that_16_bits_would_round_to_1() -> None:
    torch.manual_seed(0)
    y = dropped(torch.ones(1_000_000), 1 - 1e-6)
    assert y.isfinite().all()
    assert 0 < int((y != 0).sum()) < 60, "one in 65,536"


def test_what_is_dropped_is_added_to_what_goes_past_it() -> None:
    x, residual = torch.randn(2, 7, 9, dtype=torch.float64).unbind()
    x.requires_grad_(), residual.requires_grad_()
    state = torch.get_rng_state()

    def seeded(x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        torch.set_rng_state(state)
        return Dropout(0.3)(x, residual)

    torch.testing.assert_close(seeded(x, residual), residual + seeded(x))
    assert torch.autograd.gradcheck(seeded, (x, residual))
    assert torch.equal(Dropout(0.3).eval()(x, residual), residual + x)


def test_nothing_is_dropped_in_evaluation_or_by_a_rate_of_nothing() -> None:
    x = torch.randn(3, 4)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x
    assert not torch.equal(Dropout(0.5).train()(x), x)


MASK = torch.tensor([[True] * 5, [True, True, True, False, False]])


@pytest.fixture
def parts() -> torch.Tensor:
    """Queries, keys and values as a layer has them: not side by side."""
    torch.manual_seed(0)
    return torch.randn(2, 5, 3, 3, 4, dtype=torch.float64).permute(2, 0, 3, 1, 4)


@pytest.mark.parametrize("mask", [None, MASK])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_attention_with_dropout_is_attention_in_the_mean(
    parts: torch.Tensor, mask: torch.Tensor | None, dtype: torch.dtype
) -> None:
    """With a rate that keeps all it is torch's; the mean over many draws is too."""
    tolerance = {"rtol": 1e-5, "atol": 1e-6} if dtype == torch.float64 else {"rtol": 0.02, "atol": 0.02}
    expected = F.scaled_dot_product_attention(*parts, attn_mask=None if mask is None else mask[:, None, None, :])
    parts = parts.to(dtype)
    torch.testing.assert_close(attend(parts, None, mask, 1e-9).double(), expected, **tolerance)
    mean = torch.stack([attend(parts, None, mask, 0.2).double() for _ in range(4000)]).mean(0)
    torch.testing.assert_close(mean, expected, atol=0.05, rtol=0)
    assert not torch.equal(attend(parts, None, mask, 0.2).double(), expected)


@pytest.mark.parametrize("mask", [None, MASK])
def test_gradients_of_attention_with_dropout(parts: torch.Tensor, mask: torch.Tensor | None) -> None:
    """Of all tokens' queries, and of some that are given."""
    queries = torch.randn(2, 3, 2, 4, dtype=torch.float64, requires_grad=True)
    state = torch.get_rng_state()

    def seeded(parts: torch.Tensor, queries: torch.Tensor | None = None) -> torch.Tensor:
        torch.set_rng_state(state)
        return attend(parts, queries, mask, 0.4)

    assert torch.autograd.gradcheck(seeded, parts.detach().requires_grad_())
    assert torch.autograd.gradcheck(seeded, (parts[1:].detach().requires_grad_(), queries))


def test_gradients_of_attention_in_bfloat16() -> None:
    """Keys and values that have much in common, as trained ones do: what a row's sum lacks would show there."""
    torch.manual_seed(0)
    parts = torch.randn(3, 2, 2, 128, 64, dtype=torch.float64)
    parts[1:] += 3 * torch.randn(2, 1, 1, 1, 64)
    parts, upstream = parts.bfloat16().double(), torch.randn(2, 2, 128, 64).bfloat16()
    gradients = []
    for dtype in (torch.float64, torch.bfloat16):
        given = parts.detach().to(dtype).requires_grad_()
        torch.manual_seed(1)
        attend(given, None, None, 0.1).backward(upstream.to(dtype))
        gradients.append(given.grad.double())
    for exact, found in zip(*gradients, strict=True):
        assert float((found - exact).norm() / exact.norm()) < 0.03


def test_attention_in_training_is_another_every_time() -> None:
    attention = SelfAttention(12, 3, dropout=0.5)
    x = torch.randn(2, 5, 12)
    assert not torch.equal(attention(x, Rows(None)), attention(x, Rows(None)))
    assert torch.equal(attention.eval()(x, Rows(None)), attention(x, Rows(None)))
