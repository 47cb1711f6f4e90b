"""Execution of a model in a runtime: enable CPU kernels, and describe hardware and kernels for reports."""

import logging

from torch import nn

from electra.model.cpu import enable_cpu_kernels, has_cpu_kernels
from electra.runtime.distributed import main_process_first
from electra.runtime.setup import Runtime

log = logging.getLogger(__name__)


def enable_kernels(module: nn.Module, runtime: Runtime) -> bool:
    """Use the CPU kernels in all encoders of `module`, if `runtime` requests them and they can be compiled."""
    if not runtime.kernels:
        return False
    with main_process_first(runtime):  # the main process compiles them
        reason = enable_cpu_kernels(module)
    if reason is not None:
        log.info(f"attention and dropout without C++ kernels ({reason})", extra={"code": "no-kernel"})
    return reason is None


def describe_execution(module: nn.Module, runtime: Runtime) -> str:
    """Describe hardware, precision, versions and kernels in one line, for reports."""
    return f"{runtime.describe()}, C++ kernels" if has_cpu_kernels(module) else runtime.describe()
