"""Runs with other micro-batch sizes: data and losses are the same, and a resumed run keeps its micro-batch size."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.errors import notices, raises
from support.toy import TINY_RUN

import electra
from electra.errors import RunError, UsageError
from electra.presets import tiny
from electra.pretraining import execution
from electra.pretraining.execution import resolve_micro_batch_size
from electra.pretraining.objectives.corruptions.masking import MaskedPositions
from electra.pretraining.objectives.model import PretrainingModel
from electra.runtime.setup import Runtime
from electra.train.checkpoint import Checkpoints, seal
from electra.train.metrics_log import read_metrics

LOSSES = ("loss", "generator_loss", "discriminator_loss", "sampled_accuracy", "gradient_norm")


def without_dropout(**training: int) -> dict:
    """Return the options of a tiny run without dropout, with other options of `training`."""
    model = TINY_RUN["model"] | {"dropout": 0.0, "attention_dropout": 0.0}
    return TINY_RUN | {"model": model, "training": TINY_RUN["training"] | training}


@pytest.mark.slow
@pytest.mark.parametrize("warmup", [0, 6], ids=["whole", "pieces"])
def test_micro_batches_do_not_change_a_run(warmup: int, text: Path, tmp_path: Path) -> None:
    losses = []
    for size in (8, 4, 1):
        out = tmp_path / str(size)
        options = without_dropout(micro_batch_size=size) | {"length_warmup": {"steps": warmup, "length": 8}}
        electra.pretrain(str(text), out=str(out), **options)
        losses.append([[row[name] for name in LOSSES] for row in read_metrics(out / "metrics.jsonl")])
    assert len(losses[0]) == TINY_RUN["steps"]
    for other in losses[1:]:
        for row, expected in zip(other, losses[0], strict=True):
            assert row == pytest.approx(expected, rel=1e-4, abs=1e-6)


def read_tokens(monkeypatch: pytest.MonkeyPatch) -> list[MaskedPositions]:
    """Record the masked positions of all training batches."""
    seen: list[MaskedPositions] = []
    run = PretrainingModel.run

    def watched(self: PretrainingModel, batch):
        done = run(self, batch)
        if self.training:
            seen.append(done.masked)
        return done

    monkeypatch.setattr(PretrainingModel, "run", watched)
    return seen


@pytest.mark.slow
def test_the_second_stage_masks_other_positions_than_the_first(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = read_tokens(monkeypatch)
    options = without_dropout(micro_batch_size=8) | {"procedure": "two-stage-scratch"}
    electra.pretrain(str(text), out=str(tmp_path / "run"), **options)
    assert len(seen) == TINY_RUN["steps"]
    first, second = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    for a, b in zip(first, second, strict=True):
        assert a.positions.shape != b.positions.shape or not torch.equal(a.positions, b.positions)


@pytest.mark.slow
def test_a_resumed_run_keeps_its_micro_batches(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The size is kept on another machine, whose default differs, because dropout is sampled per micro-batch."""
    training = {name: value for name, value in TINY_RUN["training"].items() if name != "micro_batch_size"}
    options = TINY_RUN | {"training": training}
    electra.pretrain(str(text), out=str(tmp_path / "whole"), **options)
    out = tmp_path / "resumed"
    caplog.clear()
    electra.pretrain(str(text), out=str(out), **options)
    (notice,) = notices(caplog, "micro-batches")
    assert re.findall(r"\d+", notice) == ["8", "8"], "batch size and micro-batch size"
    newest = max((out / "checkpoints").iterdir())
    assert json.loads((newest / "state.json").read_text())["settings"] == {"micro_batch_size": 8}
    (out / "summary.json").unlink()
    for path in sorted((out / "checkpoints").iterdir())[1:]:
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    monkeypatch.setattr(execution, "CPU_MICRO_BATCH", 2)  # the default for new runs
    caplog.clear()
    electra.pretrain(str(text), out=str(out), **options)
    (notice,) = notices(caplog, "micro-batches")
    assert re.findall(r"\d+", notice) == ["8", "8"]
    weights = [(run / "discriminator/model.safetensors").read_bytes() for run in (tmp_path / "whole", out)]
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("recorded", "world_size", "expected"), [(0, 1, 64), (16, 1, 16), (16, 4, 16), (64, 4, 32), (48, 1, 64)]
)
def test_the_recorded_size_is_kept_if_it_is_possible(
    recorded: int, world_size: int, expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    config = replace(tiny(), training=replace(tiny().training, batch_size=128))
    runtime = Runtime(torch.device("cpu"), torch.float32, world_size=world_size)
    assert resolve_micro_batch_size(config, runtime, recorded) == expected
    found = notices(caplog, "other-micro-batches")
    assert [re.findall(r"\d+", notice) for notice in found] == (
        [[str(expected), str(recorded)]] if recorded not in (0, expected) else []
    )


def test_another_micro_batch_size_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    config = replace(tiny(), training=replace(tiny().training, batch_size=128, micro_batch_size=32))
    runtime = Runtime(torch.device("cpu"), torch.float32)
    for recorded in (0, 32, 64):
        assert resolve_micro_batch_size(config, runtime, recorded) == 32
        assert bool(notices(caplog, "other-micro-batches")) == (recorded == 64)


@pytest.mark.slow
def test_a_checkpoint_of_a_version_with_other_random_numbers_is_rejected(text: Path, tmp_path: Path) -> None:
    """The resumed run would differ from an uninterrupted one without a warning."""
    out = tmp_path / "run"
    electra.pretrain(str(text), out=str(out), **TINY_RUN)
    (out / "summary.json").unlink()
    for path in (out / "checkpoints").iterdir():
        state = json.loads((path / "state.json").read_text())
        for name in ("sha256", "format", "settings"):
            del state[name]
        (path / "state.json").write_text(json.dumps(state | {"sha256": seal(state)}))
    with raises(RunError, "other-version", f"{out}/checkpoints/", " 1,", " 2:", "--out"):
        electra.pretrain(str(text), out=str(out), **TINY_RUN)


def test_local_means_need_the_recorded_micro_batch_size() -> None:
    config = replace(tiny(), training=replace(tiny().training, batch_size=128, means="local"))
    with raises(UsageError, "uneven-batch", "training.means", " 64 ", " 4 ", " 128 "):
        resolve_micro_batch_size(config, Runtime(torch.device("cpu"), torch.float32, world_size=4), 64)


def test_settings_of_damaged_checkpoints_are_ignored(tmp_path: Path) -> None:
    for name, content in (("step-00000001", "{}"), ("step-00000002", "not json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state.json").write_text(content)
    assert Checkpoints(tmp_path, 3).recorded_settings() == {}
