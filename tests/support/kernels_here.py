"""Whether this machine can be expected to compile the kernels."""

import os
import platform
import shlex
import shutil

import pytest
import torch

from electra.model.cpu.library import find_kernel_problem


def why_not_compiled() -> str | None:
    """Why a machine is not expected to compile them; a compiler that is there and fails is a mistake of ours."""
    if platform.system() != "Linux" or torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        return "kernels are for AVX2 and AVX-512 on Linux"
    try:
        compiler = shlex.split(os.environ.get("CXX", "c++"))
    except ValueError as error:
        return f"CXX: {error}"
    return None if compiler and shutil.which(compiler[0]) else "no C++ compiler"


CANNOT_COMPILE = why_not_compiled()
NEEDS_COMPILER = pytest.mark.skipif(CANNOT_COMPILE is not None, reason=str(CANNOT_COMPILE))


def require_kernels() -> None:
    """Skip what needs kernels where they do not compile; `tests/model/test_kernels.py` has a test that fails there."""
    reason = CANNOT_COMPILE or find_kernel_problem()
    if reason is not None:
        pytest.skip(f"no kernels: {reason}")
