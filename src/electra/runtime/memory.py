"""Memory of the host and of the device."""

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

# Of glibc's malloc.h: how much at the end of the heap is given back; from which size on blocks are asked for one by one, and
# how many of them.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4


@contextmanager
def keep_freed_memory(device: torch.device) -> Iterator[None]:
    """Keep what is freed on a CPU for the next step, until the block ends, instead of giving it back and asking for it again.

    glibc gives large tensors back to the system, and each costs milliseconds of page faults when it is there again. Other C
    libraries are left as they are. It concerns the whole process.
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
        libc.mallopt(M_MMAP_THRESHOLD, 32 * 2**20)  # as far as glibc would have gone by itself
        libc.mallopt(M_TRIM_THRESHOLD, 64 * 2**20)
        libc.malloc_trim(0)


def move_to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host, on `device`: to a GPU from pinned memory, so that the host does not wait."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
