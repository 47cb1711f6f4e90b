"""Run trials in parallel, each in a separate process, so a crash affects neither other trials nor the study."""

import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

import torch

from electra.console import show_log
from electra.errors import ElectraError
from electra.external import one_line
from electra.runtime.signals import stop_on_signal
from electra.runtime.workers import start_worker
from electra.studies.trial import Trial, lock_trial, run_trial

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5
"""Seconds between checks for a signal."""


def run_trials(
    trials: Sequence[Trial], workers: int, on_start: Callable[[Trial], None], on_end: Callable[[Trial], None]
) -> None:
    """Run trials, `workers` at a time. A failed trial is recorded as failed, and the others continue.

    `on_start` and `on_end` are called for each trial. If this process is stopped or killed, running trials save their state
    and stop.

    Raises:
        SystemExit: a signal stopped the study; the status is 128 plus its number, as in shells.
    """
    waiting, idle = list(trials), list(range(workers))
    running: dict[BaseProcess, tuple[Trial, Connection, int]] = {}
    with stop_on_signal() as stop_signal:
        try:
            while (waiting or running) and not stop_signal():
                while waiting and idle:
                    trial, worker = waiting.pop(0), idle.pop(0)
                    process, connection = start_worker(run_trial_process, trial, worker, daemon=False, name=trial.name)
                    running[process] = (trial, connection, worker)
                    on_start(trial)
                wait([process.sentinel for process in running], timeout=POLL_SECONDS)
                for process in [each for each in running if each.exitcode is not None]:
                    trial, connection, worker = running.pop(process)
                    connection.close()
                    idle.append(worker)
                    if (reason := describe_exit(process.exitcode or 0, trial)) is not None:
                        trial.fail(reason)
                    on_end(trial)
        finally:
            for process in running:
                process.terminate()  # trials save their state
            for process in running:
                process.join()
        if number := stop_signal():
            log.warning("Stopped; the same command resumes the study.", extra={"code": "stopped"})
            raise SystemExit(128 + number)


def describe_exit(exitcode: int, trial: Trial) -> str | None:
    """Describe why a process ended without recording a failure; None if it recorded one or was stopped by a signal."""
    if exitcode < 0:
        return f"killed by signal {-exitcode} (often out of memory: use fewer --workers)"
    if exitcode in (0, 128 + signal.SIGTERM, 128 + signal.SIGINT):
        return None
    return f"its process ended with code {exitcode} ({trial.log})"


def run_trial_process(trial: Trial, worker: int, connection: Connection) -> None:
    """Run a trial in its process, with standard output and error in the trial's log."""
    select_gpu(worker)
    trial.log.parent.mkdir(parents=True, exist_ok=True)
    with trial.log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    show_log()
    threading.Thread(target=stop_when_orphaned, args=(connection,), daemon=True).start()
    try:
        with lock_trial(trial):
            run_trial(trial)
    except ElectraError as error:
        log.error(f"{type(error).__name__}: {error}", extra={"code": error.code})
        trial.fail(str(error))
    except Exception as error:
        traceback.print_exc()
        trial.fail(f"{type(error).__name__}: {one_line(error, 1000)} ({trial.log})")
    sys.stdout.flush()


def select_gpu(worker: int) -> None:
    """Set LOCAL_RANK, by which a process selects its GPU, so that workers share the GPUs evenly."""
    os.environ["LOCAL_RANK"] = str(worker % max(1, torch.cuda.device_count()))


def stop_when_orphaned(connection: Connection) -> None:
    """Send this process SIGTERM when its parent has ended."""
    try:
        connection.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
