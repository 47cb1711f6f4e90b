"""Compilation, storage and loading of the kernels' library, with a toy library that compiles quickly in its place."""

import ctypes
import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support.attention import NEEDS_COMPILER
from support.errors import notices
from support.processes import give_away

from electra.model.cpu import library as kernel_library
from electra.model.cpu.library import (
    NoKernelsError,
    append_checksum,
    build_compiler_command,
    build_id,
    find_kernel_problem,
    format_library_name,
    kernels_compiled,
    load_kernels,
)

pytestmark = NEEDS_COMPILER
SOURCE = 'extern "C" const char* build() { return ELECTRA_BUILD_ID; }\n'


class Process:
    """Simulates processes that load the library of `SOURCE`, with folders of their own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sources, self.folder = folder / "sources", folder
        self.chosen, self.cache, self.temporary = folder / "chosen", folder / "cache", folder / "temporary"
        for path in (self.sources, self.chosen, self.temporary):
            path.mkdir(mode=0o700)
        (self.sources / "kernels.cpp").write_text(SOURCE)
        monkeypatch.setattr(kernel_library, "KERNELS", self.sources)
        monkeypatch.setattr(kernel_library, "get_registered_build", lambda: self.loaded)
        monkeypatch.setattr(ctypes, "CDLL", self.load)
        monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(self.chosen))
        monkeypatch.setenv("XDG_CACHE_HOME", str(self.cache))
        monkeypatch.setattr(tempfile, "tempdir", str(self.temporary))
        self.loaded: str | None = None
        self.compiled: list[Path] = []
        compile_to = kernel_library.compile_to
        monkeypatch.setattr(
            kernel_library, "compile_to", lambda to, *given: self.compiled.append(to) or compile_to(to, *given)
        )

    def load(self, path: str, real: Callable[[str], ctypes.CDLL] = ctypes.CDLL) -> None:
        """Load a copy under a unique name: the linker would load files of the same name only once."""
        assert path.startswith("/proc/self/fd/")
        with tempfile.NamedTemporaryFile(dir=self.folder) as file:
            file.write(Path(path).read_bytes())
            file.flush()
            build = real(file.name).build
        build.restype = ctypes.c_char_p
        self.loaded = build().decode()

    def start(self) -> list[Path]:
        """Load the kernels as a new process does; returns the libraries that it compiles."""
        self.loaded, self.compiled = None, []
        load_kernels()
        assert self.loaded == build_id(build_compiler_command())
        return self.compiled

    def library(self, folder: Path) -> Path:
        return folder / format_library_name(build_id(build_compiler_command()))


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Process:
    return Process(tmp_path, monkeypatch)


def test_kernels_are_compiled_once(process: Process, caplog: pytest.LogCaptureFixture) -> None:
    library = process.library(process.chosen / "electra")
    assert not kernels_compiled()
    assert process.start() == [library]
    (line,) = notices(caplog, "compiling")
    assert str(library.parent) in line
    assert kernels_compiled()
    caplog.clear()
    assert process.start() == []
    load_kernels()
    assert sorted(path.name for path in library.parent.iterdir()) == [library.name, "lock"]
    assert not caplog.records


def test_library_name_depends_on_all_inputs_of_the_build(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    builds = {build_id(build_compiler_command())}
    monkeypatch.setenv("CXX", "c++ -g0")
    builds.add(build_id(build_compiler_command()))
    monkeypatch.setattr(kernel_library.torch, "__version__", "2.99")
    builds.add(build_id(build_compiler_command()))
    (process.sources / "more.h").touch()
    builds.add(build_id(build_compiler_command()))
    assert len(builds) == 4


def flip_bit(library: Path) -> None:
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 1
    library.write_bytes(content)


def replace_by_another_build(library: Path) -> None:
    """Replace the library by an intact one of another build."""
    library.write_bytes(append_checksum(library.read_bytes()[:-32], "0123456789abcdef"))


def replace_by_link(library: Path) -> None:
    library.rename(library.with_suffix(".moved"))
    library.symlink_to(library.with_suffix(".moved"))


def replace_by_pipe(library: Path) -> None:
    library.unlink()
    os.mkfifo(library)


def replace_by_unloadable(library: Path) -> None:
    """Replace the library by one with a valid checksum that the linker cannot load."""
    library.write_bytes(append_checksum(b"\x7fELF and no more", build_id(build_compiler_command())))


def make_unreadable(library: Path) -> None:
    library.chmod(0o000)
    if os.access(library, os.R_OK):  # root reads everything
        library.chmod(0o600)
        flip_bit(library)


def replace_by_hard_link(library: Path) -> None:
    """Replace the library by a hard link to a file that is not a library."""
    (library.parent / "other").write_text("private")
    library.unlink()
    library.hardlink_to(library.parent / "other")


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        flip_bit,
        lambda library: library.write_bytes(library.read_bytes()[:-1]),
        lambda library: library.write_bytes(library.read_bytes()[:-32]),
        lambda library: library.write_bytes(b""),
        lambda library: library.chmod(0o666),
        make_unreadable,
        replace_by_another_build,
        replace_by_unloadable,
        replace_by_link,
        replace_by_pipe,
        replace_by_hard_link,
    ],
    ids=[
        "a bit",
        "cut",
        "no checksum",
        "empty",
        "writable by others",
        "unreadable",
        "another build",
        "unloadable",
        "symbolic link",
        "pipe",
        "hard link",
    ],
)
def test_changed_library_is_compiled_again(process: Process, damage: Callable[[Path], object]) -> None:
    [library] = process.start()
    whole = library.read_bytes()
    damage(library)
    assert process.start() == [library]
    assert library.read_bytes() == whole
    assert not library.is_symlink()
    assert process.start() == []


@pytest.mark.slow
def test_library_of_another_user_is_compiled_again(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder that only this user and root can write to."""
    [library] = process.start()
    foreign = library.stat().st_ino
    monkeypatch.setattr(
        kernel_library,
        "find_ownership_problem",
        lambda status: "belongs to user 12345" if status.st_ino == foreign else None,
    )
    assert process.start() == [library]
    assert library.stat().st_ino != foreign
    assert process.start() == []


