"""A handful of kills; `make test-kill` has a hundred."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_killed_commands_end_bit_for_bit_the_same() -> None:
    driver = Path(__file__).with_name("driver.py")
    done = subprocess.run(
        [sys.executable, str(driver), "--kills", "5", "--seed", "0"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| all | | 5 | 5 |" in done.stdout
