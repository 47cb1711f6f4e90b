"""Layers by C++ kernels: equal to the layer they stand for, with the same draws of dropout too."""

import copy
import math
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import binomtest
from support.kernels_here import require_kernels
from torch import Tensor

from electra.model import encoder
from electra.model.encoder import Encoder, EncoderConfig, enable_cpu_kernels, initialize
from electra.model.layers import TransformerLayer
from electra.model.packing import Line, Rows
from electra.runtime import Runtime

WITH_KERNELS = Runtime(torch.device("cpu"), torch.float32, kernels=True)
KERNELS = torch.ops.electra


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    require_kernels()


def rows_of(*lengths: int) -> Tensor:
    """A mask of rows of these lengths."""
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


SHAPES = {
    "rows as they are": (Rows(None), 64, 4),
    "padding": (Line(rows_of(7, 3, 12)), 64, 2),
    "rows longer than a block of queries": (Line(rows_of(300, 1, 129)), 32, 1),
    "an empty row": (Line(rows_of(5, 0, 9)), 64, 4),
    "sizes that fill no vector": (Line(rows_of(11, 6)), 33, 3),
    "holes": (Line(torch.tensor([[True, False, True, True], [False, True, True, False]])), 48, 4),
}


def layer_of(hidden: int, heads: int, dropout: float = 0.0) -> TransformerLayer:
    torch.manual_seed(0)
    layer = TransformerLayer(hidden, 3 * hidden + 1, heads, dropout, dropout, 1e-12)
    for parameter in layer.parameters():
        parameter.data = torch.randn_like(parameter) / math.sqrt(parameter.shape[-1])
    return layer


def learnt(layer: TransformerLayer, x: Tensor, layout: Rows | Line, upstream: Tensor) -> dict[str, Tensor]:
    """The layer's output, and the gradient of everything."""
    layer.zero_grad()
    x = x.clone().requires_grad_()
    out = layer(x, layout)
    out.backward(upstream)
    return {"out": out.detach(), "x": x.grad, **{name: each.grad.clone() for name, each in layer.named_parameters()}}


@pytest.mark.parametrize(("layout", "hidden", "heads"), SHAPES.values(), ids=SHAPES.keys())
def test_a_layer_is_the_plain_one(layout: Rows | Line, hidden: int, heads: int) -> None:
    assert_plain(layout, hidden, heads)


