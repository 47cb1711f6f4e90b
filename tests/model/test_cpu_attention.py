"""Attention by the C++ kernel against PyTorch: outputs, gradients and dropout."""

import copy
import math
import os
import pickle
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import binomtest
from support.attention import SHAPES, assert_same_layer, forward_backward, layer_of, mask_of, require_kernels
from support.places import TESTS
from torch import Tensor

from electra.model import encoder
from electra.model.cpu import enable_cpu_kernels, has_cpu_kernels
from electra.model.cpu.attention import attend_by_kernel
from electra.model.cpu.dropout import LEVELS
from electra.model.encoder import Encoder, EncoderConfig
from electra.model.initialization import initialize
from electra.model.layers import attend
from electra.model.packing import Packed, Padded

KERNELS = torch.ops.electra


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    require_kernels()


@pytest.mark.parametrize(("layout", "hidden", "heads"), SHAPES.values(), ids=SHAPES.keys())
def test_layer(layout: Padded | Packed, hidden: int, heads: int) -> None:
    assert_same_layer(layout, hidden, heads)


def test_encoder() -> None:
    """With and without padding: outputs at all tokens and at some positions, and the hidden states of every layer."""
    network = Encoder(EncoderConfig(50, 16, 32, 3, 2, 64, 40))
    initialize(network, 0.2)
    network.eval()
    ids, types = torch.randint(50, (3, 9)), torch.zeros(3, 9, dtype=torch.int64)
    positions = torch.tensor([[0, 2], [3, 1], [0, 7]])
    for mask in (None, mask_of(9, 4, 8), torch.ones(3, 9, dtype=torch.bool)):
        expected = (
            network(ids, types, mask),
            network(ids, types, mask, positions),
            [*network.hidden_states(ids, types, mask)],
        )
        quick = copy.deepcopy(network)
        assert not has_cpu_kernels(quick)
        assert enable_cpu_kernels(quick) is None
        assert has_cpu_kernels(quick)
        found = quick(ids, types, mask), quick(ids, types, mask, positions), [*quick.hidden_states(ids, types, mask)]
        real = torch.ones(3, 9, dtype=torch.bool) if mask is None else mask
        torch.testing.assert_close(found[0][real], expected[0][real], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found[1], expected[1], rtol=1e-4, atol=1e-5)
        for ours, theirs in zip(found[2], expected[2], strict=True):
            torch.testing.assert_close(ours[real], theirs[real], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [(9, 4, 8), (9, 9, 9), (64, 64)])
