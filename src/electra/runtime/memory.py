"""Memory of the host, and transfers to the device."""

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

# From glibc's malloc.h: free memory at the end of the heap that is returned to the system; minimum size of blocks that are
# allocated by mmap; maximum number of such blocks.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4


@contextmanager
def keep_freed_memory(device: torch.device) -> Iterator[None]:
    """Keep freed CPU memory in the process until the block ends, instead of returning it to the system at every step.

    glibc returns the memory of large tensors to the system, and each later allocation costs milliseconds of page faults. The
    setting affects the whole process; with other C libraries it does nothing.
    """
    if device.type != "cpu" or platform.libc_ver()[0] != "glibc":
        yield
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(M_TRIM_THRESHOLD, -1)
    libc.mallopt(M_MMAP_MAX, 0)
    try:
        yield
    finally:
        libc.mallopt(M_MMAP_MAX, 65_536)
        libc.mallopt(M_MMAP_THRESHOLD, 32 * 2**20)  # the maximum of glibc's dynamic threshold
        libc.mallopt(M_TRIM_THRESHOLD, 64 * 2**20)
        libc.malloc_trim(0)


def move_to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a host tensor to `device`; to a GPU through pinned memory, so that the copy is asynchronous."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
