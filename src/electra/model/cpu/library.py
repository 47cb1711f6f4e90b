"""Compile, store, check and load the library of C++ kernels (`kernels/`).

Loading a library runs its code, so it is loaded only from a folder that other users cannot write to, and only if it is
unchanged since it was built. Without a compiler or such a folder, PyTorch computes the same.
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
"""Compiler flags by the CPU capability that torch detects; not -march=native, as machines may share the folder."""
LOCK_TIMEOUT = 120.0
"""Seconds to wait for another process that compiles the kernels; after that it has probably stopped."""


class NoKernelsError(Exception):
    """The kernels are not available; the message gives the reason."""


class DamagedError(Exception):
    """A file is not the library that this build wrote."""


@cache
def find_kernel_problem() -> str | None:
    """Load the kernels, compiling them if necessary; return what prevents this, or None."""
    try:
        load_kernels()
    except (NoKernelsError, DamagedError, OSError) as error:
        return str(error)
    return None


def kernels_compiled() -> bool:
    """Whether the kernels are already compiled, so that loading them takes no time."""
    try:
        return find_library(build_id(build_compiler_command())) is not None
    except (NoKernelsError, OSError):
        return False


def load_kernels() -> None:
    """Register `torch.ops.electra` of this build.

    Raises:
        NoKernelsError: an unsupported processor, no compiler, a compiler error, no private folder, or another library.
        DamagedError: the library changed after it was compiled.
        OSError: the library cannot be written or loaded.
    """
    command = build_compiler_command()
    build = build_id(command)
    if get_registered_build() is None:  # registering operators twice would abort the process
        library = find_library(build)
        try:
            if library is None:
                raise DamagedError("not compiled yet")
            load_library(library, build)
        except (DamagedError, OSError) as error:
            if library is not None and isinstance(error, OSError):  # from another system that shares the folder
                with suppress(OSError):
                    library.unlink()
            library = compile_kernels(build, command)
            load_library(library, build)
        where = f"{library}: remove it and restart (rm {shlex.quote(str(library))})"
    else:
        where = "torch.ops.electra: another library in this process has registered that name"
    if (found := get_registered_build()) != build:
        raise NoKernelsError(f"expected build {build}, got {found or 'none'} from {where}")


def get_registered_build() -> str | None:
    """Return the build id of the loaded kernels; None if none are loaded."""
    try:
        return str(torch.ops.electra.build_id())
    except AttributeError:
        return "an unknown build" if hasattr(torch.ops.electra, "attend") else None
    except (RuntimeError, TypeError):  # an operator of that name with other arguments, or without implementation
        return "an unknown build"


def build_compiler_command() -> list[str]:
    """Build the compiler command and its options, without paths.

    Raises:
        NoKernelsError: an unsupported processor, or no compiler.
    """
    from torch.utils import cpp_extension  # slow to import, and needed only here

    capability = torch.backends.cpu.get_cpu_capability()
    if platform.system() != "Linux" or capability not in INSTRUCTIONS:
        raise NoKernelsError(f"they need AVX2 or AVX-512 on Linux, got {platform.machine()} on {platform.system()}")
    try:
        compiler = shlex.split(cpp_extension.get_cxx_compiler())
    except ValueError as error:
        raise NoKernelsError(f"CXX: {error}") from None
    if not compiler or shutil.which(compiler[0]) is None:
        raise NoKernelsError(f"no C++ compiler {' '.join(compiler)}; install g++, or set CXX")
    flags = ["-O3", "-std=c++20", "-fPIC", "-shared", "-fopenmp", "-mtune=native", *INSTRUCTIONS[capability]]
    return [*compiler, *flags, f"-DCPU_CAPABILITY={capability}", f"-DCPU_CAPABILITY_{capability}"]


def build_id(command: list[str]) -> str:
    """Hash everything that the library depends on: sources, command, torch and libc."""
    sources = [path.read_text() for path in sorted(KERNELS.iterdir())]
    inputs = sources, command, torch.__version__, platform.libc_ver()
    return hashlib.sha256(repr(inputs).encode()).hexdigest()[:16]


def list_library_folders() -> list[Path]:
    """List folders for the library in order of preference: that of torch's extensions, then a temporary one."""
    from torch.utils import cpp_extension

    chosen = os.environ.get("TORCH_EXTENSIONS_DIR")
    roots = [*([chosen] if chosen else []), cpp_extension.get_default_build_root()]
    temporary = Path(os.path.realpath(tempfile.gettempdir())) / f"electra-{os.geteuid()}"
    return [*(Path(os.path.realpath(root)) / "electra" for root in roots), temporary]


