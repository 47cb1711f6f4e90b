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

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return dropped(x, self.p) if self.training and self.p else x


def dropped(x: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """`x` after dropout; on a CPU `p` is rounded to 16 bits, with the scale that belongs to it."""
    if x.device.type != "cpu":
        return F.dropout(x, p)
    zeroed = min(round(p * LEVELS), LEVELS - 1)
    return DroppedOnCPU.apply(x, zeroed) if zeroed else x


def kept(x: Float[Tensor, "*shape"], zeroed: int) -> Int16[Tensor, "*shape"]:
    """1 with probability 1 - zeroed / 2^16, else 0, for each element."""
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    least = zeroed - LEVELS // 2  # of the draws, which are signed, that keep
    # Not in place: torch.compile cannot keep a view of another type for the backward pass.
    return draws.view(torch.int16)[: x.numel()].view(x.shape).clamp(least - 1, least).sub_(least - 1)


class DroppedOnCPU(torch.autograd.Function):
    """x * kept * scale, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, zeroed: int) -> Tensor:
        keep, ctx.scale = kept(x, zeroed), LEVELS / (LEVELS - zeroed)
        ctx.save_for_backward(keep)
        return keep.to(x.dtype).mul_(x).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return keep.to(gradient.dtype).mul_(gradient).mul_(ctx.scale), None