def test_tokens_that_pad_a_packed_batch_do_not_change_results(
    lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bfloat16, also compared with float32 within rounding errors."""
    network = Encoder(EncoderConfig(50, 16, 32, 3, 2, 64, 64, dropout=0.0, attention_dropout=0.0))
    initialize(network, 0.2)
    enable_cpu_kernels(network)
    mask = mask_of(*lengths)
    ids, types = torch.randint(50, mask.shape), torch.zeros(mask.shape, dtype=torch.int64)
    positions, gradient = torch.tensor([[0, 2]] * len(lengths)), torch.randn(*mask.shape, 32)

    def compute(precision: torch.dtype, multiple: int) -> dict[str, Tensor]:
        monkeypatch.setattr(encoder, "PACKED_MULTIPLE", multiple)
        network.zero_grad()
        with torch.autocast("cpu", precision, enabled=precision != torch.float32):
            out, at = network(ids, types, mask), network(ids, types, mask, positions)
        (out.float() * gradient * mask[:, :, None]).sum().backward()
        return {
            "out": out[mask].detach(),
            "at": at.detach(),
            **{name: each.grad for name, each in network.named_parameters()},
        }

    expected, exact = compute(torch.bfloat16, 1), compute(torch.float32, 1)
    for name, value in compute(torch.bfloat16, 64).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-2, atol=1e-2, msg=name)
        assert float((value - exact[name]).norm() / exact[name].norm()) < 0.03, name


LENGTHS, HEADS, SIZE, SEED = (5, 140, 2), 2, 16, -(2**40) + 7
DROPPED = 20_000  # of LEVELS
CU_SEQLENS = F.pad(torch.tensor(LENGTHS).cumsum(0), (1, 0))


def dropout_factors(seed: int) -> list[Tensor]:
    """Return the dropout factors of the probabilities, [heads, L, L] of each sequence.

    With equal scores and one-hot values they are the output.
    """
    tokens = sum(LENGTHS)
    factors = [torch.zeros(HEADS, length, length) for length in LENGTHS]
    for first in range(0, max(LENGTHS), SIZE):
        product = torch.zeros(tokens, 3, HEADS, SIZE)
        for start, length in zip(CU_SEQLENS.tolist(), LENGTHS, strict=False):
            shown = range(first, min(first + SIZE, length))
            product[[start + j for j in shown], 2, :, [j - first for j in shown]] = float(length)
        out, _ = KERNELS.attend(product.flatten(1), CU_SEQLENS, HEADS, DROPPED, seed)
        for row, (start, length) in enumerate(zip(CU_SEQLENS.tolist(), LENGTHS, strict=False)):
            output = out[start : start + length].view(length, HEADS, SIZE).transpose(0, 1)
            factors[row][:, :, first : first + SIZE] = output[:, :, : max(0, length - first)]
    return factors


def attend_with(factors: list[Tensor], qkv: Tensor) -> Tensor:
    """Attention as an equation, with given dropout factors."""
    out = []
    for start, length, each in zip(CU_SEQLENS.tolist(), LENGTHS, factors, strict=False):
        parts = qkv[start : start + length].view(length, 3, HEADS, SIZE)
        q, k, v = parts.permute(1, 2, 0, 3)
        weights = (q @ k.mT / math.sqrt(SIZE)).softmax(-1) * each
        out.append((weights @ v).transpose(0, 1).flatten(1))
    return torch.cat(out)


def test_attention_with_dropout_and_its_gradient() -> None:
    torch.manual_seed(0)
    qkv, gradient = torch.randn(sum(LENGTHS), 3 * HEADS * SIZE), torch.randn(sum(LENGTHS), HEADS * SIZE)
    factors = dropout_factors(SEED)
    scale = LEVELS / (LEVELS - DROPPED)
    for each in factors:
        torch.testing.assert_close(each, scale * (each != 0))
        assert binomtest(int((each == 0).sum()), each.numel(), DROPPED / LEVELS).pvalue > 1e-3
    exact = qkv.double().requires_grad_()
    expected = attend_with([each.double() for each in factors], exact)
    expected.backward(gradient.double())
    out, log_sum_exp = KERNELS.attend(qkv, CU_SEQLENS, HEADS, DROPPED, SEED)
    torch.testing.assert_close(out.double(), expected.detach(), rtol=1e-4, atol=1e-5)
    found = KERNELS.attend_backward(gradient, qkv, CU_SEQLENS, log_sum_exp, HEADS, DROPPED, SEED)
    torch.testing.assert_close(found.double(), exact.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dropped", [0, DROPPED])
def test_gradients_in_bfloat16(dropped: int) -> None:
    """Keys and values have a large common component, as in trained models, which makes errors of rounded sums visible."""
    torch.manual_seed(0)
    length, heads, size = 128, 2, 64
    parts = torch.randn(length, 3, heads, size)
    parts[:, 1:] += 3 * torch.randn(2, heads, size)
    qkv, gradient = parts.flatten(1).bfloat16(), torch.randn(length, heads * size).bfloat16()
    cu_seqlens, gradients = torch.tensor([0, length]), []
    for given in (qkv.float(), qkv):
        _, log_sum_exp = KERNELS.attend(given, cu_seqlens, heads, dropped, SEED)
        found = KERNELS.attend_backward(gradient.to(given.dtype), given, cu_seqlens, log_sum_exp, heads, dropped, SEED)
        gradients.append(found.double())
    exact, rounded = gradients
    assert float((rounded - exact).norm() / exact.norm()) < 0.005


def share_of_both(one: Tensor, other: Tensor) -> float:
    """Return the share of elements that are dropped in both."""
    return float(((one == 0) & (other == 0)).double().mean())


def test_dropout_of_heads_queries_keys_and_seeds_is_independent() -> None:
    share = (DROPPED / LEVELS) ** 2
    (_, long, _), (_, other, _), (_, far, _) = (dropout_factors(seed) for seed in (0, 1, 2**32))
    assert share_of_both(long[0], long[1]) == pytest.approx(share, rel=0.06)
    for shift in (1, 2, 8, 16, 17, 32):
        assert share_of_both(long[:, shift:], long[:, :-shift]) == pytest.approx(share, rel=0.06), shift
        assert share_of_both(long[:, :, shift:], long[:, :, :-shift]) == pytest.approx(share, rel=0.06), shift
    assert share_of_both(long, other) == pytest.approx(share, rel=0.06)
    assert share_of_both(long, far) == pytest.approx(share, rel=0.06)
    assert torch.equal(dropout_factors(0)[1], long)


def test_dropout_follows_the_seed_of_torch_and_is_off_in_evaluation() -> None:
    layer = layer_of(32, 2, dropout=0.3)
    enable_cpu_kernels(layer)
    x = torch.randn(2, 6, 32)

    def with_seed(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return layer(x, Padded(None))

    assert torch.equal(with_seed(1), with_seed(1))
    assert not torch.equal(with_seed(1), with_seed(2))
    layer.eval()
    state = torch.get_rng_state()
    layer(x, Padded(None))
    assert torch.equal(torch.get_rng_state(), state), "no random numbers are drawn"
    assert torch.equal(with_seed(1), with_seed(2))


def test_gradients_with_dropout_equal_numerical_ones() -> None:
    """The slope along each gradient equals its norm, with the same elements dropped."""
    layer = layer_of(32, 2)
    layer.attention.dropout, layer.dropout.p = 0.3, 0.2
    enable_cpu_kernels(layer)
    x, gradient = torch.randn(2, 3, 10, 32).unbind()
    x.requires_grad_()

    def value() -> Tensor:
        torch.manual_seed(5)
        return (layer(x, Padded(None)) * gradient).sum()

    value().backward()
    for name, tensor in (("x", x), *layer.named_parameters()):
        direction = tensor.grad.clone()
        step = 0.03 * direction / direction.norm()
        with torch.no_grad():
            tensor += step
            above = value()
            tensor -= 2 * step
            slope = float(above - value()) / (2 * 0.03)
            tensor += step
        assert slope == pytest.approx(float(direction.norm()), rel=5e-3), name


def test_frozen_weights_get_no_gradient() -> None:
    layer = layer_of(32, 2)
    x = torch.randn(2, 4, 32)
    expected = forward_backward(layer, x, Padded(None), torch.ones(2, 4, 32))
    enable_cpu_kernels(layer)
    layer.zero_grad()
    for name in ("attention.qkv.weight", "ffn.up.weight", "attention.output.weight"):
        layer.get_parameter(name).requires_grad_(False)
    layer(x, Padded(None)).backward(torch.ones(2, 4, 32))
    for name, parameter in layer.named_parameters():
        assert (parameter.grad is None) == (not parameter.requires_grad), name
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-4, atol=1e-5, msg=name)


def test_pytorch_computes_unsupported_arguments() -> None:
    """Padded batches with a mask and other precisions; copies of a layer, also pickled ones, keep the kernel."""
    layer = layer_of(32, 2)
    x, mask = torch.randn(2, 4, 32), mask_of(4, 2)
    expected, masked = layer(x, Padded(None)), layer(x, Padded(mask))
    enable_cpu_kernels(layer)
    torch.testing.assert_close(layer(x, Padded(mask))[mask], masked[mask])
    torch.testing.assert_close(layer.double()(x.double(), Padded(None)).float(), expected)
    layer.float()
    with torch.autocast("cpu", torch.float16):
        torch.testing.assert_close(layer(x, Padded(None)).float(), expected, rtol=0.02, atol=0.02)
    for again in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert has_cpu_kernels(again)
        torch.testing.assert_close(again(x, Padded(None)), expected)


def test_hooks_see_every_module() -> None:
    """The kernel replaces a function and no module, so adapters and hooks on the linear layers work."""
    layer, seen = layer_of(32, 2), []
    enable_cpu_kernels(layer)
    for name, module in layer.named_modules():
        module.register_forward_hook(lambda *_, name=name: seen.append(name))
    layer(torch.randn(1, 4, 32), Padded(None))
    assert {"attention.qkv", "attention.output", "ffn.up", "ffn.down", "dropout"} <= set(seen)


def test_dropout_of_the_kernel_preserves_the_mean() -> None:
    """Also with the dropout rate rounded to a multiple of 1 / LEVELS."""
    values = torch.ones(1, 512, 3 * 16)
    values[..., :32] = 0.0
    out = attend_by_kernel(values, Padded(None), 16, 0.25)
    assert float(out.mean()) == pytest.approx(1.0, rel=0.01)
    assert not torch.equal(out, attend(values, Padded(None), 16, 0.0))


AVX2 = """
import torch
from support.attention import SHAPES, assert_same_layer

assert torch.backends.cpu.get_cpu_capability() == "AVX2"
for shape in SHAPES.values():
    assert_same_layer(*shape)
"""


@pytest.mark.slow
def test_avx2_kernel_is_equal() -> None:
    places = os.pathsep.join(map(str, [TESTS, *filter(None, sys.path)]))
    done = subprocess.run(
        [sys.executable, "-c", AVX2],
        capture_output=True,
        text=True,
        env=os.environ | {"ATEN_CPU_CAPABILITY": "avx2", "PYTHONPATH": places},
        check=False,
    )
    assert done.returncode == 0, done.stderr
