"""Malformed input never causes a traceback, a hang, a crash, the execution of code, or a partly written file."""

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from support.places import TESTS

from fuzz import mutations
from fuzz.kinds import Case
from fuzz.worker import Worker


@pytest.mark.slow
def test_malformed_input_gives_one_line_errors() -> None:
    """60 cases over every kind of input; `make test-fuzz` runs 3,000."""
    tests = str(TESTS)
    paths = os.pathsep.join(filter(None, [tests, os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-m", "fuzz", "--seed", "0", "--cases", "60"],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| all |" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ("pass", "accepted"),
        ("raise ElectraError('missing', 'a: no such file')", "refused"),
        ("raise KeyError('a')", "traceback"),
        ("os.kill(os.getpid(), signal.SIGUSR1)", "crash"),
        ("raise SystemExit(3)", "crash"),
        ("time.sleep(60)", "hang"),
        ("bytes(1 << 40)", "traceback"),
        ("os.mkdir('executed')", "executed"),
        ("print('a'); print('b', file=sys.stderr); raise ElectraError('test', 'c')", "not one line"),
        ("print('\\x1b[31m')", "not one line"),
        ("os.makedirs('out/.writing-x'); raise ElectraError('test', 'c')", "half-written"),
    ],
)
def test_every_outcome_is_recognized(body: str, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a driver that recognizes no failure would pass."""
    names = {name: __import__(name) for name in ("os", "sys", "signal", "time")}
    exec("from electra.errors import ElectraError\ndef command(words):\n    " + body, names)
    monkeypatch.setattr("electra.cli.run_command", lambda name, words: names["command"](words))
    monkeypatch.setattr("fuzz.worker.WALL_SECONDS", 3)
    assert Worker().run(Case("text", ["pretrain"], []), tmp_path).outcome == outcome


def test_cases_are_deterministic(tmp_path: Path) -> None:
    made = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "x.json"
        path.write_text('{"a": [1, 2, {"b": "c"}], "d": null}')
        what = mutations.damage_json(path, Random(7))
        made.append((what, path.read_text()))
    assert made[0] == made[1]
