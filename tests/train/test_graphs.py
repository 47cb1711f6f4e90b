"""`--training.graphs` without a GPU: the recorder of CUDA graphs is replaced by one that computes each step again."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from support.callbacks import AtStep, CrashError, crash
from support.computing_again import ComputeAgain
from support.errors import raises
from support.toy import trace

import electra
from electra.errors import DeviceError, UsageError
from electra.pretraining import run as run_module
from electra.pretraining.execution import list_graph_lengths
from electra.train import loop
from electra.train.graphs import Sums
from electra.train.metrics_log import read_metrics
from electra.train.optimizer import clip_gradients

METHODS: dict[str, dict[str, Any]] = {
    "electra": {},
    "mlm": {"objective": "mlm"},
    "all tokens": {"objective": "all-tokens-mlm"},
    "means of micro-batches": {"training": {"means": "local"}},
    "hard": {"masking": {"strategy": "hard"}},
    "two stages, so with frozen weights": {"procedure": "two-stage", "generator": {"size": 1.0}},
    "disentangled embeddings and a mixture": {"generator": {"tying": "disentangled", "kind": "layer-mixture"}},
    "bfloat16": {"runtime": {"precision": "bfloat16"}},
}


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> type[ComputeAgain]:
    monkeypatch.setattr(run_module, "check_graphs", lambda *_: None)
    monkeypatch.setattr(loop, "CudaRecorder", ComputeAgain)
    return ComputeAgain


def merged(options: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    return options | {
        name: options.get(name, {}) | value if isinstance(value, dict) else value for name, value in more.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_replayed_steps_equal_steps_without_graphs(
    method: str, text: Path, tmp_path: Path, tiny_run: dict, recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every logged loss is equal, with micro-batches of several shapes and gradients accumulated over two of them."""
    monkeypatch.setattr(run_module, "list_graph_lengths", lambda seq_len: [])  # random numbers depend on shapes
    options = merged(tiny_run, METHODS[method])
    electra.pretrain(str(text), out=str(tmp_path / "plain"), **options)
    electra.pretrain(str(text), out=str(tmp_path / "graphs"), **merged(options, {"training": {"graphs": True}}))
    assert trace(tmp_path / "graphs") == trace(tmp_path / "plain")
    assert recorder.recordings > 1


@pytest.mark.slow
def test_few_lengths_are_recorded(text: Path, tmp_path: Path, tiny_run: dict, recorder) -> None:
    electra.pretrain(str(text), out=str(tmp_path / "run"), **merged(tiny_run, {"training": {"graphs": True}}))
    assert 1 <= recorder.recordings <= 2, "one length, with padding and without"
    assert all(math.isfinite(row["loss"]) for row in read_metrics(tmp_path / "run/metrics.jsonl"))


def test_lengths() -> None:
    assert list_graph_lengths(128) == [32, 64, 96, 128]
    assert list_graph_lengths(100) == [32, 64, 96, 100]
    assert list_graph_lengths(16) == [16]


@pytest.mark.slow
def test_gradients_keep_their_memory(
    text: Path, tmp_path: Path, tiny_run: dict, recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph writes to the memory that it was recorded with, also after other graphs are recorded."""
    monkeypatch.setattr(run_module, "list_graph_lengths", lambda seq_len: [])
    seen: list[list[int]] = []
    recorded: list[int] = []

    def watched(parameters, config):
        parameters = list(parameters)
        seen.append([p.grad.data_ptr() for p in parameters if p.grad is not None])
        recorded.append(recorder.recordings)
        return clip_gradients(parameters, config)

    monkeypatch.setattr(loop, "clip_gradients", watched)
    electra.pretrain(str(text), out=str(tmp_path / "run"), **merged(tiny_run, {"training": {"graphs": True}}))
    assert len(seen) == 12
    assert recorded[-1] > recorded[0], "a graph is recorded after the first step"
    assert all(each == seen[0] for each in seen)


def test_sums_are_copied_before_the_next_replay() -> None:
    sums: Sums = {}
    histogram = torch.ones(2, dtype=torch.float64)
    loop.add(sums, {"scores": histogram})
    histogram.fill_(5)
    loop.add(sums, {"scores": histogram})
    assert sums["scores"].tolist() == [6, 6]


@pytest.mark.slow
def test_run_can_be_resumed_with_graphs(
    text: Path, tmp_path: Path, tiny_run: dict, recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "list_graph_lengths", lambda seq_len: [])
    out = tmp_path / "run"
    electra.pretrain(str(text), out=str(tmp_path / "whole"), **tiny_run)
    with pytest.raises(CrashError):
        electra.pretrain(str(text), out=str(out), callbacks=[AtStep(5, crash)], **tiny_run)
    electra.pretrain(str(text), out=str(out), **merged(tiny_run, {"training": {"graphs": True}}))
    assert trace(out) == trace(tmp_path / "whole")


def test_failed_recording_is_reported(
    text: Path, tmp_path: Path, tiny_run: dict, recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(self, step):
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(recorder, "record", record)
    options = merged(tiny_run, {"training": {"graphs": True}})
    with raises(DeviceError, "no-graph", "--training.graphs", "first line") as raised:
        electra.pretrain(str(text), out=str(tmp_path / "run"), **options)
    assert "second line" not in str(raised.value)


@pytest.mark.slow
def test_graphs_do_not_change_the_number_of_flops(text: Path, tmp_path: Path, tiny_run: dict, recorder) -> None:
    """Padding to one of a few lengths is not counted, as in the paper."""
    for name, training in (("plain", {}), ("graphs", {"graphs": True})):
        electra.pretrain(str(text), out=str(tmp_path / name), **merged(tiny_run, {"training": training}))
    plain, graphs = ([row["flops"] for row in trace(tmp_path / name)] for name in ("plain", "graphs"))
    assert graphs == plain


def test_graphs_without_a_gpu_are_rejected(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    options = merged(tiny_run, {"training": {"graphs": True}, "runtime": {"device": "cpu"}})
    with raises(DeviceError, "no-gpu", "--training.graphs"):
        electra.pretrain(str(text), out=str(tmp_path / "run"), **options)
    assert not (tmp_path / "run").exists()


def test_graphs_with_length_warmup_are_rejected(text: Path, tmp_path: Path, tiny_run: dict) -> None:
    options = merged(tiny_run, {"training": {"graphs": True}, "length_warmup": {"steps": 4, "length": 8}})
    with raises(UsageError, "conflicting-options", "--training.graphs", "--length-warmup.steps"):
        electra.pretrain(str(text), out=str(tmp_path / "run"), **options)
