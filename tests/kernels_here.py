"""Whether this machine can be expected to compile the kernels."""

import os
import platform
import shutil

import torch

CANNOT_COMPILE: str | None = None
"""Why not; a compiler that is there and fails is a mistake of ours."""
if platform.system() != "Linux" or torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
    CANNOT_COMPILE = "kernels are for AVX2 and AVX-512 on Linux"
elif shutil.which(os.environ.get("CXX", "c++")) is None:
    CANNOT_COMPILE = "no C++ compiler"