def assert_plain(layout: Rows | Line, hidden: int, heads: int) -> None:
    """The output of a layer and all gradients are those of the plain one."""
    layer = layer_of(hidden, heads)
    tokens = (int(layout.mask.sum()),) if layout.mask is not None else (3, 10)
    x, upstream = torch.randn(2, *tokens, hidden).unbind()
    plain = learnt(layer, x, layout, upstream)
    layer.fused = True
    for name, value in learnt(layer, x, layout, upstream).items():
        torch.testing.assert_close(
            value, plain[name], rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_an_encoder_is_the_plain_one() -> None:
    """With padding and without, all tokens and some positions, every layer's states; what stands at padding means nothing."""
    network = Encoder(EncoderConfig(50, 16, 32, 3, 2, 64, 40))
    initialize(network, 0.2)
    network.eval()
    ids, types = torch.randint(50, (3, 9)), torch.zeros(3, 9, dtype=torch.int64)
    for mask in (None, rows_of(9, 4, 8), torch.ones(3, 9, dtype=torch.bool)):
        positions = torch.tensor([[0, 2], [3, 1], [0, 7]])
        expected = network(ids, types, mask), network(ids, types, mask, positions), [*network.states(ids, types, mask)]
        enable_cpu_kernels(network, WITH_KERNELS)
        assert all(layer.fused for layer in network.layers)
        found = network(ids, types, mask), network(ids, types, mask, positions), [*network.states(ids, types, mask)]
        real = torch.ones(3, 9, dtype=torch.bool) if mask is None else mask
        torch.testing.assert_close(found[0][real], expected[0][real], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found[1], expected[1], rtol=1e-4, atol=1e-5)
        for ours, theirs in zip(found[2], expected[2], strict=True):
            torch.testing.assert_close(ours[real], theirs[real], rtol=1e-4, atol=1e-5)
        for layer in network.layers:
            layer.fused = False


@pytest.mark.parametrize("lengths", [(9, 4, 8), (9, 9, 9), (64, 64)])
def test_tokens_that_fill_a_line_change_nothing(lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """In bfloat16, and what is computed there is float32's but for rounding."""
    network = Encoder(EncoderConfig(50, 16, 32, 3, 2, 64, 64, dropout=0.0, attention_dropout=0.0))
    initialize(network, 0.2)
    enable_cpu_kernels(network, WITH_KERNELS)
    mask = rows_of(*lengths)
    ids, types = torch.randint(50, mask.shape), torch.zeros(mask.shape, dtype=torch.int64)
    positions, upstream = torch.tensor([[0, 2]] * len(lengths)), torch.randn(*mask.shape, 32)

    def of(precision: torch.dtype, multiple: int) -> dict[str, Tensor]:
        monkeypatch.setattr(encoder, "LINE_MULTIPLE", multiple)
        network.zero_grad()
        with torch.autocast("cpu", precision, enabled=precision != torch.float32):
            out, at = network(ids, types, mask), network(ids, types, mask, positions)
        (out.float() * upstream * mask[:, :, None]).sum().backward()
        return {
            "out": out[mask].detach(),
            "at": at.detach(),
            **{name: each.grad for name, each in network.named_parameters()},
        }

    expected, exact = of(torch.bfloat16, 1), of(torch.float32, 1)
    for name, value in of(torch.bfloat16, 64).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-2, atol=1e-2, msg=name)
        assert float((value - exact[name]).norm() / exact[name].norm()) < 0.03, name


LENGTHS, HEADS, SIZE, SEED = (5, 140, 2), 2, 16, -(2**40) + 7
ZEROED = 20_000  # of 65,536
STARTS = F.pad(torch.tensor(LENGTHS).cumsum(0), (1, 0))


def kept_by_attention(seed: int) -> list[Tensor]:
    """What dropout multiplies weights with, [heads, L, L] of each row: even weights show it, given one value after the other."""
    tokens, width = sum(LENGTHS), HEADS * SIZE
    kept = [torch.zeros(HEADS, length, length) for length in LENGTHS]
    for first in range(0, max(LENGTHS), SIZE):
        product = torch.zeros(tokens, 3, HEADS, SIZE)
        for start, length in zip(STARTS.tolist(), LENGTHS, strict=False):
            shown = range(first, min(first + SIZE, length))
            product[[start + j for j in shown], 2, :, [j - first for j in shown]] = float(length)
        out, _ = KERNELS.attend(product.flatten(1), torch.zeros(3 * width), STARTS, HEADS, ZEROED, seed)
        for row, (start, length) in enumerate(zip(STARTS.tolist(), LENGTHS, strict=False)):
            said = out[start : start + length].view(length, HEADS, SIZE).transpose(0, 1)
            kept[row][:, :, first : first + SIZE] = said[:, :, : max(0, length - first)]
    return kept


def attended_plainly(product: Tensor, bias: Tensor, kept: list[Tensor]) -> Tensor:
    """The textbook's attention, with dropout given."""
    out = []
    for start, length, factors in zip(STARTS.tolist(), LENGTHS, kept, strict=False):
        parts = (product + bias)[start : start + length].view(length, 3, HEADS, SIZE)
        q, k, v = parts.permute(1, 2, 0, 3)
        weights = (q @ k.mT / math.sqrt(SIZE)).softmax(-1) * factors
        out.append((weights @ v).transpose(0, 1).flatten(1))
    return torch.cat(out)


def test_attention_with_dropout_and_its_gradient() -> None:
    torch.manual_seed(0)
    product, bias = torch.randn(sum(LENGTHS), 3 * HEADS * SIZE), torch.randn(3 * HEADS * SIZE)
    upstream = torch.randn(sum(LENGTHS), HEADS * SIZE)
    kept = kept_by_attention(SEED)
    scale = 65_536 / (65_536 - ZEROED)
    for factors in kept:
        torch.testing.assert_close(factors, scale * (factors != 0))
        assert binomtest(int((factors == 0).sum()), factors.numel(), ZEROED / 65_536).pvalue > 1e-3
    given = product.double().requires_grad_(), bias.double().requires_grad_()
    expected = attended_plainly(*given, [factors.double() for factors in kept])
    expected.backward(upstream.double())
    out, normalizers = KERNELS.attend(product, bias, STARTS, HEADS, ZEROED, SEED)
    torch.testing.assert_close(out.double(), expected.detach(), rtol=1e-4, atol=1e-5)
    found = KERNELS.attend_backward(upstream, product, bias, STARTS, normalizers, HEADS, ZEROED, SEED)
    for ours, theirs in zip(found, given, strict=True):
        torch.testing.assert_close(ours.double(), theirs.grad, rtol=1e-4, atol=1e-4)


def test_gradients_of_attention_in_bfloat16() -> None:
    """Keys and values that have much in common, as trained ones do: sums of rows that are rounded would show there."""
    torch.manual_seed(0)
    length, heads, size = 128, 2, 64
    parts = torch.randn(length, 3, heads, size)
    parts[:, 1:] += 3 * torch.randn(2, heads, size)
    product, upstream = parts.flatten(1).bfloat16(), torch.randn(length, heads * size).bfloat16()
    starts, zeros = torch.tensor([0, length]), torch.zeros(3 * heads * size)
    for zeroed in (0, ZEROED):
        gradients = []
        for given in (product.float(), product):
            _, normalizers = KERNELS.attend(given, zeros, starts, heads, zeroed, SEED)
            found = KERNELS.attend_backward(
                upstream.to(given.dtype), given, zeros, starts, normalizers, heads, zeroed, SEED
            )
            gradients.append([each.double() for each in found])
        for exact, rounded in zip(*gradients, strict=True):
            assert float((rounded - exact).norm() / exact.norm()) < 0.005


def kept_by_sum(tokens: int, width: int, zeroed: int, seed: int) -> Tensor:
    """What dropout multiplies with before the residual sum."""
    ones, zeros, vector = torch.ones(tokens, width), torch.zeros(tokens, width), torch.zeros(width)
    _, sums, *_ = KERNELS.add_norm(ones, vector, zeros, vector, vector, 1e-12, zeroed, seed)
    return sums


def test_sum_after_dropout_normalized_and_its_gradient() -> None:
    torch.manual_seed(0)
    tokens, width = 37, 50
    kept = kept_by_sum(tokens, width, ZEROED, SEED).double()
    product, residual, upstream = torch.randn(3, tokens, width).unbind()
    bias, weight, shift = torch.randn(3, width).unbind()
    given = [each.double().requires_grad_() for each in (product, residual, bias, weight, shift)]
    x, r, b, w, s = given
    expected = F.layer_norm(r + (x + b) * kept, (width,), w, s, 1e-12)
    expected.backward(upstream.double())
    out, *saved = KERNELS.add_norm(product, bias, residual, weight, shift, 1e-12, ZEROED, SEED)
    torch.testing.assert_close(out.double(), expected.detach(), rtol=1e-4, atol=1e-5)
    to_product, to_residual, to_vectors = KERNELS.add_norm_backward(upstream, *saved, weight, product, ZEROED, SEED)
    for ours, theirs in zip((to_product, to_residual, *to_vectors), given, strict=True):
        torch.testing.assert_close(ours.double(), theirs.grad, rtol=1e-4, atol=1e-5)


def test_rounding_of_products_and_gradients_in_bfloat16() -> None:
    """What is read is widened, what is written is rounded; sums and normalized vectors are not."""
    torch.manual_seed(0)
    x, residual, upstream = torch.randn(3, 21, 37).unbind()
    x, vectors = x.bfloat16(), torch.randn(3, 37)
    rounded = upstream.bfloat16()
    assert torch.equal(KERNELS.gelu(x, vectors[0]), KERNELS.gelu(x.float(), vectors[0]).bfloat16())
    ours, exact = (KERNELS.gelu_backward(rounded.to(each.dtype), each, vectors[0]) for each in (x, x.float()))
    assert torch.equal(ours[0], exact[0].bfloat16())
    torch.testing.assert_close(ours[1], exact[1])
    given = vectors[0], residual, vectors[1], vectors[2], 1e-12, ZEROED, SEED
    (out, *saved), plain = KERNELS.add_norm(x, *given), KERNELS.add_norm(x.float(), *given)
    torch.testing.assert_close([out, *saved], list(plain))
    ours, exact = (
        KERNELS.add_norm_backward(upstream, *saved, vectors[1], each, ZEROED, SEED) for each in (x, x.float())
    )
    assert torch.equal(ours[0], exact[0].bfloat16())
    torch.testing.assert_close(ours[1:], exact[1:])


def test_gelu_and_its_gradient_to_the_precision_of_float32() -> None:
    x = torch.linspace(-12, 12, 3 * 4001).view(3, 4001)
    bias = torch.linspace(-1, 1, 4001)
    given = x.double().requires_grad_(), bias.double().requires_grad_()
    expected = F.gelu(given[0] + given[1])
    expected.sum().backward()
    torch.testing.assert_close(KERNELS.gelu(x, bias).double(), expected.detach(), rtol=3e-6, atol=1e-6)
    to_x, to_bias = KERNELS.gelu_backward(torch.ones_like(x), x, bias)
    torch.testing.assert_close(to_x.double(), given[0].grad, rtol=0, atol=1e-6)
    torch.testing.assert_close(to_bias.double(), given[1].grad, rtol=0, atol=3e-6)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.003])
