"""Dropout that is quick on a CPU.

torch draws one number for each element there, from a generator that yields them one by one; a quarter of a training step
of a small model was spent on it (LOG.md). Sixteen bits an element are enough, and four elements share a draw.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
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
    return DroppedOnCPU.apply(x, p) if x.device.type == "cpu" else F.dropout(x, p)


def kept(x: Float[Tensor, "*shape"], zeroed: int) -> Bool[Tensor, "*shape"]:
    """True with probability 1 - zeroed / 2^16, for each element."""
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return draws.view(torch.int16)[: x.numel()].view(x.shape) >= zeroed - LEVELS // 2


class DroppedOnCPU(torch.autograd.Function):
    """x * kept * scale, forward and backward; what is kept is remembered in a byte an element."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        zeroed = round(p * LEVELS)
        keep, ctx.scale = kept(x, zeroed), LEVELS / (LEVELS - zeroed)
        ctx.save_for_backward(keep)
        return torch.ops.aten.native_dropout_backward(x, keep, ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return torch.ops.aten.native_dropout_backward(gradient, keep, ctx.scale), None
