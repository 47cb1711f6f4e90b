"""Runs that learned nothing: the rule, and the seeds that take their place."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.errors import check_message, notices, raises
from support.toy_tasks import finetune_settings, save_model, write_choices, write_conll, write_glue, write_questions

from electra.errors import UsageError
from electra.finetuning.run import finetune
from electra.finetuning.training.failed_seeds import MARGIN, compute_last_loss, has_failed


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("parts")
    return {"model": save_model(root / "model"), "glue": write_glue(root / "glue", rows=32)}


def test_last_loss_is_the_mean_over_the_steps_of_the_last_epoch() -> None:
    rows = [{"step": step, "loss": loss} for step, loss in ((20, 9.0), (40, 3.0), (60, 2.0), (70, 1.0))]
    assert compute_last_loss(rows, 70, 30) == pytest.approx((20 * 2.0 + 10 * 1.0) / 30)
    assert compute_last_loss(rows, 70, 10) == 1.0
    assert compute_last_loss([], 70, 10) is None


@pytest.mark.parametrize(
    ("loss", "chance", "failed"), [(0.7, 0.69, True), (0.5, 0.69, False), (None, 0.69, False), (0.7, None, False)]
)
def test_rule(loss: float | None, chance: float | None, failed: bool) -> None:
    assert has_failed({"training_loss": loss, "chance_loss": chance}) == failed
    assert has_failed({"training_loss": (1 - MARGIN) * 0.6, "chance_loss": 0.6})
    assert not has_failed({})


@pytest.mark.slow
def test_failed_seeds_are_replaced_and_counted(parts, tmp_path: Path, caplog) -> None:
    """With a rate near 0 every seed fails: each is started again as often as allowed, and the last one is kept."""
    config = finetune_settings(
        parts["model"], "sst2", data=str(parts["glue"]), epochs=1.0, learning_rate=1e-12, seed=3, retry_failed_seeds=2
    )
    summary = finetune(config, tmp_path / "out", seeds=2)
    assert summary["failed_seeds"] == [3, 5, 4, 7]
    assert summary["seeds"] == [6, 8]
    assert json.loads((tmp_path / "out/results.json").read_text()) == summary
    messages = notices(caplog, "failed-seed")
    assert len(messages) == 4
    check_message(messages[0], "seed 3", "seed 5")
    assert finetune(config, tmp_path / "out", seeds=2) == summary, "a repeated call finds the same runs"


@pytest.mark.slow
def test_seed_that_learns_is_kept(parts, tmp_path: Path) -> None:
    config = finetune_settings(parts["model"], "sst2", data=str(parts["glue"]), epochs=20.0, retry_failed_seeds=2)
    summary = finetune(config, tmp_path / "out")
    results = json.loads((tmp_path / "out/seed-0/results.json").read_text())
    assert (summary["failed_seeds"], summary["seeds"]) == ([], [0])
    assert results["training_loss"] < 0.9 * results["chance_loss"]


@pytest.mark.slow
@pytest.mark.parametrize("task", ["stsb", "tagging", "multiple-choice", "mrpc"])
def test_chance_loss_is_that_of_a_model_that_only_learns_a_constant(parts, tmp_path: Path, task: str) -> None:
    """The loss of trained biases alone (the hidden states are zero) ends at the chance loss."""
    files = {
        "tagging": {"train": write_conll(tmp_path / "train.conll", 30, 0)},
        "multiple-choice": {"train": write_choices(tmp_path / "train.jsonl", 30, 0)},
    }
    given = {name: str(path) for name, path in files.get(task, {"data": parts["glue"]}).items()}
    settings = {"epochs": 1.0, "learning_rate": 1e-12, "dropout": 0.0, "baseline": "none", **given}
    finetune(finetune_settings(parts["model"], task, **settings), tmp_path / "out")
    chance = json.loads((tmp_path / "out/seed-0/results.json").read_text())["chance_loss"]
    if task == "multiple-choice":
        answers = [json.loads(line)["label"] for line in (tmp_path / "train.jsonl").read_text().splitlines()]
        assert 0 < chance <= np.log(2) + 1e-9
        assert len(set(answers)) == 2
    elif task == "tagging":
        assert chance == pytest.approx(-(2 * 0.4 * np.log(0.4) + 0) / 2 - 3 * 0.2 * np.log(0.2), rel=1e-6)
    elif task == "stsb":
        rows = (parts["glue"] / "STS-B/train.tsv").read_text().splitlines()[1:]
        assert chance == pytest.approx(np.var([float(row.split("\t")[-1]) / 5 for row in rows]), rel=1e-6)
    else:
        rows = (parts["glue"] / "MRPC/train.tsv").read_text().splitlines()[1:]
        share = np.mean([row[0] == "1" for row in rows])
        assert chance == pytest.approx(-share * np.log(share) - (1 - share) * np.log(1 - share), rel=1e-6)


def test_tasks_without_a_constant_prediction(parts, tmp_path: Path) -> None:
    train = write_questions(tmp_path / "train.json", 16, 0)
    config = finetune_settings(parts["model"], "squad1", train=str(train), dev=str(train), retry_failed_seeds=1)
    with raises(UsageError, "meaningless-option", "--retry-failed-seeds", "squad1"):
        finetune(config, tmp_path / "out")
