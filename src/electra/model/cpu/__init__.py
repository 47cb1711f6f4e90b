"""CPU-only code: attention of packed batches by a C++ kernel.

The encoder does not depend on it: `enable_cpu_kernels` replaces the function that `SelfAttention` calls. Without the kernel,
PyTorch computes the same.
"""

from torch import nn

from electra.model.cpu.attention import attend_by_kernel
from electra.model.cpu.library import find_kernel_problem
from electra.model.encoder import Encoder
from electra.model.layers import SelfAttention


def enable_cpu_kernels(module: nn.Module) -> str | None:
    """Use the C++ kernel for self-attention in all encoders of `module`; return what prevents this, or None.

    The kernel is compiled at the first use, in about ten seconds.
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
    """Whether an encoder of `module` uses the C++ kernel for attention."""
    return any(isinstance(part, SelfAttention) and part.attend is attend_by_kernel for part in module.modules())