def test_rate_of_dropout(p: float) -> None:
    kept = kept_by_sum(999, 101, round(p * 65_536), 3)
    zeroed = int((kept == 0).sum())
    assert binomtest(zeroed, kept.numel(), p).pvalue > 1e-3
    assert kept[kept != 0].unique().tolist() == pytest.approx([1 / (1 - p)], rel=1e-4)


def together(one: Tensor, other: Tensor) -> float:
    """How often both are dropped, where a tenth of each is."""
    return float(((one == 0) & (other == 0)).double().mean())


def test_elements_tokens_and_seeds_are_independent() -> None:
    """Lanes, and streams of 16 tokens, begin with neighboring counters; what they draw has nothing in common."""
    tenth = 6554
    kept = kept_by_sum(4096, 64, tenth, 1)
    flat = kept.flatten()
    for shift in (1, 2, 8, 16, 17, 32, 64, 16 * 64, 17 * 64):
        assert together(flat[:-shift], flat[shift:]) == pytest.approx(0.01, rel=0.06), shift
    for seed in (2, 1 + 2**32, -1, 1 + 2**33):
        assert together(kept, kept_by_sum(4096, 64, tenth, seed)) == pytest.approx(0.01, rel=0.06), seed
    assert torch.equal(kept, kept_by_sum(4096, 64, tenth, 1))


