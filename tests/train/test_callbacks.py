"""Callbacks of users, the order of their calls, experiment trackers, and the display of progress."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.progress import TaskProgressColumn
from support.callbacks import AtStep, CrashError, crash
from support.errors import notices, raises
from support.toy import TINY_RUN
from support.toy_tasks import finetune_settings
from torch import nn

import electra
from electra import console
from electra.errors import UsageError
from electra.train import loop
from electra.train.checkpoint import TrainingState
from electra.train.metrics_log import read_metrics
from electra.train.progress import Progress, format_duration
from electra.train.schedule import Budget
from electra.train.trackers import TRACKERS, require_trackers


class Recorder(electra.Callback):
    """Records its calls and adds a metric."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.losses: list[float] = []

    def on_train_begin(self, module: nn.Module, state: TrainingState) -> None:
        self.module = module
        self.calls.append(f"begin {state.step}")

    def on_step_end(self, state: TrainingState) -> None:
        self.calls.append(f"step {state.step}")

    def on_log(self, state: TrainingState, metrics: dict[str, float]) -> None:
        self.calls.append(f"log {state.step}")
        self.losses.append(metrics["loss"])
        metrics["norm_of_first_bias"] = float(next(self.module.parameters()).detach().norm())

    def on_save(self, state: TrainingState, path: Path) -> None:
        assert (path / "state.json").exists()
        self.calls.append(f"save {state.step}")

    def on_train_end(self, state: TrainingState) -> None:
        self.calls.append(f"end {state.step}")


SETTINGS = TINY_RUN | {"steps": 4, "training": TINY_RUN["training"] | {"log_every": 2, "checkpoint_every": 2}}


