"""The learning rate and the budget."""

import pytest

from electra.errors import UsageError
from electra.train.loop import Recipe, TrainingConfig, learning_rate
from electra.train.optimizer import OptimizerConfig
from electra.train.schedule import Budget, ScheduleConfig


def recipe(budget: Budget, **schedule: object) -> Recipe:
    return Recipe(budget, TrainingConfig(), OptimizerConfig(learning_rate=1.0), ScheduleConfig(**schedule), seed=0)


def test_linear_up_then_linear_to_zero() -> None:
    run = recipe(Budget(steps=1000), warmup_steps=100, max_warmup=0.5)
    rates = [learning_rate(run, step, 0.0) for step in range(1000)]
    assert rates[0] == pytest.approx(0.005)  # the middle of the first of 100 steps up
    assert rates[49] == pytest.approx(0.495)
    assert max(rates) == pytest.approx(1.0, abs=0.01)
    assert rates.index(max(rates)) in (99, 100)
    assert rates[549] == pytest.approx(0.5, abs=0.001)
    assert rates[-1] == pytest.approx(0.5 / 900)
    assert all(rate > 0 for rate in rates)


def test_warm_up_is_never_more_than_its_largest_share() -> None:
    short = recipe(Budget(steps=300), warmup_steps=10_000, max_warmup=0.1)
    rates = [learning_rate(short, step, 0.0) for step in range(300)]
    assert rates.index(max(rates)) in (29, 30)


def test_by_the_clock_the_rate_follows_elapsed_time_alone() -> None:
    run = recipe(Budget(hours=1.0), max_warmup=0.1)
    assert learning_rate(run, 17, 180.0) == pytest.approx(0.5)
    assert learning_rate(run, 3, 360.0) == pytest.approx(1.0)
    assert learning_rate(run, 99_999, 1980.0) == pytest.approx(0.5)
    assert learning_rate(run, 99_999, 3600.0) == 0.0
    assert run.budget.done(5, 3600.0) == 1.0


def test_reference_multiplies_warm_up_and_decay() -> None:
    run = recipe(Budget(steps=1000), warmup_steps=100, max_warmup=0.5, multiply=True)
    expected = [(1 - t / 1000) * min(1.0, t / 100) for t in range(1000)]
    assert [learning_rate(run, t, 0.0) for t in range(1000)] == pytest.approx(expected)
    assert expected[0] == 0.0
    assert max(expected) == pytest.approx(0.9)


@pytest.mark.parametrize(("steps", "hours"), [(None, None), (3, 1.0), (0, None), (None, -1.0)])
def test_a_budget_is_steps_or_hours(steps: int | None, hours: float | None) -> None:
    with pytest.raises(UsageError, match="--steps|--hours"):
        Budget(steps, hours)


def test_a_warm_up_that_is_no_share() -> None:
    with pytest.raises(UsageError, match=r"schedule\.max_warmup is 1\.5"):
        ScheduleConfig(max_warmup=1.5)
