"""Attention of packed batches by the kernel, beside PyTorch's; whether this machine should compile the kernels."""

import math
import os
import platform
import shlex
import shutil

import pytest
import torch
from torch import Tensor

from electra.model.cpu import enable_cpu_kernels
from electra.model.cpu.library import find_kernel_problem
from electra.model.layers import TransformerLayer
from electra.model.packing import Packed, Padded


def why_not_compiled() -> str | None:
    """Why a machine is not expected to compile them; a compiler that is there and fails is a mistake of ours."""
    if platform.system() != "Linux" or torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        return "kernels are for AVX2 and AVX-512 on Linux"
    try:
        compiler = shlex.split(os.environ.get("CXX", "c++"))
    except ValueError as error:
        return f"CXX: {error}"
    return None if compiler and shutil.which(compiler[0]) else "no C++ compiler"


CANNOT_COMPILE = why_not_compiled()
NEEDS_COMPILER = pytest.mark.skipif(CANNOT_COMPILE is not None, reason=str(CANNOT_COMPILE))


def require_kernels() -> None:
    """Skip what needs kernels where they do not compile; `tests/model/test_kernels.py` has a test that fails there."""
    reason = CANNOT_COMPILE or find_kernel_problem()
    if reason is not None:
        pytest.skip(f"no kernels: {reason}")


def mask_of(*lengths: int) -> Tensor:
    """A mask of sequences of these lengths."""
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


SHAPES = {
    "no padding": (Padded(None), 64, 4),
    "padding": (Packed(mask_of(7, 3, 12)), 64, 2),
    "sequences longer than a block of queries": (Packed(mask_of(300, 1, 129)), 32, 1),
    "an empty sequence": (Packed(mask_of(5, 0, 9)), 64, 4),
    "sizes that fill no vector": (Packed(mask_of(11, 6)), 33, 3),
    "gaps in the mask": (Packed(torch.tensor([[True, False, True, True], [False, True, True, False]])), 48, 4),
}


def layer_of(hidden: int, heads: int, dropout: float = 0.0) -> TransformerLayer:
    """A layer of random weights."""
    torch.manual_seed(0)
    layer = TransformerLayer(hidden, 3 * hidden + 1, heads, dropout, dropout, 1e-12)
    for parameter in layer.parameters():
        parameter.data = torch.randn_like(parameter) / math.sqrt(parameter.shape[-1])
    return layer


def forward_backward(
    layer: TransformerLayer, x: Tensor, layout: Padded | Packed, gradient: Tensor
) -> dict[str, Tensor]:
    """The layer's output, and all gradients."""
    layer.zero_grad()
    x = x.clone().requires_grad_()
    out = layer(x, layout)
    out.backward(gradient)
    return {"out": out.detach(), "x": x.grad, **{name: each.grad.clone() for name, each in layer.named_parameters()}}


def assert_same_layer(layout: Padded | Packed, hidden: int, heads: int) -> None:
    """With the kernel, the output of a layer and all gradients are those without."""
    layer = layer_of(hidden, heads)
    tokens = (int(layout.mask.sum()),) if layout.mask is not None else (3, 10)
    x, gradient = torch.randn(2, *tokens, hidden).unbind()
    expected = forward_backward(layer, x, layout, gradient)
    assert enable_cpu_kernels(layer) is None
    for name, value in forward_backward(layer, x, layout, gradient).items():
        torch.testing.assert_close(
            value, expected[name], rtol=1e-4, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}"
        )
