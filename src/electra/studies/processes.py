"""Cells side by side, each in a process of its own, so that none takes another one, or the study, down with it."""

import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import torch

from electra.console import show_log
from electra.data.workers import without_main
from electra.errors import ElectraError
from electra.runtime.signals import stop_on_signal
from electra.studies.trial import Trial, alone, run_trial

log = logging.getLogger(__name__)

LOOK_EVERY = 0.5
"""Seconds between two looks at whether a signal came."""


def run_cells(
    trials: Sequence[Trial], workers: int, started: Callable[[Trial], None], ended: Callable[[Trial], None]
) -> None:
    """Run cells, `workers` at a time. One that fails is recorded as failed, and the others go on.

    `started` and `ended` are told of each. If this process is stopped or killed, the cells in hand save what they
    have and stop, too.

    Raises:
        SystemExit: a signal asked to stop; 128 plus its number, as shells do.
    """
    waiting, idle = list(trials), list(range(workers))
    running: dict[BaseProcess, tuple[Trial, Connection, int]] = {}
    with stop_on_signal() as stop_signal:
        try:
            while (waiting or running) and not stop_signal():
                while waiting and idle:
                    trial, worker = waiting.pop(0), idle.pop(0)
                    process, connection = start(trial, worker)
                    running[process] = (trial, connection, worker)
                    started(trial)
                wait([process.sentinel for process in running], timeout=LOOK_EVERY)
                for process in [each for each in running if each.exitcode is not None]:
                    trial, connection, worker = running.pop(process)
                    connection.close()
                    idle.append(worker)
                    if (reason := unsaid(process.exitcode or 0, trial)) is not None:
                        trial.fail(reason)
                    ended(trial)
        finally:
            for process in running:
                process.terminate()  # they save what they have
            for process in running:
                process.join()
        if number := stop_signal():
            log.warning("Stopped; the same command goes on from there.")
            raise SystemExit(128 + number)


def unsaid(exitcode: int, trial: Trial) -> str | None:
    """Why a process failed that could not record it; None of one that could, or that was asked to stop."""
    if exitcode < 0:
        return f"killed by signal {-exitcode} (often because memory ran out: fewer --workers need less)"
    if exitcode in (0, 128 + signal.SIGTERM, 128 + signal.SIGINT):
        return None
    return f"its process ended with code {exitcode} ({trial.log})"


def start(trial: Trial, worker: int) -> tuple[BaseProcess, Connection]:
    """A process that runs a cell, one of some workers, and a connection whose end tells it that nobody waits for it."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    with without_main():
        process = context.Process(target=work, args=(trial, worker, theirs), name=trial.name)
        process.start()
    theirs.close()
    return process, ours


def work(trial: Trial, worker: int, connection: Connection) -> None:
    """What the process does. All that it says goes into the cell's log."""
    for number in (signal.SIGINT, signal.SIGHUP):  # a terminal sends them to every process: the parent handles them
        signal.signal(number, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    take_gpu(worker)
    trial.log.parent.mkdir(parents=True, exist_ok=True)
    with trial.log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    show_log()
    threading.Thread(target=stop_without_parent, args=(connection,), daemon=True).start()
    try:
        with alone(trial):
            run_trial(trial)
    except ElectraError as error:
        log.error(f"{type(error).__name__}: {error}")
        trial.fail(str(error))
    except Exception as error:
        traceback.print_exc()
        trial.fail(f"{type(error).__name__}: {' '.join(str(error).split())} ({trial.log})")
    sys.stdout.flush()


def take_gpu(worker: int) -> None:
    """Have this process compute on the GPU of a worker, if there are any: the variable is torchrun's."""
    os.environ["LOCAL_RANK"] = str(worker % max(1, torch.cuda.device_count()))


def stop_without_parent(connection: Connection) -> None:
    """Ask this process to stop, as a signal would, when the one that started it is gone."""
    try:
        connection.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
