"""Dropout by the C++ kernel: its rate, its backward pass, and where PyTorch's is used instead."""

import copy
import pickle

import pytest
import torch
from scipy.stats import binomtest, chisquare
from support.attention import require_kernels
from torch import nn

from electra.model.cpu import enable_cpu_kernels
from electra.model.cpu.dropout import LEVELS, KernelDropout, drop, quantize_rate
from electra.model.encoder import Encoder, EncoderConfig


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    require_kernels()


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_rate_and_scale(rate: float) -> None:
    n = 100_001
    out = drop(torch.ones(n), quantize_rate(rate), seed=5)
    kept = int((out != 0).sum())
    assert binomtest(kept, n, 1 - quantize_rate(rate) / LEVELS).pvalue > 1e-4
    torch.testing.assert_close(out[out != 0], torch.full((kept,), 1 / (1 - rate)), rtol=1e-4, atol=0)


def test_neighbors_are_independent() -> None:
    """Of two neighbors in a row, across blocks too, all four outcomes are as frequent as independent ones."""
    kept = (drop(torch.ones(2**18), LEVELS // 2, seed=6) != 0).long()
    for distance in (1, 16, 32, 4096):
        outcomes = torch.bincount(2 * kept[:-distance] + kept[distance:], minlength=4)
        assert chisquare(outcomes.tolist()).pvalue > 1e-4, distance


@pytest.mark.parametrize("shape", [(1,), (31,), (33,), (3, 5, 7), (4096,), (2, 4097)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_backward_pass_has_the_same_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = KernelDropout(0.3)
    x = torch.randn(shape).to(dtype).requires_grad_()
    out = module(x)
    out.backward(torch.ones_like(out))
    assert out.dtype == x.grad.dtype == dtype
    torch.testing.assert_close(out, x * x.grad)
    strided = torch.randn(8, 6)[:, ::2]
    assert module(strided).shape == strided.shape


def test_result_depends_on_the_seed_alone() -> None:
    x = torch.randn(50_000)
    threads = torch.get_num_threads()
    torch.manual_seed(1)
    first = KernelDropout(0.1)(x)
    torch.manual_seed(1)
    try:
        torch.set_num_threads(2)
        assert torch.equal(first, KernelDropout(0.1)(x))
        assert not torch.equal(first, KernelDropout(0.1)(x))
    finally:
        torch.set_num_threads(threads)


def test_no_dropout_in_evaluation_or_at_rate_zero() -> None:
    x = torch.randn(100)
    assert KernelDropout(0.5).eval()(x) is x
    assert KernelDropout(0.0)(x) is x


def test_other_types_are_computed_by_pytorch() -> None:
    x = torch.randn(100, dtype=torch.float64)
    torch.manual_seed(2)
    out = KernelDropout(0.5)(x)
    torch.manual_seed(2)
    assert torch.equal(out, nn.functional.dropout(x, 0.5))


def test_all_dropout_of_an_encoder_is_replaced() -> None:
    network = Encoder(EncoderConfig(50, 16, 32, 3, 2, 64, 40)).eval()
    names = set(network.state_dict())
    assert enable_cpu_kernels(network) is None
    modules = [each for each in network.modules() if isinstance(each, nn.Dropout)]
    assert len(modules) == 4
    for module in (*modules, *copy.deepcopy(modules), *pickle.loads(pickle.dumps(modules))):
        assert type(module) is KernelDropout
        assert (module.p, module.training) == (0.1, False)
    assert set(network.state_dict()) == names
