"""Dropout that is quick on a CPU.

torch draws one number for each element there, from a generator that yields them one by one; a quarter of a training step
of a small model was spent on it (LOG.md). Sixteen bits an element are enough, and four elements share a draw. What is kept is
a number and not a boolean, which torch's CPU kernels neither make nor read by vector instructions.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int16
from torch import Tensor, nn

LEVELS = 2**16


class Dropout(nn.Module):
    """Zeroes each element with probability `p` while training, and scales the others so that the mean stays."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(
        self, x: Float[Tensor, "*shape"], residual: Float[Tensor, "*shape"] | None = None
    ) -> Float[Tensor, "*shape"]:
        """`x` after dropout, and the sum of `residual` and that where it is given."""
        if self.training and self.p:
            return dropped(x, self.p, residual)
        return x if residual is None else residual + x


def dropped(
    x: Float[Tensor, "*shape"], p: float, residual: Float[Tensor, "*shape"] | None = None
) -> Float[Tensor, "*shape"]:
    """What `Dropout` does while training; on a CPU `p` is rounded to 16 bits, with the scale that belongs to it."""
    if x.device.type != "cpu":
        y = F.dropout(x, p)
        return y if residual is None else residual + y
    return DroppedOnCPU.apply(x, levels(p), residual)


def levels(p: float) -> int:
    """How many of the 2^16 values of a draw are dropped."""
    return min(round(p * LEVELS), LEVELS - 1)


def scale(zeroed: int) -> float:
    """What keeps the mean where `zeroed` of the 2^16 values of a draw are dropped."""
    return LEVELS / (LEVELS - zeroed)


def kept(x: Float[Tensor, "*shape"], zeroed: int) -> Int16[Tensor, "*shape"]:
    """1 with probability 1 - zeroed / 2^16, else 0, for each element."""
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    draws = draws.view(torch.int16)[: x.numel()].view(x.shape)
    least = zeroed - LEVELS // 2  # of the draws, which are signed, that keep
    if torch.compiler.is_compiling():  # it cannot keep a view of another type for the backward pass
        return draws.ge(least).to(torch.int16)
    return draws.ge_(least)


class DroppedOnCPU(torch.autograd.Function):
    """x * kept * scale, and the sum of `residual` and it, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, zeroed: int, residual: Tensor | None) -> Tensor:
        keep = kept(x, zeroed)
        ctx.save_for_backward(keep)
        ctx.scale = scale(zeroed)
        if residual is None:
            return keep.to(x.dtype).mul_(x).mul_(ctx.scale)
        return torch.addcmul(residual, keep.to(x.dtype), x, value=ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor | None]:
        (keep,) = ctx.saved_tensors
        dropped_gradient = keep.to(gradient.dtype).mul_(gradient).mul_(ctx.scale)
        return dropped_gradient, None, gradient if ctx.needs_input_grad[2] else None