def test_heads_and_queries_are_independent() -> None:
    share = ZEROED / 65_536
    (_, long, _) = kept_by_attention(0)
    assert together(long[0], long[1]) == pytest.approx(share**2, rel=0.06)
    assert together(long[:, 1:], long[:, :-1]) == pytest.approx(share**2, rel=0.06)
    assert together(long[:, :, 1:], long[:, :, :-1]) == pytest.approx(share**2, rel=0.06)


def test_torchs_seed_decides_and_evaluation_drops_nothing() -> None:
    layer = layer_of(32, 2, dropout=0.3)
    layer.fused = True
    x = torch.randn(2, 6, 32)

    def of_seed(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return layer(x, Rows(None))

    assert torch.equal(of_seed(1), of_seed(1))
    assert not torch.equal(of_seed(1), of_seed(2))
    layer.eval()
    state = torch.get_rng_state()
    layer(x, Rows(None))
    assert torch.equal(torch.get_rng_state(), state), "and draws nothing, which would move others' draws"
    assert torch.equal(of_seed(1), of_seed(2))
    fused_alone = of_seed(1)
    layer.fused = False
    torch.testing.assert_close(of_seed(1), fused_alone, rtol=1e-4, atol=1e-5)


def test_each_rate_is_its_own() -> None:
    """What attends to values that are all 0 says the same, whatever is dropped of its weights; not so after the products."""
    x = torch.randn(1, 6, 32)
    layer = layer_of(32, 2)
    layer.attention.qkv.weight.data[64:] = 0.0
    layer.attention.qkv.bias.data[64:] = 0.0
    layer.fused = True
    expected = layer(x, Rows(None))
    layer.attention.dropout = 0.5
    assert torch.equal(layer(x, Rows(None)), expected)
    layer.attention.dropout, layer.dropout.p = 0.0, 0.5
    assert not torch.equal(layer(x, Rows(None)), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_slopes_with_dropout(dtype: torch.dtype) -> None:
    """Along each gradient the layer's output changes as fast as the gradient says, where the same is dropped."""
    layer = layer_of(32, 2)
    layer.attention.dropout, layer.dropout.p, layer.fused = 0.3, 0.2, True
    x, upstream = torch.randn(2, 3, 10, 32).unbind()
    x.requires_grad_()

    def value() -> Tensor:
        torch.manual_seed(5)
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            return (layer(x, Rows(None)) * upstream).sum()

    value().backward()
    for name, tensor in (("x", x), *layer.named_parameters()):
        gradient = tensor.grad.clone()
        step = 0.03 * gradient / gradient.norm()
        with torch.no_grad():
            tensor += step
            above = value()
            tensor -= 2 * step
            slope = float(above - value()) / (2 * 0.03)
            tensor += step
        assert slope == pytest.approx(float(gradient.norm()), rel=5e-3 if dtype == torch.float32 else 0.05), name


def test_frozen_weights_and_inputs() -> None:
    layer = layer_of(32, 2)
    x = torch.randn(2, 4, 32)
    plain = learnt(layer, x, Rows(None), torch.ones(2, 4, 32))
    layer.fused = True
    layer.zero_grad()
    for name in ("attention.qkv.weight", "ffn.up.weight", "ffn.down.weight", "attention.output.weight", "ffn.up.bias"):
        layer.get_parameter(name).requires_grad_(False)
    layer(x, Rows(None)).backward(torch.ones(2, 4, 32))
    for name, parameter in layer.named_parameters():
        assert (parameter.grad is None) == (not parameter.requires_grad), name
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, plain[name], rtol=1e-4, atol=1e-5, msg=name)


def test_where_kernels_do_not_reach_the_plain_layer_computes() -> None:
    """Padding in rows, other precisions, torch.compile; and copies, pickled ones too, have kernels again."""
    layer = layer_of(32, 2)
    x, mask = torch.randn(2, 4, 32), rows_of(4, 2)
    expected = layer(x, Rows(None))
    masked = layer(x, Rows(mask))
    layer.fused = True
    torch.testing.assert_close(layer(x, Rows(mask))[mask], masked[mask])
    torch.testing.assert_close(layer.double()(x.double(), Rows(None)).float(), expected)
    layer.float()
    with torch.autocast("cpu", torch.float16):
        torch.testing.assert_close(layer(x, Rows(None)).float(), expected, rtol=0.02, atol=0.02)
    for again in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert again.fused
        torch.testing.assert_close(again(x, Rows(None)), expected)
    with pytest.raises(RuntimeError, match="contiguous"):
        KERNELS.gelu(torch.randn(4, 6).t(), torch.zeros(4))


AVX2 = """
import torch
from electra.model.cpu.library import why_no_kernels
from test_fused import SHAPES, assert_plain
from test_token_scores import assert_kernels_are_torch

assert torch.backends.cpu.get_cpu_capability() == "AVX2"
assert why_no_kernels() is None
for shape in SHAPES.values():
    assert_plain(*shape)
assert_kernels_are_torch()
"""


def test_the_same_by_avx2() -> None:
    here = Path(__file__).parent
    places = os.pathsep.join(map(str, [here, here.parent, here.parent / "pretraining", *filter(None, sys.path)]))
    done = subprocess.run(
        [sys.executable, "-c", AVX2],
        capture_output=True,
        text=True,
        env=os.environ | {"ATEN_CPU_CAPABILITY": "avx2", "PYTHONPATH": places},
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_sums_over_many_tokens_are_precise() -> None:
    product, bias = torch.randn(40_000, 33), torch.randn(33)
    _, found = KERNELS.gelu_backward(torch.ones_like(product), product, bias)
    given = product.double(), bias.double().requires_grad_()
    F.gelu(given[0] + given[1]).sum().backward()
    assert float((found - given[1].grad).norm() / given[1].grad.norm()) < 2e-6


def test_what_is_no_number_stays_none() -> None:
    """The loop stops a run that diverged by its gradients' norm."""
    layer = layer_of(32, 2)
    layer.fused = True
    x = torch.randn(2, 4, 32)
    x[1, 2, 3] = math.nan
    out = layer(x, Rows(None))
    assert out[1].isnan().all()
    assert out[0].isfinite().all()


def test_threads_share_the_work() -> None:
    layer = layer_of(32, 2)
    layer.fused = True
    mask = rows_of(40, 3, 17, 40, 25)
    x, upstream = torch.randn(2, int(mask.sum()), 32).unbind()
    alone = learnt(layer, x, Line(mask), upstream)
    torch.set_num_threads(2)
    try:
        for name, value in learnt(layer, x, Line(mask), upstream).items():
            torch.testing.assert_close(value, alone[name], rtol=1e-4, atol=1e-5, msg=name)
    finally:
        torch.set_num_threads(1)
