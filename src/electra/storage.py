"""Writing that is whole or not at all, by one process at a time, and system errors as one line each."""

import errno
import fcntl
import json
import os
import shlex
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from electra.errors import RunError, StorageError

if TYPE_CHECKING:
    from torch import Tensor

PathLike = str | os.PathLike[str]
"""A path as users may give it."""
LOCK = ".lock"
"""Name of the lock in a directory of results."""
MAX_COMMAND = 200
"""Characters of a command that a message shows."""


@contextmanager
def convert_os_errors(path: Path) -> Iterator[None]:
    """Turn an OSError within into a `StorageError` that names the file and says what to do."""
    try:
        yield
    except OSError as error:
        advice = "; make room and run the same command again" if error.errno == errno.ENOSPC else ""
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}{advice}") from error


def check_writable(directory: Path) -> None:
    """See before hours of work that files can be made in a directory, which need not be there yet.

    Raises:
        StorageError: they cannot; the part of the path that is in the way is named.
    """
    path = directory.absolute()
    standing = next(part for part in (path, *path.parents) if os.path.exists(part))
    if not standing.is_dir():
        raise StorageError(f"{directory}: cannot be written: {standing} is not a directory")
    if not os.access(standing, os.W_OK | os.X_OK):
        raise StorageError(f"{directory}: cannot be written: no permission to make files in {standing}")


def holds_files(directory: Path) -> bool:
    """Whether anything stands there. Hidden files do not count: an interrupted write leaves its partial one."""
    return directory.is_dir() and any(not path.name.startswith(".") for path in directory.iterdir())


@contextmanager
def restrict_permissions(wanted: bool) -> Iterator[None]:
    """If `wanted`, what is made meanwhile is for its owner alone: directories have mode 0700, files 0600.

    By the umask, which belongs to the whole process and is inherited by those it starts. Without, the user's holds: all
    that is written gets the permissions that any new file gets.
    """
    if not wanted:
        yield
        return
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def lock_output(out: Path, lock: Path, warn: Callable[[str], None], *, wait: bool = False) -> Iterator[None]:
    """Hold the file `lock`, so that no other process writes the result `out` meanwhile.

    The lock is flock(2) on the file, not its presence. The kernel releases it however the process ends, so there are no
    stale locks, and it does not matter who has a dead process's id now. NFS (since Linux 2.6.12) and Lustre (mounted with
    `flock`) ask the server, so it holds between hosts. Where the file system has no locks, a warning says so.

    Args:
        out: What is written; messages name it.
        lock: Made if it is not there, with its folders; removed at the end, with those of these folders that are empty.
        warn: Called with a line if nothing can be locked.
        wait: Wait for another process that holds the lock.

    Raises:
        RunError: another process holds the lock; it is named.
        StorageError: the lock cannot be written.
    """
    check_writable(lock.parent)
    made = [folder for folder in (lock.parent, *lock.parent.parents) if not folder.exists()]
    with convert_os_errors(out):
        descriptor = _open_locked(out, lock, warn, wait)
    try:
        yield
    finally:
        with suppress(OSError):  # the directory may have been removed, and another process have made it again
            if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
                lock.unlink()
        os.close(descriptor)
        with suppress(OSError):
            for folder in made:
                folder.rmdir()


def _open_locked(out: Path, lock: Path, warn: Callable[[str], None], wait: bool) -> int:
    """The descriptor of the lock file, which is locked and holds a description of this process."""
    while True:
        lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            holder = _describe_holder(descriptor)
            os.close(descriptor)
            raise RunError(f"{out}: in use by {holder}; wait until that has ended, or choose another --out") from None
        except OSError as error:
            warn(f"{out}: the file system has no locks ({error.strerror}); do not start a second run there")
        # The one who held the lock has removed the file, if it was opened before that: then it excludes nobody.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(lock)):
                break
        os.close(descriptor)
    own = {"pid": os.getpid(), "host": socket.gethostname(), "command": shlex.join(sys.argv)}
    with suppress(OSError):  # a full disk: others are kept out all the same
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(own).encode(), 0)
    return descriptor


def _describe_holder(descriptor: int) -> str:
    """The process that holds a lock, as it has described itself there."""
    try:
        holder = json.loads(os.pread(descriptor, 1 << 20, 0))
        command = "".join(char if char.isprintable() else "?" for char in str(holder["command"]))
        shown = command if len(command) <= MAX_COMMAND else f"{command[:MAX_COMMAND]}…"
        return f"process {int(holder['pid'])} on {ascii(str(holder['host']))[1:-1]} ({shown})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


def write_atomically(path: Path, data: bytes) -> None:
    """The file is whole or not there, whatever happens meanwhile. Raises StorageError."""
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
        with suppress(OSError):  # where not even the directory could be made
            partial.unlink(missing_ok=True)


def write_tensors(path: Path, tensors: "Mapping[str, Tensor]", metadata: Mapping[str, str] | None = None) -> None:
    """A safetensors file, with the permissions that any new file gets: the library's own writer lets nobody else read it.

    Raises:
        OSError: the disk is full, or writing is not allowed; the library has errors of its own for these.
    """
    from safetensors import SafetensorError  # with torch, which not every command needs
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
    """Make a file, or a directory's list of names, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
