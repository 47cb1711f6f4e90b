"""Attention with dropout on its probabilities, which torch's fused attention does not have on a CPU.

Letters of shapes as in `electra.model.layers`; the heads of a part (queries, keys, values) stand one after the other.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from electra.model.cpu.dropout import kept, levels, scale


def attend(
    parts: Float[Tensor, "P B N L D"],
    queries: Float[Tensor, "B N Q D"] | None,
    mask: Bool[Tensor, "B L"] | None,
    dropout: float,
) -> Float[Tensor, "B N Q D"]:
    """softmax(q k^T / sqrt(D)) v where `mask` is true, with dropout on the probabilities.

    `parts` are queries, keys and values of all tokens, or keys and values alone where `queries` are given.
    """
    if dropout and parts.device.type == "cpu":
        return DroppedAttention.apply(parts, queries, mask, levels(dropout))
    *own, k, v = apart(parts)
    q = queries if queries is not None else own[0]
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=None if mask is None else mask[:, None, None, :], dropout_p=dropout
    )


def apart(parts: Float[Tensor, "P B N L D"]) -> tuple[Float[Tensor, "B N L D"], ...]:
    """Each part by itself, unbound as they lie in memory: their gradients are then stacked in that order, in one copy."""
    if parts.is_contiguous():
        return parts.unbind()
    return tuple(part.transpose(1, 2) for part in parts.permute(1, 3, 0, 2, 4).unbind(2))


class DroppedAttention(torch.autograd.Function):
    """`attend` with few passes over its B N Q L weights: three of its own forward, three backward, beside draws and products.

    With P = softmax(S), D what dropout leaves of P before it is scaled by c, and out = c D v: the gradient of S is
    X - P * rowsum(X), X = D * (c g v^T), so that the mask need not be kept beside P and D.
    """

    @staticmethod
    def forward(ctx: Any, parts: Tensor, queries: Tensor | None, mask: Tensor | None, zeroed: int) -> Tensor:
        rows, number, size = parts.shape[1], parts.shape[2], parts.shape[4]
        ctx.scale, ctx.temper = scale(zeroed), size**-0.5
        # One copy where heads do not lie together, instead of one in every product, forward and backward.
        parts = parts.contiguous().flatten(1, 2)
        *own, k, v = parts.unbind()
        q = own[0] if queries is None else queries.contiguous().flatten(0, 1)
        if mask is None:
            scores = scaled(q, k.mT, ctx.temper)
        else:  # as a summand: filling takes ten times as long
            masked = torch.zeros_like(mask, dtype=q.dtype).masked_fill_(~mask, -math.inf)
            scores = torch.baddbmm(masked.repeat_interleave(number, 0).unsqueeze(1), q, k.mT, alpha=ctx.temper)
        weights = scores.softmax(-1, dtype=q.dtype)  # autocast would have float32
        left = kept(weights, zeroed).to(q.dtype).mul_(weights)
        out = scaled(left, v, ctx.scale)
        ctx.save_for_backward(parts, None if queries is None else q, weights, left)
        return out.unflatten(0, (rows, number))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        parts, queries, weights, left = ctx.saved_tensors
        heads = gradient.shape[:2]
        gradient = gradient.contiguous().flatten(0, 1)
        *own, k, v = parts.unbind()
        q = own[0] if queries is None else queries
        d_parts = torch.empty_like(parts)
        *d_own, d_k, d_v = d_parts.unbind()
        d_q = d_own[0] if queries is None else torch.empty_like(queries)
        scaled(left.mT, gradient, ctx.scale, d_v)
        products = scaled(gradient, v.mT, ctx.scale).mul_(left)
        # Not in bfloat16: what the sums of a row lack would be multiplied by the mean of its keys.
        sums = products.sum(-1, keepdim=True, dtype=torch.promote_types(products.dtype, torch.float32))
        d_scores = torch.addcmul(products, weights, sums, value=-1).to(products.dtype)
        scaled(d_scores, k, ctx.temper, d_q)
        scaled(d_scores.mT, q, ctx.temper, d_k)
        return d_parts.unflatten(1, heads), None if queries is None else d_q.unflatten(0, heads), None, None


def scaled(
    a: Float[Tensor, "R X Y"], b: Float[Tensor, "R Y Z"], factor: float, out: Float[Tensor, "R X Z"] | None = None
) -> Float[Tensor, "R X Z"]:
    """factor * a @ b in one product, and into `out` where that is given."""
    return torch.baddbmm(a.new_empty(()), a, b, beta=0, alpha=factor, out=out)
