"""Runs that are killed, stopped or damaged resume with the same result; budgets of time; diverging runs."""

import itertools
import logging
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
from support.errors import notices, raises
from support.places import TESTS
from support.toy import TINY_RUN, trace, weights

import electra
from electra.data.shards import PreparedData
from electra.errors import RunError
from electra.presets import tiny
from electra.train import loop
from electra.train.metrics_log import read_metrics


@pytest.mark.slow
def test_log_of_a_resumed_run(text: Path, tmp_path: Path, tiny_run: dict, caplog: pytest.LogCaptureFixture) -> None:
    out = tmp_path / "run"
    electra.pretrain(str(text), out=str(out), **tiny_run)
    assert not notices(caplog, "resuming")
    (device,) = notices(caplog, "device")
    assert ", 1 thread, float32" in device
    (micro_batches,) = notices(caplog, "micro-batches")
    assert re.findall(r"\d+", micro_batches) == ["8", "4"]
    (few,) = notices(caplog, "few-heldout-tokens")
    assert f"{PreparedData.open(out / 'data').heldout.tokens:,}" in few
    (out / "summary.json").unlink()
    caplog.clear()
    electra.pretrain(str(text), out=str(out), **tiny_run)
    (resuming,) = notices(caplog, "resuming")
    assert " 12 " in resuming
    assert str(out / "checkpoints/step-00000012") in resuming
    assert notices(caplog, "reused-tokenizer")
    (data,) = notices(caplog, "reused-data")
    assert str(out / "data") in data


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
def test_a_run_that_was_killed_several_times_ends_bit_for_bit_the_same(
    finished: Path, text: Path, tmp_path: Path
) -> None:
    """SIGKILL during steps and while a checkpoint is written; losses and weights are those of an uninterrupted run."""
    out = tmp_path / "run"
    for step, writing in ((3, 0), (7, 0), (0, 8), (11, 0)):
        script = KILLED.format(tests=str(TESTS), step=step, writing=writing, text=str(text), out=str(out))
        assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    electra.pretrain(str(text), out=str(out), **TINY_RUN)
    assert trace(out) == trace(finished)
    assert weights(out) == weights(finished)


@pytest.mark.slow
def test_a_run_resumes_from_the_checkpoint_before_a_damaged_one(
    finished: Path, text: Path, tmp_path: Path, tiny_run: dict, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "run"
    electra.pretrain(str(text), out=str(out), **tiny_run)
    (out / "summary.json").unlink()
    newest = sorted((out / "checkpoints").iterdir())[-1] / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:-10])
    electra.pretrain(str(text), out=str(out), **tiny_run)
    (damaged,) = notices(caplog, "damaged-checkpoint")
    assert f"{newest.parent}: " in damaged
    assert "model.safetensors" in damaged
    (resuming,) = notices(caplog, "resuming")
    assert " 8 " in resuming
    assert trace(out) == trace(finished)
    assert weights(out) == weights(finished)


CODES = """
import logging, sys
from electra import cli
class Codes(logging.Handler):
    def emit(self, record): print(record.code, record.getMessage(), flush=True)
logging.getLogger("electra").addHandler(Codes())
cli.main(sys.argv[1:])
"""
"""Program that runs a command and also prints the code of each log record before its message."""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_saves_the_run(text: Path, tmp_path: Path, number: signal.Signals, tiny_run: dict) -> None:
    out = tmp_path / "run"
    tiny_run |= {"steps": 100_000, "text": [str(text)]}
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(tiny_run))
    command = [sys.executable, "-c", CODES, "pretrain", "--config", str(config), "--out", str(out)]
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
    with raises(RunError, "in-use", out, f"process {process.pid} "):
        electra.pretrain(out=str(out), config=str(config))
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 128 + number, stderr
    notice = re.search(r"^stopped .*?([\d,]+)", stdout, re.MULTILINE)
    assert notice
    stopped = int(notice[1].replace(",", ""))
    assert (out / f"checkpoints/step-{stopped:08d}/state.json").exists()
    assert "Traceback" not in stderr


@pytest.mark.slow
def test_time_budget_ends_fully_decayed(
    text: Path, tmp_path: Path, tiny_run: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a clock that advances by 2 ms per call: the budget is 1 s, the learning rate peaks at a tenth of it and ends near 0."""
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
def test_checkpoints_by_time(text: Path, tmp_path: Path, tiny_run: dict, caplog: pytest.LogCaptureFixture) -> None:
    tiny_run["training"] |= {"checkpoint_every": 1000, "checkpoint_minutes": 1e-9, "keep_checkpoints": 2}
    tiny_run["training"] |= {"micro_batch_size": 8}
    electra.pretrain(str(text), out=str(tmp_path / "run"), **tiny_run)
    (micro_batches,) = notices(caplog, "micro-batches")
    assert re.findall(r"\d+", micro_batches) == ["8", "8"]
    kept = sorted(path.name for path in (tmp_path / "run/checkpoints").iterdir())
    assert kept == ["step-00000011", "step-00000012"]


def test_nan_ends_the_run_with_advice(
    text: Path, tmp_path: Path, tiny_run: dict, caplog: pytest.LogCaptureFixture
) -> None:
    """The weights become NaN between two logged steps, before a checkpoint is due: it is not saved."""

    def fill_with_nan(model: torch.nn.Module) -> None:
        with torch.no_grad():
            model.target.network.head.dense.weight.fill_(float("nan"))

    tiny_run["training"] |= {"log_every": 3}
    with raises(electra.errors.DivergedError, "diverged", "--out", "--optimizer.learning-rate"):
        electra.pretrain(str(text), out=tmp_path / "run", callbacks=[AtStep(5, fill_with_nan)], **tiny_run)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert any("optimizer.learning_rate" in record.getMessage() for record in warnings), "the finding about the metrics"
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["step-00000004"]


def test_no_temporary_files_are_left(finished: Path) -> None:
    assert not [name for name in os.listdir(finished) if name.startswith(".writing")]
