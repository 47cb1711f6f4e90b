"""Which runtimes use the C++ kernels, and the notice if they cannot be used."""

import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from support.attention import NEEDS_COMPILER
from support.errors import check_message, notices

from electra.execution import enable_kernels
from electra.model import cpu
from electra.model.cpu import has_cpu_kernels
from electra.model.cpu import library as kernel_library
from electra.model.cpu.library import find_kernel_problem, kernels_compiled
from electra.model.encoder import Encoder, EncoderConfig
from electra.runtime.setup import Runtime, RuntimeConfig, start_runtime

WITH_KERNELS = Runtime(torch.device("cpu"), torch.float32, kernels=True)


@NEEDS_COMPILER
def test_kernels_compile_on_this_machine() -> None:
    """Otherwise the tests of the kernels' results are skipped; this one fails with the reason."""
    assert find_kernel_problem() is None


def test_runtimes_that_use_kernels() -> None:
    def uses_kernels(**options: object) -> bool:
        with start_runtime(RuntimeConfig(device="cpu", **options)) as runtime:
            return runtime.kernels

    assert uses_kernels()
    assert uses_kernels(precision="bfloat16")
    assert not uses_kernels(kernels=False)
    network = Encoder(EncoderConfig(50, 16, 32, 1, 2, 64, 40))
    assert not enable_kernels(network, Runtime(torch.device("cpu"), torch.float32))
    assert not has_cpu_kernels(network)


@pytest.fixture
def enable_in_vain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Callable[[], str]:
    """A function that calls `enable_kernels` where no library is compiled yet, and returns the notice that it fails with."""
    monkeypatch.setattr(cpu, "find_kernel_problem", find_kernel_problem.__wrapped__)
    monkeypatch.setattr(kernel_library, "get_registered_build", lambda: None)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))

    def enable() -> str:
        caplog.clear()
        network = Encoder(EncoderConfig(50, 16, 32, 1, 2, 64, 40))
        assert not enable_kernels(network, WITH_KERNELS)
        assert not has_cpu_kernels(network)
        (line,) = notices(caplog, "no-kernel")
        return line

    return enable


def test_unsupported_processor_is_reported(enable_in_vain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    check_message(enable_in_vain(), "AVX2", "AVX-512", platform.machine())
    assert not kernels_compiled()


@NEEDS_COMPILER
def test_missing_compiler_is_reported(enable_in_vain, monkeypatch: pytest.MonkeyPatch) -> None:
    for compiler, values in (
        ("/nowhere/c++", ["/nowhere/c++", "g++", "CXX"]),
        ("", ["g++", "CXX"]),
        ('g++ "', ["CXX"]),
    ):
        monkeypatch.setenv("CXX", compiler)
        check_message(enable_in_vain(), *values)
        assert not kernels_compiled()


@NEEDS_COMPILER
def test_compiler_error_is_reported(enable_in_vain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "false")
    check_message(enable_in_vain(), "false", 1)
    monkeypatch.delenv("CXX")
    broken = tmp_path / "broken"
    broken.mkdir()
    monkeypatch.setattr(kernel_library, "KERNELS", broken)
    (broken / "kernels.cpp").write_text("int wrong")
    check_message(enable_in_vain(), broken / "kernels.cpp")
    (broken / "kernels.cpp").write_text("void nowhere(); struct Now { Now() { nowhere(); } } now;")
    check_message(enable_in_vain(), "nowhere")
    assert not [path for path in (tmp_path / "electra").iterdir() if path.is_dir()], "temporary folders are removed"


@NEEDS_COMPILER
def test_cache_that_cannot_be_written(enable_in_vain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for name in ("TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    message = enable_in_vain()
    assert message.count(str(tmp_path / "file")) == 3, "a reason for each folder"


FAULTS = """
import resource, sys
import torch
from electra.runtime.memory import keep_freed_memory

def faults():
    for step in range(30):
        if step == 10:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        torch.ones(20_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

outside = faults()
with keep_freed_memory(torch.device("cpu")):
    inside = faults()
    kept = resident()
print(outside, inside, kept - resident())
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_is_kept_until_the_block_ends() -> None:
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    outside, inside, given_back = map(int, done.stdout.split())
    assert 10 * inside < outside
    assert given_back > 50e6
