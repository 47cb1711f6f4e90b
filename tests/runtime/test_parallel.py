"""Two processes on the CPU against one: the same losses, whatever shares the micro-batches."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from support.places import TESTS
from support.processes import TIMEOUT

import electra
from electra.errors import UsageError
from electra.presets import PRESETS, tiny
from electra.pretraining.execution import resolve_micro_batch_size
from electra.runtime.setup import Runtime
from electra.train.metrics_log import read_metrics

LOSSES = ("loss", "generator_loss", "discriminator_loss", "gradient_norm", "auc", "tokens", "flops")
GRAPHED = str(TESTS / "support/computing_again.py")


def two_processes(config: dict, tmp_path: Path, program: tuple[str, ...] = ("-m", "electra")) -> str:
    """What a run in two processes says; it lies in `two`."""
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(config))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launch, *program, "pretrain", "--config", str(file), "--out", str(tmp_path / "two")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def assert_alike(tmp_path: Path, steps: list[int]) -> None:
    """The runs in one process and in two have logged these steps, with the same losses."""
    two, one = (list(read_metrics(tmp_path / name / "metrics.jsonl")) for name in ("two", "one"))
    assert [row["step"] for row in two] == [row["step"] for row in one] == steps
    for a, b in zip(one, two, strict=True):
        for name in LOSSES:
            assert a[name] == pytest.approx(b[name], rel=1e-5, abs=1e-5), (a["step"], name)


@pytest.mark.slow
@pytest.mark.parametrize("means", ["global", "local"])
def test_two_processes_are_one(text: Path, tmp_path: Path, tiny_run: dict, means: str) -> None:
    """Dropout, masks and samples included: micro-batch i of a step draws the same whoever computes it."""
    tiny_run["training"]["means"] = means
    said = two_processes(tiny_run | {"text": [str(text)]}, tmp_path)
    assert said.count("report: ") == 1, "one process logs"
    electra.pretrain(str(text), out=str(tmp_path / "one"), **tiny_run)
    assert_alike(tmp_path, list(range(1, 13)))


@pytest.mark.slow
def test_two_processes_that_replay_graphs_are_one(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    """They add their gradients up themselves, once a step; of four micro-batches, so that each has two."""
    tiny_run["training"] |= {"batch_size": 16}
    graphed = tiny_run | {"training": tiny_run["training"] | {"graphs": True}, "text": [str(text)]}
    two_processes(graphed, tmp_path, (GRAPHED,))
    electra.pretrain(str(text), out=str(tmp_path / "one"), **tiny_run)
    assert_alike(tmp_path, list(range(1, 13)))


@pytest.mark.slow
def test_two_stages_in_two_processes(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    """The second process waits until the first stage is saved."""
    tiny_run |= {"procedure": "two-stage-scratch", "text": [str(text)], "steps": 4}
    assert two_processes(tiny_run, tmp_path).count("report: ") == 2, "one process logs, for each stage"


@pytest.mark.slow
def test_logs_and_checkpoints_that_do_not_meet(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    """The last step is a checkpoint's and no log's, and others are due by the clock: no process may wait for another alone."""
    tiny_run["training"] |= {"log_every": 5, "checkpoint_minutes": 1e-4}
    two_processes(tiny_run | {"text": [str(text)]}, tmp_path)
    electra.pretrain(str(text), out=str(tmp_path / "one"), **tiny_run)
    assert_alike(tmp_path, [5, 10, 12])


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"generator": {"training": "adversarial"}},
        {"contrast": {"weight": 1.0}},
        {"masking": {"strategy": "hard"}},
        {"objective": "all-tokens-mlm"},
    ],
    ids=["adversarial", "contrast", "hard", "copy mechanism"],
)
def test_every_parameter_takes_part(options: dict, text: Path, tmp_path: Path, tiny_run: dict) -> None:
    """One that had no gradient in a step would stop the processes."""
    options |= {"text": [str(text)], "steps": 3}
    two_processes(tiny_run | options, tmp_path)
    assert len(list(read_metrics(tmp_path / "two/metrics.jsonl"))) == 3


def test_a_batch_that_processes_cannot_share() -> None:
    runtime, config = Runtime(torch.device("cpu"), torch.float32, 0, 3), tiny()
    odd = replace(config, training=replace(config.training, batch_size=64))
    with pytest.raises(UsageError, match="--training.batch-size 64 cannot be shared evenly by 3 processes"):
        resolve_micro_batch_size(odd, runtime)
    assert resolve_micro_batch_size(replace(config, training=replace(config.training, batch_size=120)), runtime) == 40


@pytest.mark.parametrize(("gib", "rows"), [(16, {"small": 128, "base": 16}), (140, {"small": 128, "base": 128})])
def test_micro_batches_fill_a_gpus_memory(gib: int, rows: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    properties = SimpleNamespace(total_memory=gib * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    runtime = Runtime(torch.device("cuda"), torch.bfloat16)
    assert {name: resolve_micro_batch_size(PRESETS[name](), runtime) for name in rows} == rows


def test_graphs_have_half_of_a_gpus_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other half is for a shape that is computed for the first time."""
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=16 * 2**30))
    base = PRESETS["base"]()
    graphed = replace(base, training=replace(base.training, graphs=True))
    assert resolve_micro_batch_size(graphed, Runtime(torch.device("cuda"), torch.bfloat16)) == 8
