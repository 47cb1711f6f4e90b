"""Self-attention of packed batches by the C++ kernel (`kernels/attention.h`), with a backward pass.

PyTorch's fused attention on a CPU has no dropout and needs padded batches.
"""

from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable

from electra.model.cpu.dropout import draw_seed, kernels_support, quantize_rate
from electra.model.layers import attend
from electra.model.packing import Packed, Padded


def attend_by_kernel(
    qkv: Float[Tensor, "*tokens QKV"], layout: Padded | Packed, head_size: int, dropout: float
) -> Float[Tensor, "*tokens H"]:
    """Compute `electra.model.layers.attend` by the kernel if it supports the arguments, otherwise by PyTorch."""
    if not kernel_supports(qkv, layout):
        return attend(qkv, layout, head_size, dropout)
    heads = qkv.shape[-1] // (3 * head_size)
    out = PackedAttention.apply(qkv.flatten(0, -2), layout.cu_seqlens(qkv), heads, quantize_rate(dropout))
    return out.view(*qkv.shape[:-1], -1)


def kernel_supports(qkv: Tensor, layout: Padded | Packed) -> bool:
    """Whether the kernel supports these tensors."""
    return kernels_support(qkv) and (isinstance(layout, Packed) or layout.mask is None)


class PackedAttention(torch.autograd.Function):
    """Attention of packed sequences. The backward pass draws dropout again from the seed, so that no mask is stored.

    `cu_seqlens` are the offsets of the sequences among the T tokens; tokens after the last sequence get zeros. `dropped` of
    `LEVELS` is the dropout rate. All sums are float32.
    """

    @staticmethod
    def forward(
        ctx: Any, qkv: Float[Tensor, "T QKV"], cu_seqlens: Int64[Tensor, " S"], heads: int, dropped: int
    ) -> Float[Tensor, "T H"]:
        qkv = qkv.contiguous()
        seed = draw_seed() if dropped else 0
        out, log_sum_exp = torch.ops.electra.attend(qkv, cu_seqlens, heads, dropped, seed)
        ctx.save_for_backward(qkv, cu_seqlens, log_sum_exp)
        ctx.arguments = heads, dropped, seed
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "T H"]) -> tuple[Tensor, None, None, None]:
        d_qkv = torch.ops.electra.attend_backward(gradient.contiguous(), *ctx.saved_tensors, *ctx.arguments)
        return d_qkv, None, None, None
