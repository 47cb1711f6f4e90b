"""Checkpoints: content, detection of damage, number that is kept, and errors of the file system."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.errors import notices, raises
from support.places import TESTS
from support.tiny_models import checkpoints_in, trained_module
from torch import nn

from electra import storage
from electra.errors import RunError, StorageError
from electra.train.checkpoint import TrainingState
from electra.train.optimizer import OptimizerConfig, build_optimizer


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


def test_saved_state_is_restored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = checkpoints_in(tmp_path)
    module, optimizer = trained_module()
    sums = {"loss": torch.tensor(1.5, dtype=torch.float64), "scores": torch.arange(4.0)}
    kept.save(module, optimizer, TrainingState(3, 1.25, 60.0, 1e9, sums))
    other = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8))
    theirs = build_optimizer(other.named_parameters(), OptimizerConfig())
    state = kept.restore(other, theirs)
    assert (state.step, state.seconds, state.tokens, state.flops) == (3, 1.25, 60.0, 1e9)
    assert state.sums.keys() == sums.keys()
    assert all(torch.equal(state.sums[name], sums[name]) for name in sums)
    for one, two in ((module, optimizer), (other, theirs)):
        one.zero_grad()
        torch.manual_seed(9)
        one(torch.randn(5, 4)).square().mean().backward()
        two.step()
    assert same(module, other), "the next update is equal, so the moments of the optimizer are equal too"
    assert not caplog.messages


def test_without_checkpoints_the_initial_state_is_returned(tmp_path: Path) -> None:
    kept = checkpoints_in(tmp_path)
    assert kept.restore(*trained_module()) == TrainingState()


def test_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    kept = checkpoints_in(tmp_path, keep=2)
    for step in (1, 2, 4, 30):
        kept.save(*trained_module(), TrainingState(step))
    assert [path.name for path in kept.paths()] == ["step-00000004", "step-00000030"]


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_damaged_checkpoint_is_skipped(
    tmp_path: Path, name: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    kept = checkpoints_in(tmp_path)
    first, optimizer = trained_module()
    kept.save(first, optimizer, TrainingState(1))
    kept.save(*trained_module(seed=1), TrainingState(2))
    file = kept.paths()[-1] / name
    content = bytearray(file.read_bytes())
    if damage == "gone":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    else:
        content[20] ^= 1
        file.write_bytes(content)
    module, optimizer = trained_module(seed=2)
    state = kept.restore(module, optimizer)
    assert state.step == 1
    assert same(module, first)
    (warning,) = notices(caplog, "damaged-checkpoint")
    assert "step-00000002" in warning


def test_run_does_not_start_again_if_all_checkpoints_are_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = checkpoints_in(tmp_path)
    for step in (1, 2):
        kept.save(*trained_module(), TrainingState(step))
    for path in kept.paths():
        (path / "model.safetensors").unlink()
    with raises(RunError, "all-damaged", kept.directory):
        kept.restore(*trained_module())
    assert len(notices(caplog, "damaged-checkpoint")) == 2


@pytest.mark.parametrize("name", ["", "step-00000002", "step-00000002/state.json", "step-00000002/model.safetensors"])
def test_checkpoint_without_read_permission_is_not_reported_as_damaged(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kept = checkpoints_in(tmp_path)
    for step in (1, 2):
        kept.save(*trained_module(), TrainingState(step))
    locked = kept.directory / name

    def refuse(path: Path, *_) -> None:
        if path == locked or locked in path.parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    for method in ("open", "iterdir", "read_text"):
        allowed = getattr(Path, method)
        monkeypatch.setattr(Path, method, lambda path, *a, f=allowed, **k: refuse(path) or f(path, *a, **k))
    with raises(RunError, "no-permission", locked):
        kept.restore(*trained_module())
    assert not caplog.messages


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_umask_determines_the_permissions_of_weights(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        storage.write_tensors(tmp_path / "a.safetensors", {"a": torch.ones(2)})
        kept = checkpoints_in(tmp_path)
        kept.save(*trained_module(), TrainingState(1))
    finally:
        os.umask(before)
    files = [tmp_path / "a.safetensors", *kept.paths()[0].iterdir()]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o666 & ~mask}


def test_damaged_newer_checkpoint_does_not_displace_a_new_one(tmp_path: Path) -> None:
    kept = checkpoints_in(tmp_path, keep=1)
    kept.save(*trained_module(), TrainingState(9))
    (kept.paths()[0] / "model.safetensors").write_bytes(b"")
    kept.save(*trained_module(), TrainingState(5))
    assert [path.name for path in kept.paths()] == ["step-00000005"]
    assert kept.restore(*trained_module()).step == 5


@pytest.mark.slow
def test_process_killed_while_writing_leaves_the_previous_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The incomplete files that it leaves are not used, and the next checkpoint replaces them."""
    script = f"""
import os, sys
sys.path.insert(0, {str(TESTS)!r})
from pathlib import Path
import torch
from torch import nn
from support.tiny_models import checkpoints_in, trained_module
from electra.errors import StorageError
from electra.train.checkpoint import TrainingState
kept = checkpoints_in(Path({str(tmp_path)!r}))
kept.save(*trained_module(), TrainingState(1))
import electra.train.checkpoint as c
c.checksum = lambda path: os.kill(os.getpid(), 9)
kept.save(*trained_module(), TrainingState(2))
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    kept = checkpoints_in(tmp_path)
    assert any(path.name.startswith(".writing") for path in kept.directory.iterdir())
    assert kept.restore(*trained_module()).step == 1
    kept.save(*trained_module(), TrainingState(2))
    assert [path.name for path in kept.paths()] == ["step-00000001", "step-00000002"]
    assert not any(path.name.startswith(".writing") for path in kept.directory.iterdir())
    assert not caplog.messages


@pytest.mark.slow
def test_failed_write_leaves_the_previous_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A limit of 4 kB on the size of files makes a write fail as a full disk does."""
    script = f"""
import resource, sys
sys.path.insert(0, {str(TESTS)!r})
from pathlib import Path
import torch
from torch import nn
from support.tiny_models import checkpoints_in, trained_module
from electra.errors import StorageError
from electra.train.checkpoint import TrainingState
kept = checkpoints_in(Path({str(tmp_path)!r}))
kept.save(*trained_module(), TrainingState(1))
big = nn.Linear(100, 100)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    kept.save(big, torch.optim.AdamW(big.parameters()), TrainingState(2))
except StorageError as error:
    print(error.code, error)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    (line,) = done.stdout.splitlines()
    assert line.startswith("unwritable ")
    assert "step-00000002" in line
    kept = checkpoints_in(tmp_path)
    assert [path.name for path in kept.directory.iterdir()] == ["step-00000001"]
    assert kept.restore(*trained_module()).step == 1
    assert not caplog.messages


def test_full_disk_is_detected_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = checkpoints_in(tmp_path)
    kept.save(*trained_module(), TrainingState(1))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(100, 99, 1))
    with raises(StorageError, "disk-full", os.strerror(errno.ENOSPC), "0 MB"):
        kept.save(*trained_module(), TrainingState(2))
    assert [path.name for path in kept.directory.iterdir()] == ["step-00000001"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_missing_write_permission(tmp_path: Path) -> None:
    kept = checkpoints_in(tmp_path)
    tmp_path.chmod(0o500)
    with raises(StorageError, "no-permission", os.strerror(errno.EACCES)):
        kept.save(*trained_module(), TrainingState(1))


def test_checkpoint_of_another_model_is_rejected(tmp_path: Path) -> None:
    kept = checkpoints_in(tmp_path)
    kept.save(*trained_module(), TrainingState(1))
    with raises(RunError, "other-model", "step-00000001"):
        kept.restore(nn.Linear(3, 3))
