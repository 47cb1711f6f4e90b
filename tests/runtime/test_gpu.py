"""Tests on a GPU: `CUDA_VISIBLE_DEVICES=0 pytest tests/runtime/test_gpu.py`; conftest.py hides GPUs without the variable."""

import math
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from support.callbacks import AtStep, CrashError, crash

import electra
from electra.pretraining import run as run_module
from electra.pretraining.objectives.catalog import OBJECTIVES
from electra.train.backward import Backward
from electra.train.metrics_log import read_metrics

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="there is no GPU, or CUDA_VISIBLE_DEVICES hides it"
)

FLOAT32 = {"device": "cuda", "precision": "float32"}


def losses(out: Path) -> list[float]:
    return [row["loss"] for row in read_metrics(out / "metrics.jsonl")]


@pytest.fixture(params=[False, True], ids=["plain", "graphs"])
def graphs(request: pytest.FixtureRequest, tiny_run: dict) -> bool:
    """Tiny runs with and without CUDA graphs."""
    tiny_run["training"]["graphs"] = request.param
    return request.param


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_trains(objective: str, text: Path, tmp_path: Path, tiny_run: dict) -> None:
    summary = electra.pretrain(
        str(text), out=str(tmp_path / "run"), objective=objective, **tiny_run, runtime={"device": "cuda"}
    )
    assert summary["step"] == 12
    assert all(0 < loss < 100 for loss in losses(tmp_path / "run"))


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize(
    "options",
    [
        {"generator": {"training": "adversarial"}},
        {"generator": {"kind": "unigram", "exclude_original_token": True}},
        {"contrast": {"weight": 1.0}},
        {"sequence_contrast": {"weight": 1.0}},
        {"masking": {"strategy": "rare"}},
        {"masking": {"strategy": "hard"}},
        {"procedure": "two-stage", "generator": {"size": 1.0}},
    ],
    ids=["adversarial", "unigram", "contrast", "sequence contrast", "rare", "hard", "two stages"],
)
def test_every_method_trains(options: dict, text: Path, tmp_path: Path, tiny_run: dict) -> None:
    electra.pretrain(str(text), out=str(tmp_path / "run"), **options, **tiny_run, runtime={"device": "cuda"})
    found = losses(tmp_path / "run")
    assert found
    assert all(map(math.isfinite, found))


def test_length_warmup_trains(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    short = {"steps": 5, "length": 8}
    electra.pretrain(str(text), out=str(tmp_path / "run"), **tiny_run, length_warmup=short, runtime={"device": "cuda"})
    assert all(map(math.isfinite, losses(tmp_path / "run")))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("graphs", [False, True], ids=["plain", "graphs"])
def test_compiled_training_reaches_the_loss_of_eager_training(
    graphs: bool, precision: str, text: Path, tmp_path: Path, tiny_run: dict
) -> None:
    """In other processes, because torch.compile fails on the type checks of the tests."""
    tiny_run |= {"steps": 40, "text": [str(text)], "runtime": FLOAT32 | {"precision": precision}}
    for name, compiled in (("eager", False), ("compiled", True)):
        tiny_run["training"] |= {"compile": compiled, "graphs": graphs and compiled}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(tiny_run))
        command = [sys.executable, "-m", "electra", "pretrain", "--config", f"{name}.yaml", "--out", name]
        subprocess.run(command, cwd=tmp_path, check=True)
    eager, compiled = (statistics.fmean(losses(tmp_path / name)[-20:]) for name in ("eager", "compiled"))
    assert compiled == pytest.approx(eager, rel=0.02)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_replayed_steps_equal_steps_without_graphs(
    precision: str, text: Path, tmp_path: Path, tiny_run: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With equal shapes, graphs draw the same random numbers. Losses differ slightly: sums on a GPU have no fixed order."""
    monkeypatch.setattr(run_module, "list_graph_lengths", lambda seq_len: [])
    where = FLOAT32 | {"precision": precision}
    for name, graphs in (("plain", False), ("graphs", True)):
        tiny_run["training"]["graphs"] = graphs
        electra.pretrain(str(text), out=str(tmp_path / name), **tiny_run, runtime=where)
    assert losses(tmp_path / "graphs") == pytest.approx(losses(tmp_path / "plain"), rel=1e-3)


def test_steps_do_not_synchronize_with_the_device(
    text: Path, tmp_path: Path, tiny_run: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = Backward.__call__

    def watched(self, *args, **kwargs):
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            return passes(self, *args, **kwargs)
        finally:
            torch.cuda.set_sync_debug_mode(before)

    monkeypatch.setattr(Backward, "__call__", watched)
    electra.pretrain(str(text), out=str(tmp_path / "run"), **tiny_run, runtime={"device": "cuda"})


def test_bfloat16_reaches_the_loss_of_float32(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    for precision in ("float32", "bfloat16"):
        where = {"device": "cuda", "precision": precision}
        options = tiny_run | {"steps": 200, "runtime": where}
        electra.pretrain(str(text), out=str(tmp_path / precision), **options)
    exact, rounded = (statistics.fmean(losses(tmp_path / name)[-20:]) for name in ("float32", "bfloat16"))
    assert rounded == pytest.approx(exact, rel=0.01)


@pytest.mark.usefixtures("graphs")
def test_stopped_run_resumes(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    """Losses are approximately equal, because sums of gradients have no fixed order on a GPU."""
    electra.pretrain(str(text), out=str(tmp_path / "whole"), **tiny_run, runtime=FLOAT32)
    with pytest.raises(CrashError):
        electra.pretrain(text, out=tmp_path / "run", callbacks=[AtStep(7, crash)], **tiny_run, runtime=FLOAT32)
    electra.pretrain(str(text), out=str(tmp_path / "run"), **tiny_run, runtime=FLOAT32)
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "whole"), rel=1e-3)
