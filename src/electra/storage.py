"""Writing that is whole or not at all, and what the operating system says of it as one clear error."""

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from electra.errors import StorageError

if TYPE_CHECKING:
    from torch import Tensor

PathLike = str | os.PathLike[str]
"""A path as users may give it."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
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


def write_atomically(path: Path, data: bytes) -> None:
    """The file is whole or not there, whatever happens meanwhile. Raises StorageError."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with writing(path):
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
