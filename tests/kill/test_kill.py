"""Killed and restarted commands give the same results. This test has 5 kills, `make test-kill` 100."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_killed_commands_give_identical_results() -> None:
    driver = Path(__file__).with_name("driver.py")
    done = subprocess.run(
        [sys.executable, str(driver), "--kills", "5", "--seed", "0"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| all | | 5 | 5 |" in done.stdout
