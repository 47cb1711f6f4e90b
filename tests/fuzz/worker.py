"""Runs a case in a forked process with limits, and determines its outcome."""

import ctypes
import gc
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import electra
import electra.cli
from electra.external import UNPRINTABLE
from electra.finetuning import run
from electra.finetuning.benchmark import grid
from electra.finetuning.classification import table
from electra.finetuning.qa import data as squad_data
from electra.finetuning.readers import tables
from electra.finetuning.tagging import data as tagging_data
from electra.inference import predict
from electra.pretraining import export, inputs
from electra.pretraining import run as pretraining_run
from electra.pretraining.evaluation import fill_mask, mlm_accuracy
from electra.text import files
from fuzz.kinds import Case

LOADED = (grid, tables, run, squad_data, table, tagging_data, fill_mask, mlm_accuracy, inputs, pretraining_run, predict)
"""Imported here once instead of in every case."""
CPU_SECONDS, WALL_SECONDS = 15, 120
MEMORY = 3 << 30
"""Bytes of address space that a case may have in addition to the driver's."""
UPDATES = 20
"""Training gets SIGTERM after so many updates, because not every case has few steps."""
TRACEBACK, PARENT_DIED = 77, 1

OUTCOMES = ("accepted", "refused", "traceback", "hang", "crash", "executed", "not one line", "half-written")
FAILURES = OUTCOMES[2:]


@dataclass(frozen=True)
class Result:
    """The outcome of a case."""

    outcome: str
    details: str
    """The last lines of a traceback, or other evidence of the outcome."""
    output: str
    seconds: float


class Worker:
    """Forks this process, which has imported everything, for each case."""

    def call(self, function: Callable[[], None]) -> None:
        """Run a function in a separate process, so that this one starts no threads. Raises RuntimeError if it fails."""
        child = os.fork()
        if child == 0:
            status = TRACEBACK
            try:
                torch.set_num_threads(1)
                function()
                status = 0
            except BaseException:
                traceback.print_exc()
            os._exit(status)
        if os.waitpid(child, 0)[1]:
            raise RuntimeError("the material cannot be made")

    def run(self, case: Case, folder: Path) -> Result:
        """Run a case whose files are in `folder`; returns its result."""
        out, err, given = (folder / name for name in (".stdout", ".stderr", ".stdin"))
        given.write_bytes(case.stdin)
        start = time.monotonic()
        if case.env:
            status = self.run_fresh(case, folder)
        else:
            child = os.fork()
            if child == 0:
                run_in_child(case, folder)
            status = self.wait(child)
        encoding = case.env.get("PYTHONIOENCODING", "utf-8")
        shown, errors = (file.read_text(encoding, errors="surrogateescape") for file in (out, err))
        outcome, details = judge(status, shown, errors, case, folder)
        return Result(outcome, details, f"{shown}\n{errors}", time.monotonic() - start)

    def run_fresh(self, case: Case, folder: Path) -> int:
        """Run a case in a new interpreter, which reads environment variables when it starts; returns the wait status."""
        source = str(Path(electra.__file__).parents[1])
        with (
            (folder / ".stdin").open("rb") as given,
            (folder / ".stdout").open("wb") as out,
            (folder / ".stderr").open("wb") as err,
        ):
            child = subprocess.Popen(
                [sys.executable, "-m", "electra", *case.words],
                env=os.environ | {"PYTHONPATH": source} | case.env,
                cwd=folder,
                stdin=given,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        status = self.wait(child.pid)
        child.returncode = 0  # it has been reaped
        return (
            TRACEBACK << 8
            if "Traceback (most recent call last)" in (folder / ".stderr").read_text(errors="replace")
            else status
        )

    def wait(self, child: int) -> int:
        """Wait for a child; returns its wait status. After the time limit, its process group is killed."""
        end = time.monotonic() + WALL_SECONDS
        pause = 0.002
        while time.monotonic() < end:
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                return status
            time.sleep(pause)
            pause = min(pause * 1.3, 0.05)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return signal.SIGXCPU

    def clear(self, folder: Path) -> None:
        """Delete a case's files, whatever their permissions."""
        shutil.rmtree(folder, ignore_errors=True)


def run_in_child(case: Case, folder: Path) -> NoReturn:
    """Run a command with limits and exit."""
    status = TRACEBACK
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(PARENT_DIED, signal.SIGKILL)
        gc.disable()
        for descriptor, name, flags in (
            (0, ".stdin", os.O_RDONLY),
            (1, ".stdout", os.O_WRONLY | os.O_CREAT),
            (2, ".stderr", os.O_WRONLY | os.O_CREAT),
        ):
            os.dup2(os.open(folder / name, flags, 0o600), descriptor)
        sys.stdout, sys.stderr = (open(each, "w", encoding="utf-8", closefd=False) for each in (1, 2))  # noqa: SIM115
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        limit()
        electra.cli.main(case.words)
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(status)


def limit() -> None:
    """Set limits of time and memory, and lower the limits of unpacked sizes, so that small files exceed them."""
    torch.set_num_threads(1)
    files.MAX_UNPACKED_BYTES = squad_data.MAX_DOCUMENT_BYTES = 4_000_000
    export.write_report = lambda *arguments, **options: None  # drawing takes most of the time of a short run
    used = int(re.search(r"VmSize:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))
    updates = 0

    def stop_training(*_: object) -> None:
        nonlocal updates
        updates += 1
        if updates == UPDATES:
            os.kill(os.getpid(), signal.SIGTERM)

    register_optimizer_step_post_hook(stop_training)


def judge(status: int, shown: str, errors: str, case: Case, folder: Path) -> tuple[str, str]:
    """Determine the outcome of a case and its evidence."""
    last = "\n".join(errors.strip().split("\n")[-12:])
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number in (signal.SIGXCPU, signal.SIGKILL):
            return "hang", f"no end after {CPU_SECONDS} s of computing or {WALL_SECONDS} s: {last}"
        return "crash", f"signal {number}: {last}"
    if (folder / "executed").exists():
        return "executed", last
    code = os.WEXITSTATUS(status)
    if code == TRACEBACK:
        return "traceback", last
    if code not in (0, 2, 128 + signal.SIGTERM):
        return "crash", f"exit status {code}: {last}"
    colored = "FORCE_COLOR" in case.env  # with control codes
    if not colored and any(
        UNPRINTABLE.search(line)
        for line in (shown if case.words[:1] != ["predict"] else "").split("\n") + errors.split("\n")
    ):
        return "not one line", f"control characters: {shown[-500:]!a} {errors[-500:]!a}"
    if code != 2:
        return "accepted", last
    # predict writes log records to standard error, too.
    lines = [line for line in errors.splitlines() if case.words[:1] != ["predict"] or not line.startswith(("· ", "! "))]
    if len(lines) != 1 or not lines[0].startswith("electra: error: ") or len(lines[0]) > 2100:
        return "not one line", ascii(errors[-1000:])
    out = folder / "out"
    left = (
        [path.name for path in out.rglob("*") if path.name.endswith(".partial") or path.name.startswith(".writing")]
        if out.is_dir()
        else []
    )
    if left or (case.words[:1] == ["predict"] and out.exists()):
        return "half-written", f"{left or out}: {last}"
    return "refused", last
