"""A layer in few passes over memory, on a CPU: matrix products by torch, all between them by C++ of our own (`kernels/`).

A CPU spends a third of a small model's step on fetching and writing what lies between two products (LOG.md). Without the
C++ (`kernel_library.py`) the layer of `electra.model.layers` does the same, which `tests/model/test_fused.py` has beside this
one. Letters of shapes are as there, and T tokens of a batch.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable

from electra.model.cpu.dropout import levels


class LayerSettings(NamedTuple):
    """Of a layer, beside its weights."""

    heads: int
    eps: float
    """Of its LayerNorms."""
    dropout: float
    attention_dropout: float


def kernels_precision() -> torch.dtype | None:
    """That of the products; None where autocast has one that kernels do not know."""
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32
    return dtype if dtype in (torch.float32, torch.bfloat16) else None


class FusedLayer(torch.autograd.Function):
    """`TransformerLayer` for all tokens of a batch; products in float32, or as autocast has them, all sums in float32.

    `starts` says where each row of the batch begins among the tokens, and in the end how many there are. The weights are
    those of the layer in the order of its parameters.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Float[Tensor, "T H"], starts: Int64[Tensor, " S"], settings: LayerSettings, *weights: Tensor
    ) -> Float[Tensor, "T H"]:
        dtype = kernels_precision()
        assert dtype is not None
        _, b_qkv, _, b_output, w_norm, b_norm, _, b_up, _, b_down, w_last_norm, b_last_norm = weights
        w_qkv, w_output, w_up, w_down = (weights[i].to(dtype) for i in (0, 2, 6, 8))
        kernels, x = torch.ops.electra, x.float().contiguous()
        zeroed, of_attention = levels(settings.dropout), levels(settings.attention_dropout)
        seeds = [0, 0, 0]
        if zeroed or of_attention:
            seeds = torch.empty(3, dtype=torch.int64).random_(-(2**63), None).tolist()

        given = x.to(dtype)
        qkv = given @ w_qkv.t()
        attended, normalizers = kernels.attend(qkv, b_qkv, starts, settings.heads, of_attention, seeds[0])
        output = attended @ w_output.t()
        y, *of_norm = kernels.add_norm(output, b_output, x, w_norm, b_norm, settings.eps, zeroed, seeds[1])
        halfway = y.to(dtype)
        up = halfway @ w_up.t()
        inner = kernels.gelu(up, b_up)
        down = inner @ w_down.t()
        out, *of_last_norm = kernels.add_norm(down, b_down, y, w_last_norm, b_last_norm, settings.eps, zeroed, seeds[2])

        states = given, starts, qkv, attended, normalizers, halfway, up, inner, *of_norm, *of_last_norm
        ctx.save_for_backward(*states, w_qkv, b_qkv, w_output, w_norm, w_up, b_up, w_down, w_last_norm)
        ctx.settings, ctx.zeroed, ctx.of_attention, ctx.seeds = settings, zeroed, of_attention, seeds
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "T H"]) -> tuple[Tensor | None, ...]:
        given, starts, qkv, attended, normalizers, halfway, up, inner, *rest = ctx.saved_tensors
        of_norm, of_last_norm, weights = rest[:3], rest[3:6], rest[6:]
        w_qkv, b_qkv, w_output, w_norm, w_up, b_up, w_down, w_last_norm = weights
        heads, zeroed, of_attention, seeds = ctx.settings.heads, ctx.zeroed, ctx.of_attention, ctx.seeds
        learns_qkv, learns_output, learns_up, learns_down = (ctx.needs_input_grad[3 + i] for i in (0, 2, 6, 8))
        kernels, gradient = torch.ops.electra, gradient.contiguous()

        d_down, d_y, d_vectors = kernels.add_norm_backward(
            gradient, *of_last_norm, w_last_norm, given, zeroed, seeds[2]
        )
        d_up, d_b_up = kernels.gelu_backward(d_down @ w_down, up, b_up)
        d_w_up = d_up.t() @ halfway if learns_up else None
        d_w_down = d_down.t() @ inner if learns_down else None
        of_ffn = d_w_up, d_b_up, d_w_down, *d_vectors
        add_product(d_y, d_up, w_up)

        d_output, d_x, d_vectors = kernels.add_norm_backward(d_y, *of_norm, w_norm, given, zeroed, seeds[1])
        d_qkv, d_b_qkv = kernels.attend_backward(
            d_output @ w_output, qkv, b_qkv, starts, normalizers, heads, of_attention, seeds[0]
        )
        d_w_qkv = d_qkv.t() @ given if learns_qkv else None
        d_w_output = d_output.t() @ attended if learns_output else None
        add_product(d_x, d_qkv, w_qkv)
        return d_x, None, None, d_w_qkv, d_b_qkv, d_w_output, *d_vectors, *of_ffn


def add_product(to: Float[Tensor, "T H"], a: Float[Tensor, "T X"], b: Float[Tensor, "X H"]) -> None:
    """Add a @ b, in the same pass where precisions allow it."""
    if a.dtype == to.dtype:
        to.addmm_(a, b)
    else:
        to.add_(a @ b)
