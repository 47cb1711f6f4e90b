"""Dropout by the C++ kernel (`kernels/dropout_op.h`), with a backward pass.

PyTorch draws the random numbers of a CPU one at a time: 7 % of a step of Small was spent on them (docs/research/log:
"Dropout by a CPU kernel").
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from electra.model.cpu.library import find_kernel_problem

LEVELS = 2**16
"""The kernels draw 16 bits for each element, so dropout rates are multiples of 1 / LEVELS."""


class KernelDropout(nn.Dropout):
    """`nn.Dropout` by the kernel where it supports the input, otherwise by PyTorch."""

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Zero each element with probability `p` in training, and scale the others."""
        if not self.training or not self.p:
            return x
        return DropoutByKernel.apply(x, quantize_rate(self.p)) if kernels_support(x) else super().forward(x)


def quantize_rate(rate: float) -> int:
    """Return the nearest dropout rate that the kernels have, as a multiple of 1 / LEVELS; never all."""
    return min(round(rate * LEVELS), LEVELS - 1)


def draw_seed() -> int:
    """Draw a seed for a kernel from PyTorch's generator."""
    return int(torch.empty(1, dtype=torch.int64).random_(-(2**63), None))


def kernels_support(x: Tensor) -> bool:
    """Whether the kernels support this tensor. A module may have been unpickled on a machine without them."""
    return (
        x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.bfloat16)
        and not torch.compiler.is_compiling()
        and find_kernel_problem() is None
    )


class DropoutByKernel(torch.autograd.Function):
    """Dropout with a rate of `dropped` / `LEVELS`. The backward pass draws again from the seed, so that no mask is stored."""

    @staticmethod
    def forward(ctx: Any, x: Float[Tensor, "*shape"], dropped: int) -> Float[Tensor, "*shape"]:
        ctx.arguments = dropped, draw_seed()
        return drop(x, *ctx.arguments)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "*shape"]) -> tuple[Tensor, None]:
        return drop(gradient, *ctx.arguments), None


def drop(x: Float[Tensor, "*shape"], dropped: int, seed: int) -> Float[Tensor, "*shape"]:
    """Call the operator, which takes one dimension."""
    return torch.ops.electra.dropout(x.contiguous().view(-1), dropped, seed).view(x.shape)
