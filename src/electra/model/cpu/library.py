"""The library of compiled C++ kernels (`kernels/`): how it is compiled, where it is kept, what is checked before it is loaded.

Loading a library runs its code, so it is loaded only from a folder in which nobody else can write, and only if it is, byte
for byte, what a build left there. Without a compiler or such a folder, PyTorch computes the same.
"""

import ctypes
import fcntl
import hashlib
import logging
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import torch

from electra.model.cpu.private_folder import find_ownership_problem, find_privacy_problem, make_private

log = logging.getLogger(__name__)


KERNELS = Path(__file__).parent / "kernels"
AVX512 = ["-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma", "-mprefer-vector-width=512"]
INSTRUCTIONS = {"AVX512": AVX512, "AVX2": ["-mavx2", "-mfma", "-mf16c"]}
"""What a compiler may use, by what torch's own kernels use here; what is compiled may lie in a folder of several machines."""
LOCK_TIMEOUT = 120.0
"""Seconds to wait for another process that compiles the same; then it has probably stopped, and is not waited for."""


class NoKernelsError(Exception):
    """The kernels cannot be had here; the message says why."""


class DamagedError(Exception):
    """A file is not a library that this build left."""


@cache
def find_kernel_problem() -> str | None:
    """What prevents kernels in this process; None where `torch.ops.electra` has them, compiled now if they never were."""
    try:
        load_kernels()
    except (NoKernelsError, DamagedError, OSError) as error:
        return str(error)
    return None


def kernels_compiled() -> bool:
    """Whether they were compiled before, and nobody has to wait for them."""
    try:
        return find_library(build_id(build_compiler_command())) is not None
    except (NoKernelsError, OSError):
        return False


def load_kernels() -> None:
    """Have `torch.ops.electra`, of this build.

    Raises:
        NoKernelsError: another kind of processor, no compiler, one that fails, no private folder, or another library.
        DamagedError: what was compiled just now is changed already.
        OSError: what is compiled cannot be written or loaded.
    """
    command = build_compiler_command()
    build = build_id(command)
    if get_registered_build() is None:  # registering operators twice would end the process
        library = find_library(build)
        try:
            if library is None:
                raise DamagedError("there is none yet")
            load_library(library, build)
        except (DamagedError, OSError) as error:
            if library is not None and isinstance(error, OSError):  # of another system that shares the folder
                with suppress(OSError):
                    library.unlink()
            library = compile_kernels(build, command)
            load_library(library, build)
        where = f"{library}: remove it and start again (rm {shlex.quote(str(library))})"
    else:
        where = "torch.ops.electra: another library in this process has registered that name"
    if (found := get_registered_build()) != build:
        raise NoKernelsError(f"build {build} was expected, but {found or 'none'} is in {where}")


def get_registered_build() -> str | None:
    """The build of the kernels that this process has loaded; None where there are none."""
    try:
        return str(torch.ops.electra.build_id())
    except AttributeError:
        return "an unknown one" if hasattr(torch.ops.electra, "attend") else None
    except (RuntimeError, TypeError):  # an operator of that name with other arguments, or without an implementation
        return "an unknown one"


def build_compiler_command() -> list[str]:
    """The compiler and its options, without paths.

    Raises:
        NoKernelsError: as `load_kernels` says.
    """
    from torch.utils import cpp_extension  # takes a while, and only who compiles wants it

    capability = torch.backends.cpu.get_cpu_capability()
    if platform.system() != "Linux" or capability not in INSTRUCTIONS:
        raise NoKernelsError(f"they are for AVX2 and AVX-512 on Linux, not {platform.machine()} on {platform.system()}")
    try:
        compiler = shlex.split(cpp_extension.get_cxx_compiler())
    except ValueError as error:
        raise NoKernelsError(f"CXX: {error}") from None
    if not compiler or shutil.which(compiler[0]) is None:
        raise NoKernelsError(f"no C++ compiler {' '.join(compiler)}; install g++, or name one by CXX")
    flags = ["-O3", "-std=c++20", "-fPIC", "-shared", "-fopenmp", "-mtune=native", *INSTRUCTIONS[capability]]
    return [*compiler, *flags, f"-DCPU_CAPABILITY={capability}", f"-DCPU_CAPABILITY_{capability}"]


def build_id(command: list[str]) -> str:
    """A name for the library that this command makes of the sources here: a hash of all that it is made from."""
    sources = [path.read_text() for path in sorted(KERNELS.iterdir())]
    made_from = sources, command, torch.__version__, platform.libc_ver()
    return hashlib.sha256(repr(made_from).encode()).hexdigest()[:16]


def list_library_folders() -> list[Path]:
    """Folders for the library, in order of preference: beside other extensions of torch, or else among temporary files."""
    from torch.utils import cpp_extension

    chosen = os.environ.get("TORCH_EXTENSIONS_DIR")
    roots = [*([chosen] if chosen else []), cpp_extension.get_default_build_root()]
    temporary = Path(os.path.realpath(tempfile.gettempdir())) / f"electra-{os.geteuid()}"
    return [*(Path(os.path.realpath(root)) / "electra" for root in roots), temporary]


