"""Two processes on the CPU against one: the same losses, whatever shares the micro-batches."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

import electra
from electra.errors import UsageError
from electra.presets import PRESETS, tiny
from electra.pretraining.run import rows_at_once
from electra.runtime import Runtime
from electra.train.log import read_metrics

LOSSES = ("loss", "generator_loss", "discriminator_loss", "gradient_norm", "auc", "tokens", "flops")


@pytest.mark.parametrize("means", ["global", "local"])
def test_two_processes_are_one(text: Path, tmp_path: Path, tiny_run: dict, means: str) -> None:
    """Dropout, masks and samples included: micro-batch i of a step draws the same whoever computes it."""
    tiny_run["training"]["means"] = means
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(tiny_run | {"text": [str(text)]}))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "electra"]
    command = [*launch, "pretrain", "--config", str(config), "--out", str(tmp_path / "two")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("Report:") == 1, "one process speaks"
    electra.pretrain(str(text), out=str(tmp_path / "one"), **tiny_run)
    two, one = (list(read_metrics(tmp_path / name / "metrics.jsonl")) for name in ("two", "one"))
    assert len(one) == len(two) == 12
    for a, b in zip(one, two, strict=True):
        for name in LOSSES:
            assert a[name] == pytest.approx(b[name], rel=1e-5, abs=1e-5), (a["step"], name)


def test_two_stages_in_two_processes(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    """The second process waits until the first stage is saved."""
    tiny_run |= {"procedure": "two-stage-scratch", "text": [str(text)], "steps": 4}
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(tiny_run))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "electra"]
    command = [*launch, "pretrain", "--config", str(config), "--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("Report:") == 2, "one process speaks, of each stage"


def test_a_batch_that_processes_cannot_share() -> None:
    where, config = Runtime(torch.device("cpu"), torch.float32, 0, 3), tiny()
    odd = replace(config, training=replace(config.training, batch_size=64))
    with pytest.raises(UsageError, match="--training.batch-size 64 cannot be shared evenly by 3 processes"):
        rows_at_once(odd, where)
    assert rows_at_once(replace(config, training=replace(config.training, batch_size=120)), where) == 40


@pytest.mark.parametrize(("gib", "rows"), [(16, {"small": 128, "base": 16}), (140, {"small": 128, "base": 128})])
def test_micro_batches_fill_a_gpus_memory(gib: int, rows: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(total_memory=gib * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    where = Runtime(torch.device("cuda"), torch.bfloat16)
    assert {name: rows_at_once(PRESETS[name](), where) for name in rows} == rows
