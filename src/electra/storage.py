"""Writing that is whole or not at all, and what the operating system says of it as one clear error."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from electra.errors import StorageError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError within into a `StorageError` that names the file and says what to do."""
    try:
        yield
    except OSError as error:
        advice = "; make room and run the same command again" if error.errno == errno.ENOSPC else ""
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}{advice}") from error


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


def sync(path: Path) -> None:
    """Make a file, or a directory's list of names, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
