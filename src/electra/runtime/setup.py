"""Runtime of a run: device, precision, threads and processes."""

import os
import platform
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

from electra.config.checks import check_range
from electra.errors import DeviceError, UsageError
from electra.external import one_line

MAX_PROCESSES = 1 << 20
MAX_THREADS = 4096


@dataclass(frozen=True)
class RuntimeConfig:
    """Device, precision, threads, kernels. They change results only by rounding and the random numbers of dropout."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device; auto uses a GPU if there is one."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of matrix products; weights are float32. auto is bfloat16 on a GPU that supports it."""
    threads: int | None = None
    """CPU threads per process; by default PyTorch's choice (all cores, or the value that torchrun sets)."""
    kernels: bool = True
    """On a CPU, compute attention and dropout with C++ kernels, which are compiled once, in about ten seconds, and stored
    with torch's extensions. They need g++ (or CXX) and AVX2 or AVX-512; otherwise PyTorch computes the same."""

    def __post_init__(self) -> None:
        if self.device not in ("auto", "cpu", "cuda"):  # Python callers bypass the parser
            raise UsageError(
                "unknown-choice",
                f"device {self.device!r}: expected auto, cpu or cuda; select a GPU with CUDA_VISIBLE_DEVICES",
            )
        check_range(self, "runtime", "threads", at_least=1, at_most=MAX_THREADS)


@dataclass(frozen=True)
class Runtime:
    """A resolved `RuntimeConfig`, and this process's rank among the processes that `torchrun` started."""

    device: torch.device
    dtype: torch.dtype
    rank: int = 0
    world_size: int = 1
    kernels: bool = False
    """Whether to compute attention and dropout by the CPU kernels."""

    @property
    def is_main(self) -> bool:
        """Whether this is the process that prepares, reports and saves."""
        return self.rank == 0

    def autocast(self) -> AbstractContextManager[None]:
        """Context manager in which matrix products use this runtime's precision."""
        return torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32)

    def synchronize(self) -> None:
        """Wait for the device, for time measurements."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def all_reduce_sum(self, tensor: Tensor) -> Tensor:
        """Sum over all processes, in place; no operation for a single process."""
        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def all_reduce_max(self, *values: float) -> tuple[float, ...]:
        """Maximum of each value over all processes, on all of them; for decisions that must be the same everywhere."""
        if self.world_size == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return tuple(tensor.tolist())

    def describe(self) -> str:
        """Describe hardware and versions in one line, for reports."""
        threads = torch.get_num_threads()
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else get_cpu_name()
        number = f" x {self.world_size}" if self.world_size > 1 else f", {threads} thread{'s' * (threads > 1)}"
        precision = str(self.dtype).removeprefix("torch.")
        if self.device.type == "cuda" and self.dtype == torch.float32:
            precision += " (products in TF32, if the GPU supports it)"
        return f"{name}{number}, {precision}, PyTorch {torch.__version__}, Python {platform.python_version()}"


@contextmanager
def start_runtime(config: RuntimeConfig) -> Iterator[Runtime]:
    """Resolve a configuration; with several processes of `torchrun`, join the process group and leave it at the end.

    Raises:
        DeviceError: a GPU is requested but not available.
        UsageError: the launch variables are invalid, or the processes cannot connect.
    """
    rank, world_size, local_rank = read_launch_variables()
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    has_gpu = torch.cuda.is_available()
    if config.device == "cuda" and not has_gpu:
        raise DeviceError("no-gpu", "--runtime.device is cuda, but PyTorch finds no GPU; use auto or cpu")
    use_gpu = has_gpu and config.device != "cpu"
    device = torch.device("cuda", local_rank) if use_gpu else torch.device("cpu")
    if use_gpu and (device.index or 0) >= torch.cuda.device_count():
        raise DeviceError(
            "too-few-gpus",
            f"process {rank} needs GPU {device.index}, but there are {torch.cuda.device_count()}; start fewer processes",
        )
    if use_gpu:
        torch.cuda.set_device(device)
        torch.set_float32_matmul_precision("high")
    dtype = choose_dtype(config, device)
    kernels = config.kernels and not use_gpu
    if world_size == 1:
        yield Runtime(device, dtype, kernels=kernels)
        return
    try:
        dist.init_process_group("cpu:gloo,cuda:nccl" if use_gpu else "gloo")
    except dist.DistError as error:
        raise UsageError(
            "no-connection", f"the {world_size} processes cannot connect to each other: {one_line(error, 300)}"
        ) from None
    try:
        yield Runtime(device, dtype, rank, world_size, kernels)
    finally:
        dist.destroy_process_group()


def read_launch_variables() -> tuple[int, int, int]:
    """Read rank, world size and local rank, which `torchrun` sets.

    Raises:
        UsageError: an environment variable is invalid, or one that several processes need is missing.
    """
    rank, world_size = read_launch_variable("RANK", 0), read_launch_variable("WORLD_SIZE", 1)
    local_rank = read_launch_variable("LOCAL_RANK", 0)
    if not rank < world_size <= MAX_PROCESSES:
        raise UsageError(
            "wrong-rank",
            f"RANK is {rank} and WORLD_SIZE is {world_size}, expected RANK < WORLD_SIZE <= {MAX_PROCESSES:,}; torchrun sets "
            "both: unset them to run one process",
        )
    needed = ("RANK", "MASTER_ADDR", "MASTER_PORT") if world_size > 1 else ()
    if missing := [name for name in needed if not os.environ.get(name)]:
        raise UsageError(
            "missing-variable",
            f"WORLD_SIZE is {world_size}, but {missing[0]} is not set; start several processes with torchrun, or unset "
            "WORLD_SIZE to run one",
        )
    if needed and not 0 < read_launch_variable("MASTER_PORT", 0) < 1 << 16:
        raise UsageError(
            "wrong-port", f"MASTER_PORT is {os.environ['MASTER_PORT']}, expected 1 to 65535; torchrun sets it"
        )
    return rank, world_size, local_rank


def read_launch_variable(name: str, default: int) -> int:
    """Read a non-negative integer from the environment. Raises UsageError."""
    value = os.environ.get(name, "").strip() or str(default)
    if not re.fullmatch(r"[0-9]{1,9}", value):
        raise UsageError(
            "not-integer",
            f"environment variable {name}={value[:60]!r}: expected an integer; torchrun sets it; unset it to run one process",
        )
    return int(value)


def choose_dtype(config: RuntimeConfig, device: torch.device) -> torch.dtype:
    """Choose the dtype of matrix products on `device`."""
    if config.precision == "auto":
        # Older GPUs store bfloat16 but emulate its products; PyTorch counts this as support by default.
        has_bfloat16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if has_bfloat16 else torch.float32
    return torch.bfloat16 if config.precision == "bfloat16" else torch.float32


def get_cpu_name() -> str:
    """Read the name of the processor, if the system provides it."""
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
