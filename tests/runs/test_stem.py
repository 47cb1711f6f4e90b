"""Runs that continue from the stem of another one, the checkpoint at the start of its decay (`--stem`)."""

from pathlib import Path

import pytest
from support.callbacks import AtStep, CrashError, crash
from support.errors import notices, raises
from support.toy import TINY_RUN, trace, weights

import electra
from electra.errors import RunError, UsageError
from electra.pretraining import execution
from electra.train.checkpoint import Checkpoints

WSD = TINY_RUN | {
    "schedule": {"kind": "wsd", "warmup_steps": 3, "max_warmup": 0.5, "decay": 0.25},
    "length_warmup": {"steps": 5, "length": 12},
    "optimizer": {"ema": 0.7},
}
"""Warm-up of 3 updates; 12 steps decay from step 9 on, 20 from step 15 on."""
LAST = "checkpoints/step-{:08d}/{}.safetensors"


def list_stems(run: Path) -> list[str]:
    return [path.name for path in Checkpoints(run / "checkpoints", 1).stem.paths()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, text: Path) -> dict[int, Path]:
    """Runs of 12 and of 20 steps, each from scratch."""
    folder = tmp_path_factory.mktemp("stems")
    for steps in (12, 20):
        electra.pretrain(text, out=folder / str(steps), **WSD | {"steps": steps})
    return {steps: folder / str(steps) for steps in (12, 20)}


def test_stem_is_kept_beside_the_newest_checkpoints(runs: dict[int, Path], tmp_path: Path, text: Path) -> None:
    assert {steps: list_stems(run) for steps, run in runs.items()} == {12: ["step-00000009"], 20: ["step-00000015"]}
    training = WSD["training"] | {"keep_checkpoints": 1, "checkpoint_every": 1}
    electra.pretrain(text, out=tmp_path / "run", **WSD | {"training": training})
    assert list_stems(tmp_path / "run") == ["step-00000009"]
    assert len(Checkpoints(tmp_path / "run/checkpoints", 1).paths()) == 1


def test_schedule_without_a_stable_phase_has_no_stem(finished: Path) -> None:
    assert list_stems(finished) == []


@pytest.mark.parametrize(
    ("stem", "given"),
    [
        (12, {"steps": 20}),
        (12, {}),
        (20, {"steps": 18, "schedule": {"decay": 1 / 6}}),
    ],
    ids=["longer stable phase", "same budget", "smaller budget with a shorter decay"],
)
def test_run_from_a_stem_equals_a_run_from_scratch(
    runs: dict[int, Path], tmp_path: Path, text: Path, stem: int, given: dict, caplog: pytest.LogCaptureFixture
) -> None:
    """All rows of metrics, the weights, their averages and the optimizer's state are equal to the bit."""
    steps = given.get("steps", stem)
    schedule = WSD["schedule"] | given.get("schedule", {})
    scratch = runs.get(steps)
    if scratch is None:
        scratch = tmp_path / "scratch"
        electra.pretrain(text, out=scratch, **WSD | {"steps": steps, "schedule": schedule})
    out = tmp_path / "run"
    caplog.clear()
    electra.pretrain(stem=runs[stem], out=out, **given)
    (notice,) = notices(caplog, "stem")
    assert str(runs[stem]) in notice
    assert not notices(caplog, "resuming")
    assert trace(out) == trace(scratch)
    assert weights(out) == weights(scratch)
    for name in ("model", "optimizer"):
        last = LAST.format(steps, name)
        assert (out / last).read_bytes() == (scratch / last).read_bytes()
    assert not (out / "data").exists(), "it reads the data of the other run"
    assert list_stems(out) == list_stems(scratch)


@pytest.mark.slow
def test_run_from_a_stem_resumes_and_has_a_stem_itself(
    runs: dict[int, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out, options = tmp_path / "run", {"stem": str(runs[12]), "steps": 20}
    for step in (10, 14):  # before its first checkpoint, and after one
        with pytest.raises(CrashError):
            electra.pretrain(out=out, callbacks=[AtStep(step, crash)], **options)
    caplog.clear()
    electra.pretrain(out=out, **options)
    assert " 12 " in notices(caplog, "resuming")[0]
    assert trace(out) == trace(runs[20])
    assert weights(out) == weights(runs[20])
    electra.pretrain(stem=out, out=tmp_path / "third", steps=18, schedule={"decay": 1 / 6})
    electra.pretrain(stem=runs[20], out=tmp_path / "second", steps=18, schedule={"decay": 1 / 6})
    assert weights(tmp_path / "third") == weights(tmp_path / "second")


@pytest.mark.slow
def test_run_from_a_stem_keeps_its_micro_batches(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout is drawn per micro-batch, whose default size may differ on another machine."""
    training = {name: value for name, value in WSD["training"].items() if name != "micro_batch_size"}
    electra.pretrain(text, out=tmp_path / "whole", **WSD | {"training": training})
    monkeypatch.setattr(execution, "CPU_MICRO_BATCH", 2)
    electra.pretrain(stem=tmp_path / "whole", out=tmp_path / "run")
    assert weights(tmp_path / "run") == weights(tmp_path / "whole")


@pytest.mark.parametrize(
    ("stem", "given", "kind", "code", "values"),
    [
        (20, {"steps": 12}, UsageError, "after-decay", [15, 12, 9, "--steps", "--schedule.decay"]),
        (12, {"seed": 1}, RunError, "other-configuration", ["--seed is 0 there, 1 here", "--steps"]),
        (12, {"training.batch_size": 4}, RunError, "other-configuration", ["--training.batch-size is 8 there"]),
        (12, {"schedule.kind": "linear"}, RunError, "other-configuration", ["--schedule.kind is wsd there"]),
        (12, {"schedule.warmup_steps": 2}, RunError, "other-configuration", ["--schedule.warmup-steps is 3 there"]),
        (12, {"hours": 1.0}, RunError, "other-configuration", ["--hours is not set there"]),
        (12, {"text": "some.txt"}, UsageError, "conflicting-options", ["--stem", "some.txt"]),
        (20, {"steps": 5, "schedule.decay": 0.01}, UsageError, "other-warmup", [3, 2.5, "--steps 5"]),
        (12, {"data": "elsewhere"}, RunError, "other-configuration", ["--data is", "elsewhere here"]),
        (
            12,
            {"procedure": "two-stage-scratch"},
            UsageError,
            "conflicting-options",
            ["--stem", "--procedure two-stage"],
        ),
    ],
)
def test_other_configurations_are_rejected(
    runs: dict[int, Path], tmp_path: Path, stem: int, given: dict, kind: type, code: str, values: list,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if "data" in given:  # the same data, but another directory
        (tmp_path / "elsewhere").symlink_to(runs[stem] / "data")
        monkeypatch.chdir(tmp_path)
    with raises(kind, code, *values):
        electra.pretrain(stem=runs[stem], out=tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


def test_run_without_a_stem_is_rejected(finished: Path, tmp_path: Path) -> None:
    with raises(RunError, "no-stem", finished, "--schedule.kind wsd"):
        electra.pretrain(stem=finished, out=tmp_path / "run", steps=20)
    with raises(RunError, "not-run", tmp_path / "nothing"):
        electra.pretrain(stem=tmp_path / "nothing", out=tmp_path / "run", steps=20)
