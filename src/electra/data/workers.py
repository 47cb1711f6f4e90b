"""A function applied to a stream of items by several processes, with few of the items in memory at a time."""

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


class _Worker(NamedTuple):
    process: BaseProcess
    connection: Connection


class _Failure(NamedTuple):
    error: Exception


def map_unordered(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Generator[Result, None, None]:
    """The results, as they are ready; one item per worker and one more are in memory.

    With one worker, or one item, nothing is started. Workers are spawned, so that it does not matter what
    threads the caller has; `function` and the items are pickled. However this ends (an error of `items` or of
    `function`, Ctrl-C, a killed worker), the workers end at once; if the caller is killed, after their item.

    Raises:
        DataError: a worker was killed.
    """
    stream = iter(items)
    ahead = [item for _, item in zip(range(2), stream, strict=False)]
    if workers == 1 or len(ahead) < 2:
        yield from map(function, chain(ahead, stream))
        return
    idle: list[_Worker] = []
    busy: list[_Worker] = []
    try:
        for item in chain(ahead, stream):
            if not idle and len(idle) + len(busy) < workers:
                idle.append(_start(function))
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


def _collect(busy: list[_Worker], idle: list[_Worker]) -> Iterator[Result]:
    """Wait until at least one worker is done."""
    ready = wait([worker.connection for worker in busy])
    for worker in [worker for worker in busy if worker.connection in ready]:
        try:
            result = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            raise _killed(worker) from None
        if isinstance(result, _Failure):
            raise result.error
        busy.remove(worker)
        idle.append(worker)
        yield result


def _send(worker: _Worker, item: object) -> None:
    try:
        worker.connection.send(item)
    except (BrokenPipeError, ConnectionResetError):
        raise _killed(worker) from None


def _killed(worker: _Worker) -> DataError:
    worker.process.join()
    code = worker.process.exitcode
    how = f"was killed by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
    return DataError(
        f"a worker process {how} (often because memory ran out: fewer workers need less); "
        "run the same command again: it goes on where it stopped"
    )


def _start(function: Callable[[Item], Result]) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with without_main():
        process = context.Process(target=_work, args=(function, theirs), daemon=True)
        process.start()
    theirs.close()
    return _Worker(process, ours)


@contextmanager
def without_main() -> Iterator[None]:
    """Hide the main script, of which the workers need nothing, from the processes started meanwhile.

    A spawned process imports its parent's main script first: that fails for a script read from stdin, and
    starts everything again where there is no `__main__` guard.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _work(function: Callable[[Item], Result], connection: Connection) -> None:
    """What a worker does, until its parent is gone."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # a worker is one core's work
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process: the parent says what it means
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
