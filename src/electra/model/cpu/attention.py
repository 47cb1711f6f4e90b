"""Self-attention of packed batches by the C++ kernel (`kernels/attention.h`), with a backward pass.

PyTorch's fused attention on a CPU has no dropout and needs padded batches. Other kernels that were tried have no benefit in
addition to this one (docs/research/log: "Ablation of the CPU kernels").
"""

from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable

from electra.model.cpu.library import find_kernel_problem
from electra.model.layers import attend
from electra.model.packing import Packed, Padded

LEVELS = 2**16
"""The kernel draws 16 bits for each attention probability, so dropout rates are multiples of 1 / LEVELS."""


def attend_by_kernel(
    qkv: Float[Tensor, "*tokens QKV"], layout: Padded | Packed, head_size: int, dropout: float
) -> Float[Tensor, "*tokens H"]:
    """Compute `electra.model.layers.attend` by the kernel if it supports the arguments, otherwise by PyTorch."""
    if not kernel_supports(qkv, layout):
        return attend(qkv, layout, head_size, dropout)
    heads = qkv.shape[-1] // (3 * head_size)
    dropped = min(round(dropout * LEVELS), LEVELS - 1)
    out = PackedAttention.apply(qkv.flatten(0, -2), layout.cu_seqlens(qkv), heads, dropped)
    return out.view(*qkv.shape[:-1], -1)


def kernel_supports(qkv: Tensor, layout: Padded | Packed) -> bool:
    """Whether the kernel supports these tensors. A module may have been unpickled on a machine without kernels."""
    return (
        qkv.device.type == "cpu"
        and qkv.dtype in (torch.float32, torch.bfloat16)
        and (isinstance(layout, Packed) or layout.mask is None)
        and not torch.compiler.is_compiling()
        and find_kernel_problem() is None
    )


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
        seed = int(torch.empty(1, dtype=torch.int64).random_(-(2**63), None)) if dropped else 0
        out, log_sum_exp = torch.ops.electra.attend(qkv, cu_seqlens, heads, dropped, seed)
        ctx.save_for_backward(qkv, cu_seqlens, log_sum_exp)
        ctx.arguments = heads, dropped, seed
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, "T H"]) -> tuple[Tensor, None, None, None]:
        d_qkv = torch.ops.electra.attend_backward(gradient.contiguous(), *ctx.saved_tensors, *ctx.arguments)
        return d_qkv, None, None, None
