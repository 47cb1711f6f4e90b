"""Dev scores in training, early stopping and the best epoch; runs that are interrupted in between."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.callbacks import AtStep, CrashError, crash
from support.errors import check_message, fails, raises
from support.toy_tasks import finetune_settings, save_model, write_conll, write_glue

from electra.errors import RunError, UsageError
from electra.finetuning import run
from electra.finetuning.run import finetune
from electra.finetuning.training.dev_scores import DevScores, read_dev_scores
from electra.train.checkpoint import TrainingState


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("parts")
    return {"model": save_model(root / "model"), "glue": write_glue(root / "glue", rows=32)}


@pytest.mark.parametrize(
    ("scores", "patience", "stops_after"),
    [
        ([1, 2, 3, 4], 1, None),
        ([1, 2, 2], 1, 3),
        ([3, 2, 1], 2, 3),
        ([3, 2, 4, 3, 2], 2, 5),
        ([1, 1], 1, 2),
        ([1], 1, None),
    ],
)
def test_rule_of_early_stopping(tmp_path: Path, scores: list[float], patience: int, stops_after: int | None) -> None:
    """Training stops after `patience` scores none of which is above the best one before them; an equal one is not better."""
    values = iter(map(float, scores))
    callback = DevScores(tmp_path, lambda: next(values), steps=100, steps_per_epoch=1, patience=patience)
    callback.on_train_begin(torch.nn.Linear(1, 1), TrainingState())
    stopped = None
    for step in range(1, len(scores) + 1):
        callback.on_step_end(TrainingState(step))
        stopped = stopped or (step if callback.is_exhausted() else None)
    assert stopped == stops_after
    assert [row["score"] for row in read_dev_scores(tmp_path)] == scores
    again = DevScores(tmp_path, lambda: 0.0, steps=100, steps_per_epoch=1, patience=patience)
    again.on_train_begin(torch.nn.Linear(1, 1), TrainingState(len(scores)))
    assert again.is_exhausted() == (stops_after is not None)


@pytest.mark.slow
def test_run_stops_early_and_keeps_the_best_weights(parts, tmp_path: Path, monkeypatch) -> None:
    scores = iter([10.0, 30.0, 20.0, 30.0, 99.0])
    monkeypatch.setattr(run.Run, "score_dev", lambda self: next(scores))
    config = finetune_settings(parts["model"], "sst2", data=str(parts["glue"]), epochs=8.0, early_stopping=2)
    summary = finetune(config, tmp_path / "out")
    assert summary["selected"] == ["best on dev, after step 8 of 16, stopped early of 32"]
    results = json.loads((tmp_path / "out/seed-0/results.json").read_text())
    assert results["steps"] == 16
    assert [row["step"] for row in read_dev_scores(tmp_path / "out/seed-0")] == [4, 8, 12, 16]


@pytest.mark.slow
def test_killed_run_stops_at_the_same_step(parts, tmp_path: Path, monkeypatch) -> None:
    build_recipe = run.build_recipe

    def checkpoint_often(*arguments):
        recipe = build_recipe(*arguments)
        return replace(recipe, training=replace(recipe.training, checkpoint_every=3))

    monkeypatch.setattr(run, "build_recipe", checkpoint_often)
    config = finetune_settings(parts["model"], "sst2", data=str(parts["glue"]), epochs=20.0, early_stopping=2)
    whole = finetune(config, tmp_path / "whole")
    [selected] = whole["selected"]
    assert "stopped early" in selected
    for killed_at in (5, 9):
        with pytest.raises(CrashError):
            finetune(config, tmp_path / "killed", callbacks=[AtStep(killed_at, crash)])
    resumed = finetune(config, tmp_path / "killed")
    assert (resumed["metrics"], resumed["selected"]) == (whole["metrics"], whole["selected"])
    both = [read_dev_scores(tmp_path / name / "seed-0") for name in ("whole", "killed")]
    assert both[0] == both[1]


@pytest.mark.slow
def test_best_epoch_of_numbers(parts, tmp_path: Path) -> None:
    """The head of regression has buffers, which are not among the saved weights."""
    config = finetune_settings(parts["model"], "stsb", data=str(parts["glue"]), epochs=2.0, select="best")
    [selected] = finetune(config, tmp_path / "out")["selected"]
    check_message(selected, "best on dev")


def test_early_stopping_needs_dev(parts, tmp_path: Path) -> None:
    write_conll(tmp_path / "data" / "train.txt", 20, 0)
    write_conll(tmp_path / "data" / "test.txt", 10, 1)
    with raises(UsageError, "no-dev", "--early-stopping", "--dev"):
        finetune(
            finetune_settings(parts["model"], "chunk", data=str(tmp_path / "data"), early_stopping=1), tmp_path / "o"
        )
    words = ["finetune", "sst2", "--model", parts["model"], "--data", parts["glue"], "--out", tmp_path / "o"]
    fails([*words, "--early-stopping", "0"], "out-of-range", "--early-stopping")


@pytest.mark.parametrize("content", ["", "[]", '{"scores": [{"step": 0, "score": 1}]}', '{"scores": [{"step": 1}]}'])
def test_damaged_scores(tmp_path: Path, content: str) -> None:
    (tmp_path / "dev_scores.json").write_text(content)
    with pytest.raises(RunError) as raised:
        read_dev_scores(tmp_path)
    assert str(tmp_path / "dev_scores.json") in str(raised.value)
