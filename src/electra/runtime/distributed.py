"""What several processes of one run do together: order, errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist

from electra.errors import ElectraError
from electra.runtime.setup import Runtime

# Preparing a large corpus takes the first process hours; the others wait for it.
WAIT_TIMEOUT = timedelta(days=7)


@contextmanager
def main_process_first(runtime: Runtime) -> Iterator[None]:
    """The main process runs the block while the others wait, however long it takes; then they run it too.

    An error of one process is raised in all of them: those that went on would wait for it in vain.
    """
    if runtime.world_size == 1:
        yield
        return
    patient = dist.new_group(backend="gloo", timeout=WAIT_TIMEOUT)
    if not runtime.is_main:
        raise_first_error(None, runtime, patient)
    error = None
    try:
        yield
    except ElectraError as own:
        error = own
    raise_first_error(error, runtime, patient)
    if runtime.is_main:
        raise_first_error(None, runtime, patient)


@contextmanager
def share_errors(runtime: Runtime) -> Iterator[None]:
    """Every process runs the block; an error of one is raised in all of them, before they wait for each other in vain."""
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
    """Raise the error of the first process that has one, in all processes; each gives its own or None."""
    errors: list[ElectraError | None] = [None] * runtime.world_size
    dist.all_gather_object(errors, error, group=group)
    for rank, each in enumerate(errors):
        if each is not None:
            raise each if rank == runtime.rank or rank == 0 else type(each)(f"process {rank}: {each}")
