"""What exists for the CPU alone: attention of packed batches by a C++ kernel.

The encoder does not know of it: `enable_cpu_kernels` replaces the function that `SelfAttention` calls. Without the kernel
PyTorch computes the same.
"""

from torch import nn

from electra.model.cpu.attention import attend_by_kernel
from electra.model.cpu.library import find_kernel_problem
from electra.model.encoder import Encoder
from electra.model.layers import SelfAttention


def enable_cpu_kernels(module: nn.Module) -> str | None:
    """Compute self-attention in all encoders of `module` by the C++ kernel; returns what prevents that, or None.

    The kernel is compiled the first time, in some ten seconds.
    """
    if (reason := find_kernel_problem()) is not None:
        return reason
    for part in module.modules():
        if isinstance(part, SelfAttention):
            part.attend = attend_by_kernel
        elif isinstance(part, Encoder):
            part.min_padding = 0.0  # the kernel needs no copies for packed batches
    return None


def has_cpu_kernels(module: nn.Module) -> bool:
    """Whether an encoder of `module` computes attention by the C++ kernel."""
    return any(isinstance(part, SelfAttention) and part.attend is attend_by_kernel for part in module.modules())
