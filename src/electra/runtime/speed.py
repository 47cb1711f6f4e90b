"""Speed of the device, the reference for model FLOP utilization."""

import time

import torch

from electra.runtime.setup import Runtime


def measure_matmul_rate(runtime: Runtime, seconds: float = 0.3) -> float:
    """Measure FLOP/s of a large square matrix product on this device, the reference for model FLOP utilization."""
    size = 8192 if runtime.device.type == "cuda" else 1024
    # Random numbers: constant ones draw less power on a GPU, which then runs faster.
    a = torch.randn(size, size, device=runtime.device, dtype=runtime.dtype)
    product = torch.mm(a, a)
    runtime.synchronize()
    start, products = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < seconds:
        torch.mm(a, a, out=product)
        runtime.synchronize()
        products += 1
    return products * 2 * size**3 / elapsed
