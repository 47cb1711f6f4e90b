"""What the report says and draws: labels of the objective, from when to when something was wrong, curves and baselines."""

from pathlib import Path

import pytest
from torch import nn

from electra.pretraining.evaluation.held_out import Evaluation, Sample
from electra.pretraining.objectives.detection_metrics import BINS
from electra.pretraining.objectives.spec import OBJECTIVES
from electra.pretraining.reporting.callbacks import BudgetWarning, HealthMonitor
from electra.pretraining.reporting.diagnostics import Finding, Health
from electra.pretraining.reporting.plots import draw
from electra.pretraining.reporting.report import table, when
from electra.train.checkpoint import TrainingState
from electra.train.schedule import Budget

HELDOUT = {"loss": 3.0, "auc": 0.8, "frequency_auc": 0.6, "majority": 0.9}
ROW = {
    "loss": 3.0,
    "generator_loss": 2.0,
    "weighted_loss": 1.0,
    "discriminator_loss": 0.2,
    "generator_accuracy": 0.3,
    "replaced": 0.1,
    "auc": 0.8,
    "precision": 0.5,
    "recall": 0.2,
    "accuracy": 0.9,
    "majority": 0.9,
    "gradient_norm": 1.0,
    "learning_rate": 1e-3,
}
METRICS = OBJECTIVES["electra"].all_metrics
SAMPLE = Sample(["a", "b"], [None, "c"], [0.1, 0.7])


def histogram(at: int) -> list[float]:
    counts = [0.0] * BINS
    counts[at] = 10.0
    return counts


def legend(axes: object) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_a_single_loss_is_not_called_a_total() -> None:
    assert [
        text for text, _ in table({"loss": 3.0, "mlm_loss": 3.0, "mlm_accuracy": 0.4}, OBJECTIVES["mlm"].all_metrics)
    ] == [
        "masked-LM loss: -log probability of the original token",
        "accuracy at the masked positions, unmasked inputs included",
    ]
    assert ("total loss: the weighted sum of all losses", "3.000") in table(HELDOUT, METRICS)
    replace_mlm = {"loss": 5.0, "weighted_loss": 3.0, "generator_loss": 2.0, "mlm_loss": 3.0}
    assert [value for _, value in table(replace_mlm, OBJECTIVES["replace-mlm"].all_metrics)] == [
        "5.000",
        "3.000",
        "2.000",
        "3.000",
    ], "two networks, a total"


@pytest.mark.parametrize(
    ("last", "expected"),
    [(None, "at the end"), (200, "step 200, not after that"), (450, "step 200 to 450, not after that"), (900, "step 200 to the end")],
)  # fmt: skip
def test_when_something_was_wrong(last: int | None, expected: str) -> None:
    assert when(Finding(200, "p", "a", last), last_step=900) == expected


def test_a_problem_is_found_once_and_its_end_is_kept(tmp_path: Path) -> None:
    monitor = HealthMonitor(tmp_path, Budget(steps=3000), Health(100))
    guessing, learned = ROW | {"sampled_accuracy": 0.01}, ROW | {"sampled_accuracy": 0.5}
    rows = {1500: guessing, 1550: guessing, 1600: learned, 1650: guessing, 1700: learned}
    new = {step: len(monitor.check(step, step / 3000, row)) for step, row in rows.items()}
    assert new == {1500: 1, 1550: 0, 1600: 0, 1650: 1, 1700: 0}
    assert [(finding.step, finding.last_step) for finding in monitor.findings] == [(1500, 1550), (1650, 1650)]


def steps_of(pace: float, number: int, first: float = 0.0) -> list[TrainingState]:
    """States after steps of `pace` seconds, of which the first takes `first` seconds longer."""
    return [TrainingState(i, first + pace * i, tokens=100.0 * i, flops=1e9 * i) for i in range(1, number + 1)]


@pytest.mark.parametrize(
    ("budget", "states", "warning"),
    [
        (Budget(hours=0.1), steps_of(9.0, 5), "about 40 updates of 9 s will fit into 0.1 h; fewer than 500 teach little"),
        (Budget(hours=0.1), steps_of(1.0, 50, first=30.0), "about 330 updates of 1 s will fit into 0.1 h"),
        (Budget(hours=0.1), steps_of(400.0, 1), "about 1 update of 400 s will fit into 0.1 h"),
        (Budget(hours=0.1), steps_of(0.5, 50), None),
        (Budget(hours=0.1), steps_of(0.1, 5), None),  # not known yet
        (Budget(flops=1e11), steps_of(0.4, 50), "about 100 updates of 0.4 s will fit into 1e+11 FLOPs"),
        (Budget(steps=5), steps_of(9.0, 5), None),  # as asked for
    ],
)  # fmt: skip
def test_few_updates_that_fit_are_warned_of_once(
    budget: Budget,
    states: list[TrainingState],
    warning: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    callback = BudgetWarning(budget)
    callback.on_train_begin(nn.Linear(2, 2), TrainingState())
    for state in states:
        callback.on_step_end(state)
    assert len(caplog.messages) == (warning is not None)
    assert all(line.startswith(str(warning)) for line in caplog.messages)


def test_a_resumed_run_is_not_warned_again(caplog: pytest.LogCaptureFixture) -> None:
    callback = BudgetWarning(Budget(hours=0.1))
    callback.on_train_begin(nn.Linear(2, 2), TrainingState(5, 45.0))
    callback.on_step_end(TrainingState(6, 54.0))
    assert not caplog.messages


def test_every_curve_has_a_name_and_the_baseline_is_there() -> None:
    names = ("scores_replaced", "scores_original", "rarity_replaced", "rarity_original")
    histograms = {name: histogram(at) for name, at in zip(names, (1500, 500, 500, 1500), strict=True)}
    figures = draw([ROW | {"step": step} for step in (50, 100)], METRICS, Evaluation(HELDOUT, histograms), [SAMPLE])
    assert figures.keys() == {"training", "detection", "sentences"}
    loss, detection, _, optimization, _ = figures["training"].axes
    assert legend(loss) == ["total", "discriminator, weighted", "generator"]
    assert loss.get_lines()[1].get_ydata().tolist() == [1.0, 1.0]
    assert "AUC of token frequency (held-out)" in legend(detection)
    assert legend(optimization) == ["gradient norm", "learning rate (right)"]
    scores, roc = figures["detection"].axes
    assert scores.get_xlabel()
    assert scores.get_ylabel()
    assert legend(roc) == ["discriminator, AUC 0.800", "token frequency, AUC 0.600", "guessing"]
    for curve in roc.get_lines()[:2]:  # replaced tokens are the more frequent ones here: the curve is turned over
        assert (curve.get_ydata() >= curve.get_xdata()).all()
    assert "Held-out sentences" in figures["sentences"].get_suptitle()
    assert len(figures["sentences"].legends[0].get_texts()) == 2


def test_a_bert_has_pictures_too() -> None:
    row = {"loss": 3.0, "mlm_loss": 3.0, "mlm_accuracy": 0.1, "tokens_per_second": 9.0, "gradient_norm": 1.0}
    figures = draw([row | {"learning_rate": 1e-3, "step": 50}], OBJECTIVES["mlm"].all_metrics, Evaluation({}, {}), [])
    assert figures.keys() == {"training"}
    assert legend(figures["training"].axes[0]) == ["masked LM"]


def test_shares_are_shown_in_percent_and_all_else_as_it_is() -> None:
    values = dict.fromkeys(("accuracy", "reward", "policy_loss", "auc"), 0.5)
    assert [value for _, value in table(values, METRICS)] == ["0.500", "0.500", "50.0%", "0.500"]