@pytest.mark.slow
def test_callback_is_called_during_pretraining(text: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    electra.pretrain(text, out=tmp_path / "run", callbacks=[recorder], **SETTINGS)
    half = ["step 1", "step 2", "log 2", "save 2"]
    assert recorder.calls == ["begin 0", *half, "step 3", "step 4", "log 4", "save 4", "end 4"]
    rows = list(read_metrics(tmp_path / "run/metrics.jsonl"))
    assert [row["loss"] for row in rows] == recorder.losses
    assert all(row["norm_of_first_bias"] > 0 for row in rows), "metrics.jsonl has the metric that the callback added"


@pytest.mark.slow
def test_error_of_a_callback_ends_the_run_and_the_other_callbacks(text: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    with pytest.raises(CrashError):
        electra.pretrain(text, out=tmp_path / "run", callbacks=[recorder, AtStep(3, crash)], **SETTINGS)
    assert recorder.calls[-2:] == ["step 3", "end 3"]
    electra.pretrain(text, out=tmp_path / "run", callbacks=[recorder], **SETTINGS)
    assert recorder.calls[-6:] == ["begin 2", "step 3", "step 4", "log 4", "save 4", "end 4"]


@pytest.mark.slow
def test_callback_is_called_in_both_stages(text: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    options = SETTINGS | {"procedure": "two-stage", "generator": {"size": 1.0}}
    electra.pretrain(text, out=tmp_path / "run", callbacks=[recorder], **options)
    assert [call for call in recorder.calls if call.startswith(("begin", "end"))] == ["begin 0", "end 2"] * 2


def test_callback_is_called_during_fine_tuning(inputs: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    electra.finetune(
        "sst2",
        model=inputs / "model",
        data=inputs / "glue",
        out=tmp_path / "out",
        epochs=1,
        batch_size=8,
        seeds=2,
        callbacks=[recorder],
    )
    assert recorder.calls == ["begin 0", "step 1", "step 2", "log 2", "save 2", "end 2"] * 2


def test_start_of_callbacks_does_not_count_as_training_time(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    class FakeClock:
        def __init__(self, before: float) -> None:
            self.start = now[0] - before

        def seconds(self) -> float:
            now[0] += 1.0
            return now[0] - self.start

    class SlowStart(electra.Callback):
        def on_train_begin(self, module: nn.Module, state: TrainingState) -> None:
            now[0] += 1000.0

        def on_step_end(self, state: TrainingState) -> None:
            assert state.seconds < 1000.0

    monkeypatch.setattr(loop, "Clock", FakeClock)
    summary = electra.pretrain(text, out=tmp_path / "run", callbacks=[SlowStart()], **SETTINGS)
    assert summary["seconds"] < 1000.0


def test_callback_that_fails_to_begin_is_not_ended(text: Path, tmp_path: Path) -> None:
    class Failing(electra.Callback):
        def on_train_begin(self, module: nn.Module, state: TrainingState) -> None:
            raise CrashError

        def on_train_end(self, state: TrainingState) -> None:
            raise AssertionError("it has not begun")

    with pytest.raises(CrashError):
        electra.pretrain(text, out=tmp_path / "run", callbacks=[Failing()], **SETTINGS)


class FakeTracker(ModuleType):
    """Has the three functions that wandb and trackio have in common, and records their arguments."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.runs: list[dict] = []
        self.rows: list[tuple[int, dict]] = []
        self.finished = 0

    def init(self, **settings) -> None:
        self.runs.append(settings)

    def log(self, metrics: dict, step: int) -> None:
        self.rows.append((step, metrics))

    def finish(self) -> None:
        self.finished += 1


@pytest.fixture(params=["wandb", "trackio"])
def tracker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakeTracker:
    """A fake package of a tracker."""
    fake = FakeTracker(request.param)
    fake.__spec__ = object()  # find_spec returns it
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    monkeypatch.delenv(f"{fake.__name__.upper()}_PROJECT", raising=False)
    return fake


@pytest.mark.slow
def test_tracker_gets_every_row_and_a_resumed_run_continues_in_it(
    text: Path, tmp_path: Path, tracker: FakeTracker
) -> None:
    options = SETTINGS | {"log_to": tracker.__name__}
    with pytest.raises(CrashError):
        electra.pretrain(text, out=tmp_path / "run", callbacks=[AtStep(3, crash)], **options)
    electra.pretrain(text, out=tmp_path / "run", **options)
    rows = list(read_metrics(tmp_path / "run/metrics.jsonl"))
    assert [(step, row["loss"]) for step, row in tracker.rows] == [(row["step"], row["loss"]) for row in rows]
    first, second = tracker.runs
    assert first == second, "the same run"
    assert first["project"] == "electra"
    assert first["resume"] == "allow"
    assert first["config"]["optimizer.learning_rate"] == electra.presets.tiny().optimizer.learning_rate
    assert tracker.finished == 2
    assert not (tmp_path / "run/events").exists(), "TensorBoard is not among the trackers of log_to"


def test_project_from_the_environment_has_a_run_for_each_seed(
    inputs: Path, tmp_path: Path, tracker: FakeTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{tracker.__name__.upper()}_PROJECT", "mine")
    settings = {"model": inputs / "model", "data": inputs / "glue", "epochs": 1, "log_to": [tracker.__name__]}
    electra.finetune("sst2", out=tmp_path / "out", seeds=2, **settings)
    assert {run["project"] for run in tracker.runs} == {"mine"}
    assert len({run["name"] for run in tracker.runs}) == 2


def test_missing_tracker_package_is_rejected_before_data_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("electra.train.trackers.find_spec", lambda name: None)
    require_trackers(["tensorboard"])
    with raises(UsageError, "missing-package", "--log-to wandb", "pip install wandb"):
        electra.pretrain("no text", out=tmp_path / "run", log_to="wandb")
    with raises(UsageError, "missing-package", "--log-to trackio", "pip install trackio"):
        electra.finetune("sst2", model=tmp_path, out=tmp_path / "run", log_to=["trackio"])
    assert not (tmp_path / "run").exists()


def test_unknown_tracker_is_rejected() -> None:
    with raises(UsageError, "unknown-choice", "--log-to", "tensorboard", "wandb", "trackio", "mlflow"):
        finetune_settings(Path("model"), "sst2", log_to=("mlflow",))


@pytest.mark.slow
def test_tracker_from_outside_the_package(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Notebook(electra.Callback):
        def __init__(self, directory: Path, config: Mapping[str, Any]) -> None:
            self.path = directory / "notebook.txt"
            self.seed = config["seed"]

        def on_log(self, state: TrainingState, metrics: dict[str, float]) -> None:
            with self.path.open("a") as file:
                file.write(f"{self.seed} {state.step} {metrics['loss']!r}\n")

    monkeypatch.setitem(TRACKERS, "notebook", Notebook)
    electra.pretrain(text, out=tmp_path / "run", log_to="notebook", seed=7, **SETTINGS)
    rows = read_metrics(tmp_path / "run/metrics.jsonl")
    expected = [f"7 {row['step']} {row['loss']!r}" for row in rows]
    assert (tmp_path / "run/notebook.txt").read_text().splitlines() == expected
    assert len(expected) == 2


def progress_of(budget: Budget) -> Progress:
    return Progress("training", budget, lambda state: f"step {state.step}", lambda metrics: f"loss {metrics['loss']}")


def test_bar_shows_the_speed_until_the_first_metrics() -> None:
    progress = progress_of(Budget(steps=100))
    progress.on_train_begin(nn.Linear(2, 2), TrainingState(10, seconds=2.0, tokens=1000.0))
    progress.on_step_end(TrainingState(11, seconds=2.5, tokens=1600.0))
    (task,) = progress.bar.tasks
    assert task.fields["detail"] == "step 11 1,200 tokens/s"
    bar = next(column for column in progress.bar.columns if isinstance(column, TaskProgressColumn))
    assert bar.render(task).plain.strip() == "11% done"
    progress.on_log(TrainingState(11, seconds=2.5), {"loss": 2.0})
    assert progress.bar.tasks[0].fields["detail"] == "step 11 loss 2.0"


def test_progress_is_logged_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("electra.train.progress.LINE_EVERY", 0.0)
    progress = progress_of(Budget(steps=100))
    progress.on_train_begin(nn.Linear(2, 2), TrainingState())
    with caplog.at_level("INFO", "electra"):
        progress.on_log(TrainingState(10, seconds=60.0), {"loss": 2.0})
    (line,) = notices(caplog, "progress")
    assert line.startswith("training: ")
    assert all(value in line for value in ("step 10 loss 2.0", "10%", "0:09:00"))


def test_bars_are_shown_unless_the_log_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(console.console), "is_terminal", True)
    assert console.shows_bars()
    try:
        console.show_log(30)  # --quiet
        assert not console.shows_bars()
    finally:
        console.show_log()


def test_format_of_durations() -> None:
    assert [format_duration(seconds) for seconds in (2054.4, 90_000.0, 1e300)] == [
        "0:34:14",
        "1 day, 1:00:00",
        "more than a century",
    ]
