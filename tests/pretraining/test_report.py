"""The report: descriptions of metrics, periods of findings, curves and baselines; the warning about small budgets."""

from pathlib import Path

import pytest
from support.errors import notices
from torch import nn

from electra.pretraining.evaluation.held_out import Evaluation, Sample
from electra.pretraining.objectives.catalog import OBJECTIVES
from electra.pretraining.objectives.targets.detection_metrics import BINS
from electra.pretraining.reporting.callbacks import BudgetWarning, HealthMonitor, format_headline
from electra.pretraining.reporting.diagnostics import Finding, Health
from electra.pretraining.reporting.plots import draw_figures
from electra.pretraining.reporting.report import format_metrics, format_period
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


def test_total_loss_is_shown_only_if_it_sums_several_losses() -> None:
    assert [
        text
        for text, _ in format_metrics(
            {"loss": 3.0, "mlm_loss": 3.0, "mlm_accuracy": 0.4}, OBJECTIVES["mlm"].all_metrics
        )
    ] == [
        "masked-LM loss: -log probability of the original token",
        "accuracy at the masked positions, unmasked inputs included",
    ]
    assert ("total loss: the weighted sum of all losses", "3.000") in format_metrics(HELDOUT, METRICS)
    replace_mlm = {"loss": 5.0, "weighted_loss": 3.0, "generator_loss": 2.0, "mlm_loss": 3.0}
    assert [value for _, value in format_metrics(replace_mlm, OBJECTIVES["replace-mlm"].all_metrics)] == [
        "5.000",
        "3.000",
        "2.000",
        "3.000",
    ], "two networks have a total loss"


@pytest.mark.parametrize(
    ("last", "expected"),
    [(None, "at the end"), (200, "step 200, not later"), (450, "step 200 to 450, not later"), (900, "step 200 to the end")],
)  # fmt: skip
def test_period_of_a_finding(last: int | None, expected: str) -> None:
    assert format_period(Finding(200, "low-auc", "p", "a", last), last_step=900) == expected


def test_lasting_problem_is_one_finding_with_its_last_step(tmp_path: Path) -> None:
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
    ("budget", "states", "values"),
    [
        (Budget(hours=0.1), steps_of(9.0, 5), ("40 updates", "9 s", "0.1 h", "500", "--training.batch-size", "--seq-len")),
        (Budget(hours=0.1), steps_of(1.0, 50, first=30.0), ("330 updates", "1 s", "0.1 h")),
        (Budget(hours=0.1), steps_of(400.0, 1), ("1 update ", "400 s", "0.1 h")),
        (Budget(hours=0.1), steps_of(0.5, 50), None),
        (Budget(hours=0.1), steps_of(0.1, 5), None),  # the pace is not known yet
        (Budget(flops=1e11), steps_of(0.4, 50), ("100 updates", "0.4 s", "1e+11 FLOPs")),
        (Budget(steps=5), steps_of(9.0, 5), None),  # the number of steps is chosen
    ],
)  # fmt: skip
def test_small_budget_gives_one_warning(
    budget: Budget,
    states: list[TrainingState],
    values: tuple[str, ...] | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    callback = BudgetWarning(budget)
    callback.on_train_begin(nn.Linear(2, 2), TrainingState())
    for state in states:
        callback.on_step_end(state)
    messages = notices(caplog, "few-steps")
    assert len(messages) == len(caplog.records) == (values is not None)
    for message in messages:
        for value in values or ():
            assert value in message


def test_resumed_run_gives_no_second_warning(caplog: pytest.LogCaptureFixture) -> None:
    callback = BudgetWarning(Budget(hours=0.1))
    callback.on_train_begin(nn.Linear(2, 2), TrainingState(5, 45.0))
    callback.on_step_end(TrainingState(6, 54.0))
    assert not caplog.records


def test_figures_have_legends_and_baselines() -> None:
    names = ("scores_replaced", "scores_original", "rarity_replaced", "rarity_original")
    histograms = {name: histogram(at) for name, at in zip(names, (1500, 500, 500, 1500), strict=True)}
    figures = draw_figures(
        [ROW | {"step": step} for step in (50, 100)], METRICS, Evaluation(HELDOUT, histograms), [SAMPLE]
    )
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
    for curve in roc.get_lines()[:2]:  # also that of token frequency, although replaced tokens are more frequent here
        assert (curve.get_ydata() >= curve.get_xdata()).all()
    assert figures["sentences"].get_suptitle()
    assert len(figures["sentences"].legends[0].get_texts()) == 2


def test_detection_figure_has_the_curves_that_the_evaluation_has() -> None:
    """A target from outside the package may report scores without an AUC and without the frequency of its tokens."""
    histograms = {"scores_replaced": histogram(1500), "scores_original": histogram(500)}
    figures = draw_figures([], METRICS, Evaluation({}, histograms), [])
    assert legend(figures["detection"].axes[1]) == ["discriminator", "guessing"]
    assert draw_figures([], METRICS, Evaluation({}, {"scores_other": histogram(5)}), []) == {}


def test_headline_has_the_losses_that_a_run_has() -> None:
    row = {**ROW, "tokens_per_second": 900.0}
    assert format_headline(row) == "loss 3.00 · gen 2.00 · disc 0.200 AUC 0.800 · 900 tokens/s"
    del row["discriminator_loss"], row["generator_loss"]
    assert format_headline(row) == "loss 3.00 · AUC 0.800 · 900 tokens/s"
    del row["auc"]
    assert format_headline(row) == "loss 3.00 · 900 tokens/s"


def test_masked_lm_has_a_training_figure() -> None:
    row = {"loss": 3.0, "mlm_loss": 3.0, "mlm_accuracy": 0.1, "tokens_per_second": 9.0, "gradient_norm": 1.0}
    figures = draw_figures(
        [row | {"learning_rate": 1e-3, "step": 50}], OBJECTIVES["mlm"].all_metrics, Evaluation({}, {}), []
    )
    assert figures.keys() == {"training"}
    assert legend(figures["training"].axes[0]) == ["masked LM"]


def test_only_shares_are_formatted_in_percent() -> None:
    values = dict.fromkeys(("accuracy", "reward", "policy_loss", "auc"), 0.5)
    assert [value for _, value in format_metrics(values, METRICS)] == ["0.500", "0.500", "50.0%", "0.500"]
