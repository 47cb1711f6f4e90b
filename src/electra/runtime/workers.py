"""Worker processes: start one, or map a function over a stream of items with few items in memory."""

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import NamedTuple, TypeVar

from electra.errors import DataError, ElectraError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Worker(NamedTuple):
    """A process and the parent's end of its connection; the other end is the last argument of the function it runs."""

    process: BaseProcess
    connection: Connection


class _Failure(NamedTuple):
    error: Exception


def available_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_unordered(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Generator[Result, None, None]:
    """Yield results as they become ready; at most one item per worker and one more are in memory.

    With one worker or one item, no process is started. `function` and the items are pickled. The workers end at once after
    an error in `items` or `function`, Ctrl-C or a killed worker; if the caller is killed, they end after their item.

    Raises:
        DataError: a worker was killed.
    """
    stream = iter(items)
    ahead = [item for _, item in zip(range(2), stream, strict=False)]
    if workers == 1 or len(ahead) < 2:
        yield from map(function, chain(ahead, stream))
        return
    idle: list[Worker] = []
    busy: list[Worker] = []
    try:
        for item in chain(ahead, stream):
            if not idle and len(idle) + len(busy) < workers:
                idle.append(start_worker(_apply, function))
            while not idle:
                yield from _collect(busy, idle)
            worker = idle.pop()
            busy.append(worker)
            _send(worker, item)
        while busy:
            yield from _collect(busy, idle)
    finally:
        for worker in idle + busy:
            worker.process.kill()
            worker.process.join()
            worker.process.close()
            worker.connection.close()


def _collect(busy: list[Worker], idle: list[Worker]) -> Iterator[Result]:
    """Wait until at least one worker is ready, and yield the results."""
    ready = wait([worker.connection for worker in busy])
    for worker in [worker for worker in busy if worker.connection in ready]:
        try:
            result = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            raise _make_killed_error(worker) from None
        if isinstance(result, _Failure):
            raise result.error
        busy.remove(worker)
        idle.append(worker)
        yield result


def _send(worker: Worker, item: object) -> None:
    try:
        worker.connection.send(item)
    except (BrokenPipeError, ConnectionResetError):
        raise _make_killed_error(worker) from None


def _make_killed_error(worker: Worker) -> DataError:
    worker.process.join()
    code = worker.process.exitcode
    how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
    return DataError(
        "worker-died",
        f"a worker process {how} (often out of memory: use fewer workers); run the same command again to resume",
    )


def start_worker(function: Callable[..., None], *args: object, daemon: bool = True, name: str | None = None) -> Worker:
    """Start a process that calls `function(*args, connection)`.

    The process is spawned, so that threads of the caller do not matter; arguments are pickled. It ignores SIGINT and SIGHUP,
    which a terminal sends to all its processes: the parent handles them. Its end of the connection raises EOFError after the
    parent has ended.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with _hide_main():
        process = context.Process(target=_run_worker, args=(function, *args, theirs), daemon=daemon, name=name)
        process.start()
    theirs.close()
    return Worker(process, ours)


def _run_worker(function: Callable[..., None], *args: object) -> None:
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a worker has one core
    function(*args)


@contextmanager
def _hide_main() -> Iterator[None]:
    """Hide the main script, which workers do not need, from processes started in the block.

    A spawned process first imports its parent's main script, which fails for a script from stdin, and runs the script again
    if it has no `__main__` guard.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _apply(function: Callable[[Item], Result], connection: Connection) -> None:
    """Apply the function to items from the parent until the parent has ended."""
    while True:
        try:
            item = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        result: Result | _Failure
        try:
            result = function(item)
        except ElectraError as error:
            result = _Failure(error)
        except Exception:
            result = _Failure(RuntimeError(f"in a worker process:\n{traceback.format_exc()}"))
        del item
        try:
            connection.send(result)
        except (BrokenPipeError, ConnectionResetError):
            return
