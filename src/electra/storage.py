"""Atomic writes, locks against concurrent writers, and one-line messages for system errors."""

import errno
import fcntl
import json
import logging
import os
import shlex
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from electra.errors import RunError, StorageError

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

PathLike = str | os.PathLike[str]
"""Type of paths in the public API."""
STORAGE_CODES = {
    errno.ENOSPC: "disk-full",
    errno.EDQUOT: "disk-full",
    errno.EACCES: "no-permission",
    errno.EPERM: "no-permission",
    errno.EROFS: "no-permission",
}
"""Codes of a `StorageError` by the system's error number; any other is "unwritable"."""
LOCK = ".lock"
"""Name of the lock file in an output directory."""
MAX_COMMAND = 200
"""Maximum characters of a command line in a message."""


@contextmanager
def convert_os_errors(path: Path) -> Iterator[None]:
    """Convert an OSError in the block to a `StorageError` with the path and advice."""
    try:
        yield
    except OSError as error:
        code = STORAGE_CODES.get(error.errno or 0, "unwritable")
        advice = "; make room and run the same command again" if code == "disk-full" else ""
        raise StorageError(code, f"{path}: cannot be written: {error.strerror or error}{advice}") from error


def check_writable(directory: Path) -> None:
    """Check before hours of work that files can be created in a directory, which does not have to exist yet.

    Raises:
        StorageError: they cannot; the message names the part of the path that prevents it.
    """
    path = directory.absolute()
    existing = next(part for part in (path, *path.parents) if os.path.exists(part))
    if not existing.is_dir():
        raise StorageError("not-directory", f"{directory}: cannot be written: {existing} is not a directory")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise StorageError(
            "no-permission", f"{directory}: cannot be written: no permission to create files in {existing}"
        )


def holds_files(directory: Path, besides: str = "") -> bool:
    """Whether a directory contains files, other than one named `besides`.

    Hidden files do not count: an interrupted write leaves a partial one.
    """
    return directory.is_dir() and any(
        not path.name.startswith(".") and path.name != besides for path in directory.iterdir()
    )


@contextmanager
def restrict_permissions(private: bool) -> Iterator[None]:
    """If `private`, create directories in the block with mode 0700 and files with 0600.

    This sets the umask of the whole process and of those it starts. Otherwise the user's umask applies.
    """
    if not private:
        yield
        return
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def lock_output(out: Path, lock: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock file `lock`, so that no other process writes `out` during the block.

    The lock is flock(2) on the file, not the presence of the file. The kernel releases it however the process ends, so there
    are no stale locks, and reuse of a process id does not matter. NFS (since Linux 2.6.12) and Lustre (mounted with `flock`)
    ask the server, so the lock works across hosts. If the file system has no locks, a warning is logged.

    Args:
        out: The output; messages name it.
        lock: Created with its folders if it does not exist; removed at the end, with those of these folders that are empty.
        wait: Wait for another process that holds the lock.

    Raises:
        RunError: another process holds the lock; the message names it.
        StorageError: the lock cannot be written.
    """
    check_writable(lock.parent)
    made = [folder for folder in (lock.parent, *lock.parent.parents) if not folder.exists()]
    with convert_os_errors(out):
        descriptor = _open_locked(out, lock, wait)
    try:
        yield
    finally:
        with suppress(OSError):  # the directory may have been removed, and created again by another process
            if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
                lock.unlink()
        os.close(descriptor)
        with suppress(OSError):
            for folder in made:
                folder.rmdir()


def _open_locked(out: Path, lock: Path, wait: bool) -> int:
    """Lock the file, write a description of this process into it, and return its descriptor."""
    while True:
        lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            holder = _describe_holder(descriptor)
            os.close(descriptor)
            raise RunError(
                "in-use", f"{out}: in use by {holder}; wait until that has ended, or choose another --out"
            ) from None
        except OSError as error:
            log.warning(
                f"{out}: the file system has no locks ({error.strerror}); do not start a second run there",
                extra={"code": "no-locks"},
            )
        # The previous holder removes the file. A file opened before that excludes no other process.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
                break
        os.close(descriptor)
    own = {"pid": os.getpid(), "host": socket.gethostname(), "command": shlex.join(sys.argv)}
    with suppress(OSError):  # on a full disk the lock works without the description
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(own).encode(), 0)
    return descriptor


def _describe_holder(descriptor: int) -> str:
    """Describe the process that holds a lock, from the content of the lock file."""
    try:
        holder = json.loads(os.pread(descriptor, 1 << 20, 0))
        command = "".join(char if char.isprintable() else "?" for char in str(holder["command"]))
        shown = command if len(command) <= MAX_COMMAND else f"{command[:MAX_COMMAND]}…"
        return f"process {int(holder['pid'])} on {ascii(str(holder['host']))[1:-1]} ({shown})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file completely or not at all. Raises StorageError."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with convert_os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
    finally:
        with suppress(OSError):  # if not even the directory could be created
            partial.unlink(missing_ok=True)


def write_tensors(path: Path, tensors: "Mapping[str, Tensor]", metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file with the permissions of any new file: the library's writer makes it readable by its owner only.

    Raises:
        OSError: the disk is full, or writing is not allowed; the library raises its own error for these.
    """
    from safetensors import SafetensorError  # imports torch, which not every command needs
    from safetensors.torch import save_file

    path.unlink(missing_ok=True)
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(dict(tensors), path, metadata=dict(metadata) if metadata else None)
    except SafetensorError as error:
        raise OSError(0, str(error), str(path)) from error
    path.chmod(mode)


def sync(path: Path) -> None:
    """Flush a file, or the entries of a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