def format_library_name(build: str) -> str:
    return f"attention-{build}.so"


def find_library(build: str) -> Path | None:
    """The library of an earlier build, in the first private folder that has one."""
    for folder in list_library_folders():
        library = folder / format_library_name(build)
        if os.path.lexists(library) and find_privacy_problem(folder) is None:
            return library
    return None


def load_library(library: Path, build: str) -> None:
    """Load a library, if it is what a build of this name left.

    Raises:
        DamagedError: it is something else.
        OSError: it cannot be read or loaded.
    """
    # By its descriptor: another file may have its name since it was read. Who could change it in place is its user, or root. A
    # copy in memory alone would rule out even that, but is what intrusion detection looks for, and circumvents a file system
    # without programs (noexec). `torch.ops.load_library` would resolve the descriptor to a path again.
    with open_library(library, build) as file:
        descriptor = os.dup(file)
    path = f"/proc/self/fd/{descriptor}"
    try:
        ctypes.CDLL(path)  # the descriptor stays open: the linker would take another file of this path for this library
    except OSError as error:
        os.close(descriptor)
        raise OSError(str(error).replace(path, str(library))) from None


@contextmanager
def open_library(library: Path, build: str) -> Iterator[int]:
    """The descriptor of a library that a build of this name left, for reading. Raises as `load_library`."""
    descriptor = os.open(library, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or find_ownership_problem(status):
            raise DamagedError(f"{library} is not a file of this user alone")
        content = file.read()
        if content != append_checksum(content[: -hashlib.sha256().digest_size], build):
            raise DamagedError(f"{library} is not what was compiled")
        yield descriptor


def append_checksum(library: bytes, build: str) -> bytes:
    """A library followed by a checksum of its build's name and all its bytes; loaders ignore what follows a library.

    In a file of its own the checksum could be that of a library which another process has just replaced.
    """
    return library + hashlib.sha256(build.encode() + library).digest()


def compile_kernels(build: str, command: list[str]) -> Path:
    """Compile into the first private folder; another process that compiles the same there is waited for.

    Raises:
        NoKernelsError: there is no such folder, or the compiler fails.
    """
    refused: list[str] = []
    for folder in list_library_folders():
        reason = make_private(folder)
        if reason is None:
            break
        refused.append(reason)
    else:
        raise NoKernelsError(f"no folder that only this user can write to: {'; '.join(refused)}")
    library = folder / format_library_name(build)
    with lock_folder(folder) as alone:
        if alone:
            for left_over in folder.glob("tmp*"):  # of builds that were killed
                shutil.rmtree(left_over, ignore_errors=True)
            if is_intact(library, build):
                return library
        elsewhere = f", as {'; '.join(refused)}" if refused else ""
        log.info(f"compiling C++ kernels for this CPU (once, in some ten seconds; kept in {folder}{elsewhere})")
        compile_to(library, build, command)
    return library


def is_intact(library: Path, build: str) -> bool:
    try:
        with open_library(library, build):
            return True
    except (DamagedError, OSError):
        return False


@contextmanager
def lock_folder(folder: Path) -> Iterator[bool]:
    """Whether this process is the only one that compiles into a folder; waits until it is, but not for ever.

    Where it is not, or the file system has no locks, compiling is right all the same, and done twice.
    """
    with (folder / "lock").open("w") as file:
        alone, waiting, until = False, False, time.monotonic() + LOCK_TIMEOUT
        while not alone and time.monotonic() < until:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                alone = True
            except BlockingIOError:
                if not waiting:
                    waiting = True
                    log.info(
                        f"waiting for another process that compiles C++ kernels (at most {LOCK_TIMEOUT:.0f} seconds)"
                    )
                time.sleep(0.1)
            except OSError:
                break
        yield alone


def compile_to(library: Path, build: str, command: list[str]) -> None:
    """Compile; the file is whole or not there, also where several processes do this."""
    from torch.utils import cpp_extension

    paths = [f"-isystem{path}" for path in cpp_extension.include_paths()] + [str(KERNELS / "kernels.cpp")]
    paths += [*(f"-L{path}" for path in cpp_extension.library_paths()), "-lc10", "-ltorch_cpu"]
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        compiled = Path(folder) / library.name
        whole = [*command, f'-DELECTRA_BUILD_ID="{build}"', *paths, "-o", str(compiled)]
        done = subprocess.run(whole, capture_output=True, text=True, check=False)
        if done.returncode:
            wrong = [line.strip() for line in done.stderr.splitlines() if "error:" in line or "undefined" in line]
            raise NoKernelsError(f"{command[0]}: {wrong[0] if wrong else f'exit status {done.returncode}'}")
        compiled.write_bytes(append_checksum(compiled.read_bytes(), build))
        compiled.chmod(0o644)  # whatever new files get here: one that others may write to would not be loaded
        compiled.replace(library)
