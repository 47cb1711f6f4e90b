"""Other processes of a run, one that holds a lock, and files of another user."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TIMEOUT = 120
"""Seconds; processes that wait for each other do so for much longer."""


HOLD = """
import sys
from pathlib import Path
from electra.storage import lock_output
with lock_output(Path(sys.argv[1]), Path(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""


class Holder:
    """Another process that holds a lock."""

    def __init__(self, out: Path, lock: Path, script: str = HOLD) -> None:
        command = [sys.executable, "-c", script, str(out), str(lock)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "held\n"

    def end(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.communicate(timeout=60)


SOMEBODY = 12_345


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a path belong to another user; only root can give it away, so anybody else becomes another user."""
    if os.geteuid() == 0:
        os.chown(path, SOMEBODY, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)
