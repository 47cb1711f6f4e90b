"""CPU-only code: attention of packed batches and dropout by C++ kernels.

The encoder does not depend on them: `enable_cpu_kernels` replaces the function that `SelfAttention` calls, and the dropout
modules. Without the kernels PyTorch computes the same, with other random numbers for dropout.
"""

from torch import nn

from electra.model.cpu.attention import attend_by_kernel
from electra.model.cpu.dropout import KernelDropout
from electra.model.cpu.library import find_kernel_problem
from electra.model.encoder import Encoder
from electra.model.layers import SelfAttention


def enable_cpu_kernels(module: nn.Module) -> str | None:
    """Use the C++ kernels in all encoders of `module`; return what prevents this, or None.

    They are compiled at the first use, in about ten seconds.
    """
    if (reason := find_kernel_problem()) is not None:
        return reason
    for part in list(module.modules()):
        for name, child in part.named_children():
            if type(child) is nn.Dropout:
                setattr(part, name, KernelDropout(child.p).train(child.training))
        if isinstance(part, SelfAttention):
            part.attend = attend_by_kernel
        elif isinstance(part, Encoder):
            part.min_padding = 0.0  # the kernel needs no copies for packed batches
    return None


def has_cpu_kernels(module: nn.Module) -> bool:
    """Whether an encoder of `module` uses the C++ kernel for attention."""
    return any(isinstance(part, SelfAttention) and part.attend is attend_by_kernel for part in module.modules())