def test_library_is_used_again_without_a_umask(process: Process) -> None:
    before = os.umask(0)
    try:
        process.start()
    finally:
        os.umask(before)
    assert process.start() == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", [0o777, 0o1777])
@pytest.mark.parametrize("part", ["chosen", "electra"])
def test_folder_that_others_can_write_is_not_used(
    process: Process, part: str, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Libraries in it are not loaded: kernels are compiled into the user's cache, and a notice names the folder."""
    [planted] = process.start()
    caplog.clear()
    folder = process.chosen if part == "chosen" else planted.parent
    folder.chmod(mode)
    refused = not (part == "chosen" and mode == 0o1777)  # the sticky bit protects the user's own folder in it
    assert kernels_compiled() != refused
    before = planted.stat()
    expected = process.library(process.cache / "torch_extensions/electra")
    assert process.start() == ([expected] if refused else [])
    assert planted.stat() == before
    if refused:
        (line,) = notices(caplog, "compiling")
        assert str(expected.parent) in line
        assert f"chmod go-w {folder})" in line
        assert kernels_compiled()
        assert process.start() == []


def test_temporary_folder_is_the_last_choice(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no other folder can be used: a private folder among temporary files, unless that name is taken."""
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR")
    process.cache.touch()
    process.temporary.chmod(0o1777)
    private = process.temporary / f"electra-{os.geteuid()}"
    private.symlink_to(process.chosen)
    with pytest.raises(NoKernelsError) as raised:
        process.start()
    assert str(raised.value) == (
        "no folder that only this user can write to: "
        f"{process.cache} is a file, expected a folder; {private} is a symbolic link, expected a folder"
    )
    assert not any(process.chosen.iterdir())
    private.unlink()
    assert process.start() == [process.library(private)]
    assert process.start() == []
    process.temporary.chmod(0o777)
    with pytest.raises(NoKernelsError, match=f"{process.temporary} is writable by other users"):
        process.start()


def test_folder_of_another_user_is_not_used(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    process.start()
    give_away(process.chosen / "electra", monkeypatch)
    if os.geteuid() == 0:
        assert process.start() == [process.library(process.cache / "torch_extensions/electra")]
    else:
        with pytest.raises(NoKernelsError, match="belongs to user"):
            process.start()


def test_checked_file_is_the_loaded_one(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if another file replaces the library between the check and the loading."""
    [library] = process.start()
    load = ctypes.CDLL

    def exchange(path: str) -> None:
        (library.parent / "evil").write_bytes(b"evil")
        (library.parent / "evil").replace(library)
        load(path)

    monkeypatch.setattr(ctypes, "CDLL", exchange)
    assert process.start() == []
    assert library.read_bytes() == b"evil"


@pytest.mark.slow
def test_files_of_killed_builds_are_removed(
    process: Process, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are kept while another process holds the lock; this process compiles after a timeout."""
    folder = process.chosen / "electra"
    (folder / "tmpkilled/deeper").mkdir(parents=True)
    folder.chmod(0o700)
    monkeypatch.setattr(kernel_library, "LOCK_TIMEOUT", 0.3)
    with (folder / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert process.start() == [process.library(folder)]
        assert (folder / "tmpkilled").exists()
    assert len(notices(caplog, "waiting-for-compiler")) == 1
    process.library(folder).unlink()
    process.start()
    assert not (folder / "tmpkilled").exists()


def test_file_system_without_locks(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", fail)
    (process.chosen / "electra/tmpother").mkdir(parents=True)
    (process.chosen / "electra").chmod(0o700)
    assert len(process.start()) == 1
    assert process.start() == []
    assert (process.chosen / "electra/tmpother").exists()


BUILDING = """
import sys
from pathlib import Path
from electra.model.cpu import library as k

k.KERNELS = Path(sys.argv[1])
command = k.build_compiler_command()
build = k.build_id(command)
print("ready", flush=True)
sys.stdin.readline()
assert k.is_intact(k.compile_kernels(build, command), build)
"""


@pytest.mark.slow
def test_two_processes_compile_once(process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process compiles; the other waits for it and uses the same library."""
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\necho once >> {tmp_path}/compiled\nsleep 1\nexec c++ "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    command = [sys.executable, "-c", BUILDING, str(process.sources)]
    builders = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for builder in builders:
        assert builder.stdout.readline() == "ready\n"
    for builder in builders:
        builder.stdin.write("go\n")
        builder.stdin.flush()
    for builder in builders:
        _, errors = builder.communicate(timeout=300)
        assert builder.returncode == 0, errors
    assert (tmp_path / "compiled").read_text() == "once\n"


ANOTHER_LIBRARY = """
import sys
from pathlib import Path

import torch
from electra.model.cpu import library as kernel_library
from electra.console import show_log
from electra.execution import enable_kernels
from electra.model.encoder import Encoder, EncoderConfig
from electra.runtime.setup import Runtime

show_log()
kernel_library.KERNELS = Path(sys.argv[1])
if sys.argv[2] == "registered":
    library = torch.library.Library("electra", "DEF")
    library.define(sys.argv[3])
network = Encoder(EncoderConfig(50, 16, 32, 1, 2, 64, 40))
assert not enable_kernels(network, Runtime(torch.device("cpu"), torch.float32, kernels=True))
network(torch.zeros(1, 4, dtype=torch.long), torch.zeros(1, 4, dtype=torch.long)).sum().backward()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "operator", ["", "attend(Tensor x) -> Tensor", "build_id(Tensor x) -> str", "build_id() -> str"]
)
def test_another_library_falls_back_to_pytorch(process: Process, operator: str) -> None:
    """One that is loaded without an error, and does not register the operators; and operators of that name from elsewhere."""
    build = build_id(build_compiler_command())
    words = ["registered", operator] if operator else ["loaded"]
    command = [sys.executable, "-c", ANOTHER_LIBRARY, str(process.sources), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"COLUMNS": "1000"})
    assert done.returncode == 0, done.stderr
    *_, line = done.stdout.splitlines()
    library = process.library(process.chosen / "electra")
    assert line == (
        f"· attention and dropout without C++ kernels (expected build {build}, got an unknown build from torch.ops.electra: "
        "another library in this process has registered that name)"
        if operator
        else f"· attention and dropout without C++ kernels (expected build {build}, got none from {library}: "
        f"remove it and restart (rm {library}))"
    )


def test_errors_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that fails is not started again by every run of a grid."""
    tried = []

    def fail() -> None:
        tried.append(1)
        raise NoKernelsError("no luck")

    monkeypatch.setattr(kernel_library, "load_kernels", fail)
    find_kernel_problem.cache_clear()
    try:
        assert [find_kernel_problem(), find_kernel_problem()] == ["no luck", "no luck"]
        assert len(tried) == 1
    finally:
        find_kernel_problem.cache_clear()
