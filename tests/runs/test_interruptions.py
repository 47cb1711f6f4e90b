"""Runs that are killed, stopped, damaged or out of time: nothing is ever lost."""

import itertools
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml
from support.callbacks import AtStep
from support.places import TESTS
from support.toy import TINY_RUN, trace, weights

import electra
from electra.errors import RunError
from electra.presets import tiny
from electra.train import loop
from electra.train.metrics_log import read_metrics


@pytest.mark.slow
def test_log_of_a_resumed_run(text: Path, tmp_path: Path, tiny_run: dict, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "run"
    electra.pretrain(str(text), out=str(out), **tiny_run)
    said = capsys.readouterr().out
    assert "resuming" not in said
    assert ", 1 thread, float32" in said
    assert "batches of 8 in micro-batches of 4 (gradients accumulate; " in said
    assert "held-out tokens: the held-out metrics will be imprecise" in said
    (out / "summary.json").unlink()
    electra.pretrain(str(text), out=str(out), **tiny_run)
    said = capsys.readouterr().out
    assert f"resuming from step 12 ({out / 'checkpoints/step-00000012'})" in said
    assert "reusing the tokenizer trained for this run" in said
    assert f"{out / 'data'} already contains this text prepared; it is reused" in said


KILLED = """
import os, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import electra
from support import toy
from support.callbacks import AtStep, kill
from electra.train import checkpoint
if {writing}:
    write = checkpoint.Checkpoints._write
    def half(self, aside, module, optimizer, state):
        write(self, aside, module, optimizer, state)
        if state.step == {writing}: kill(module)
    checkpoint.Checkpoints._write = half
electra.pretrain({text!r}, out={out!r}, callbacks=[AtStep({step}, kill)], **toy.TINY_RUN)
"""


@pytest.mark.slow
def test_killed_again_and_again_it_ends_bit_for_bit_the_same(finished: Path, text: Path, tmp_path: Path) -> None:
    """kill -9 in the middle of steps and while a checkpoint is written; losses and weights are those of one go."""
    out = tmp_path / "run"
    for step, writing in ((3, 0), (7, 0), (0, 8), (11, 0)):
        script = KILLED.format(tests=str(TESTS), step=step, writing=writing, text=str(text), out=str(out))
        assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    electra.pretrain(str(text), out=str(out), **TINY_RUN)
    assert trace(out) == trace(finished)
    assert weights(out) == weights(finished)


@pytest.mark.slow
def test_a_damaged_checkpoint_costs_its_steps_only(
    finished: Path, text: Path, tmp_path: Path, tiny_run: dict, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "run"
    electra.pretrain(str(text), out=str(out), **tiny_run)
    (out / "summary.json").unlink()
    newest = sorted((out / "checkpoints").iterdir())[-1] / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:-10])
    electra.pretrain(str(text), out=str(out), **tiny_run)
    assert "step-00000012: damaged (model.safetensors has" in capsys.readouterr().out
    assert trace(out) == trace(finished)
    assert weights(out) == weights(finished)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_saves_first(text: Path, tmp_path: Path, number: signal.Signals, tiny_run: dict) -> None:
    out = tmp_path / "run"
    tiny_run |= {"steps": 100_000, "text": [str(text)]}
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(tiny_run))
    command = [sys.executable, "-m", "electra", "pretrain", "--config", str(config), "--out", str(out)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # ignored where the tests run in the background
    )
    deadline = time.monotonic() + 60
    while len(list(read_metrics(out / "metrics.jsonl"))) < 5 and time.monotonic() < deadline:
        time.sleep(0.05)
    with pytest.raises(RunError, match=f"in use by process {process.pid} on "):
        electra.pretrain(out=str(out), config=str(config))
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + number, stderr
    said = re.search(r"Stopped at step ([\d,]+) and saved; the same command goes on from there", stdout)
    assert said
    stopped = int(said[1].replace(",", ""))
    assert (out / f"checkpoints/step-{stopped:08d}/state.json").exists()
    assert "Traceback" not in stderr


@pytest.mark.slow
def test_time_budget_ends_fully_decayed(
    text: Path, tmp_path: Path, tiny_run: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock that ticks 2 ms a look: 1 s of budget, the peak at a tenth of it, annealed at the end, all of it logged."""
    ticks = itertools.count()
    monkeypatch.setattr(loop.Clock, "seconds", lambda self: next(ticks) * 0.002)
    tiny_run.pop("steps")
    tiny_run["training"] |= {"log_every": 7}
    summary = electra.pretrain(str(text), out=str(tmp_path / "run"), hours=1 / 3600, **tiny_run)
    rows = list(read_metrics(tmp_path / "run/metrics.jsonl"))
    assert summary["seconds"] == pytest.approx(1.0, abs=0.01)
    assert rows[-1]["step"] == summary["step"]
    rates = [row["learning_rate"] for row in rows]
    peak = rates.index(max(rates))
    assert max(rates) == pytest.approx(tiny().optimizer.learning_rate, rel=0.1)
    assert rows[peak]["seconds"] == pytest.approx(0.1, abs=0.05)
    assert rates[-1] < 0.02 * max(rates)


@pytest.mark.slow
def test_checkpoints_by_time(text: Path, tmp_path: Path, tiny_run: dict, capsys: pytest.CaptureFixture) -> None:
    tiny_run["training"] |= {"checkpoint_every": 1000, "checkpoint_minutes": 1e-9, "keep_checkpoints": 2}
    tiny_run["training"] |= {"micro_batch_size": 8}
    electra.pretrain(str(text), out=str(tmp_path / "run"), **tiny_run)
    assert "micro-batches of 8 (the whole batch at once)" in capsys.readouterr().out
    kept = sorted(path.name for path in (tmp_path / "run/checkpoints").iterdir())
    assert kept == ["step-00000011", "step-00000012"]


def test_nan_ends_the_run_with_advice(
    text: Path, tmp_path: Path, tiny_run: dict, capsys: pytest.CaptureFixture
) -> None:
    """The weights themselves become NaN between two logs, with a checkpoint due: none of it is saved."""

    def fill_with_nan(model: torch.nn.Module) -> None:
        with torch.no_grad():
            model.target.network.head.dense.weight.fill_(float("nan"))

    tiny_run["training"] |= {"log_every": 3}
    with pytest.raises(electra.errors.DivergedError, match="the gradients are not finite numbers any more"):
        electra.pretrain(str(text), out=tmp_path / "run", callbacks=[AtStep(5, fill_with_nan)], **tiny_run)
    assert "not a number" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["step-00000004"]


def test_nothing_is_left_in_the_environment(finished: Path) -> None:
    assert not [name for name in os.listdir(finished) if name.startswith(".writing")]