def format_library_name(build: str) -> str:
    return f"attention-{build}.so"


def find_library(build: str) -> Path | None:
    """Find the library of an earlier build in the first private folder that has one."""
    for folder in list_library_folders():
        library = folder / format_library_name(build)
        if os.path.lexists(library) and find_privacy_problem(folder) is None:
            return library
    return None


def load_library(library: Path, build: str) -> None:
    """Load a library if it is unchanged since it was built.

    Raises:
        DamagedError: it is not what this build wrote.
        OSError: it cannot be read or loaded.
    """
    # Load by descriptor: the file of this name may have been replaced since it was checked. Only its owner and root can change
    # it in place. A copy in memory would exclude even that, but looks like an intrusion and circumvents noexec file systems.
    # `torch.ops.load_library` would resolve the descriptor to a path again.
    with open_library(library, build) as file:
        descriptor = os.dup(file)
    path = f"/proc/self/fd/{descriptor}"
    try:
        ctypes.CDLL(
            path
        )  # the descriptor stays open: the linker identifies libraries by path, which must not be reused
    except OSError as error:
        os.close(descriptor)
        raise OSError(str(error).replace(path, str(library))) from None


@contextmanager
def open_library(library: Path, build: str) -> Iterator[int]:
    """Open a library for reading, check it, and yield its descriptor. Raises as `load_library`."""
    descriptor = os.open(library, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or find_ownership_problem(status):
            raise DamagedError(f"{library} is not a regular file that only this user can write")
        content = file.read()
        if content != append_checksum(content[: -hashlib.sha256().digest_size], build):
            raise DamagedError(f"{library} has changed since it was compiled")
        yield descriptor


def append_checksum(library: bytes, build: str) -> bytes:
    """Append a checksum of the build id and the library; loaders ignore bytes after a library.

    In a separate file, the checksum could belong to a library that another process has just replaced.
    """
    return library + hashlib.sha256(build.encode() + library).digest()


def compile_kernels(build: str, command: list[str]) -> Path:
    """Compile into the first private folder; wait for another process that compiles there.

    Raises:
        NoKernelsError: there is no private folder, or the compiler fails.
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
    with lock_folder(folder) as locked:
        if locked:
            for leftover in folder.glob("tmp*"):  # from builds that were killed
                shutil.rmtree(leftover, ignore_errors=True)
            if is_intact(library, build):
                return library
        reasons = f", because {'; '.join(refused)}" if refused else ""
        log.info(
            f"compiling C++ kernels for this CPU (once, in about ten seconds; stored in {folder}{reasons})",
            extra={"code": "compiling"},
        )
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
    """Lock a folder for compiling, waiting up to LOCK_TIMEOUT; yield whether it is locked.

    Without the lock, after the timeout or on a file system without locks, compiling is still correct but may be done twice.
    """
    with (folder / "lock").open("w") as file:
        locked, waiting, end = False, False, time.monotonic() + LOCK_TIMEOUT
        while not locked and time.monotonic() < end:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locked = True
            except BlockingIOError:
                if not waiting:
                    waiting = True
                    log.info(
                        f"waiting for another process that compiles C++ kernels (at most {LOCK_TIMEOUT:.0f} seconds)",
                        extra={"code": "waiting-for-compiler"},
                    )
                time.sleep(0.1)
            except OSError:
                break
        yield locked


def compile_to(library: Path, build: str, command: list[str]) -> None:
    """Compile atomically, also if several processes do this."""
    from torch.utils import cpp_extension

    paths = [f"-isystem{path}" for path in cpp_extension.include_paths()] + [str(KERNELS / "kernels.cpp")]
    paths += [*(f"-L{path}" for path in cpp_extension.library_paths()), "-lc10", "-ltorch_cpu"]
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        compiled = Path(folder) / library.name
        arguments = [*command, f'-DELECTRA_BUILD_ID="{build}"', *paths, "-o", str(compiled)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False)
        if done.returncode:
            errors = [line.strip() for line in done.stderr.splitlines() if "error:" in line or "undefined" in line]
            raise NoKernelsError(f"{command[0]}: {errors[0] if errors else f'exit status {done.returncode}'}")
        compiled.write_bytes(append_checksum(compiled.read_bytes(), build))
        compiled.chmod(0o644)  # independent of the umask: a file that others can write would not be loaded
        compiled.replace(library)
