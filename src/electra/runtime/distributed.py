"""Coordination of the processes of a run: order and errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist

from electra.errors import ElectraError
from electra.runtime.setup import Runtime

# The main process may take hours to prepare a large corpus while the others wait.
WAIT_TIMEOUT = timedelta(days=7)


@contextmanager
def main_process_first(runtime: Runtime) -> Iterator[None]:
    """Run the block in the main process first, while the others wait without a short timeout; then in the others.

    An error of one process is raised in all of them; otherwise the others would wait for it forever.
    """
    if runtime.world_size == 1:
        yield
        return
    group = dist.new_group(backend="gloo", timeout=WAIT_TIMEOUT)
    if not runtime.is_main:
        raise_first_error(None, runtime, group)
    error = None
    try:
        yield
    except ElectraError as own:
        error = own
    raise_first_error(error, runtime, group)
    if runtime.is_main:
        raise_first_error(None, runtime, group)


@contextmanager
def share_errors(runtime: Runtime) -> Iterator[None]:
    """Run the block in every process; raise an error of one in all of them, so that none waits forever."""
    error = None
    try:
        yield
    except ElectraError as own:
        if runtime.world_size == 1:
            raise
        error = own
    if runtime.world_size > 1:
        raise_first_error(error, runtime)


def raise_first_error(error: ElectraError | None, runtime: Runtime, group: dist.ProcessGroup | None = None) -> None:
    """Raise the error of the first process that has one in all processes; each passes its own error or None."""
    errors: list[ElectraError | None] = [None] * runtime.world_size
    dist.all_gather_object(errors, error, group=group)
    for rank, each in enumerate(errors):
        if each is not None:
            raise each if rank == runtime.rank or rank == 0 else type(each)(each.code, f"process {rank}: {each}")
