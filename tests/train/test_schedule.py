"""The learning rate and the budget."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from support.errors import raises

from electra.errors import UsageError
from electra.presets import reference, small
from electra.train.config import Recipe, TrainingConfig
from electra.train.loop import compute_learning_rate
from electra.train.optimizer import OptimizerConfig
from electra.train.schedule import SCHEDULES, Budget, Schedule, ScheduleConfig


def recipe(budget: Budget, **schedule: object) -> Recipe:
    return Recipe(budget, TrainingConfig(), OptimizerConfig(learning_rate=1.0), ScheduleConfig(**schedule), seed=(0,))


def rate(run: Recipe, step: int, seconds: float = 0.0, flops: float = 0.0) -> float:
    return compute_learning_rate(run, step, seconds, flops)


def test_linear_warmup_and_linear_decay_to_zero() -> None:
    run = recipe(Budget(steps=1000), warmup_steps=100, max_warmup=0.5)
    rates = [rate(run, step) for step in range(1000)]
    assert rates[0] == pytest.approx(0.005)  # the middle of the first of 100 warm-up steps
    assert rates[49] == pytest.approx(0.495)
    assert max(rates) == pytest.approx(1.0, abs=0.01)
    assert rates.index(max(rates)) in (99, 100)
    assert rates[549] == pytest.approx(0.5, abs=0.001)
    assert rates[-1] == pytest.approx(0.5 / 900)
    assert all(rate > 0 for rate in rates)


def test_warmup_is_at_most_its_maximum_share() -> None:
    short = recipe(Budget(steps=300), warmup_steps=10_000, max_warmup=0.1)
    rates = [rate(short, step) for step in range(300)]
    assert rates.index(max(rates)) in (29, 30)


def test_rate_of_a_run_by_time_depends_on_time_only() -> None:
    run = recipe(Budget(hours=1.0), max_warmup=0.1)
    assert rate(run, 17, 180.0) == pytest.approx(0.5)
    assert rate(run, 3, 360.0) == pytest.approx(1.0)
    assert rate(run, 99_999, 1980.0) == pytest.approx(0.5)
    assert rate(run, 99_999, 3600.0) == 0.0
    assert run.budget.compute_progress(5, 3600.0, 1e9) == 1.0


def test_rate_of_a_run_by_flops_depends_on_flops_only() -> None:
    run = recipe(Budget(flops=1e12), max_warmup=0.1)
    assert rate(run, 17, 5.0, 5e10) == pytest.approx(0.5)
    assert rate(run, 3, 9_999.0, 1e11) == pytest.approx(1.0)
    assert rate(run, 1, 0.0, 5.5e11) == pytest.approx(0.5)
    assert run.budget.compute_progress(5, 3600.0, 1e12) == 1.0
    assert str(run.budget) == "1e+12 FLOPs"


def test_reference_schedule_multiplies_warmup_and_decay() -> None:
    run = recipe(Budget(steps=1000), warmup_steps=100, max_warmup=0.5, kind="linear-product")
    expected = [(1 - t / 1000) * min(1.0, t / 100) for t in range(1000)]
    assert [rate(run, t) for t in range(1000)] == pytest.approx(expected)
    assert expected[0] == 0.0
    assert max(expected) == pytest.approx(0.9)


@pytest.mark.parametrize("steps", [1_000, 5_000, 200_000])
def test_reference_rates_of_short_runs_equal_those_of_the_original_code(steps: int) -> None:
    """REFERENCE 2.7: rate x (1 - t / T) x min(1, t / 10,000), also where the run is shorter than its warm-up."""
    schedule = reference(small()).schedule
    run = replace(recipe(Budget(steps=steps)), schedule=schedule)
    for t in (0, 1, steps // 2, steps - 1):
        assert rate(run, t) == pytest.approx((1 - t / steps) * min(1.0, t / 10_000), abs=1e-12)


@pytest.mark.parametrize(
    ("given", "code", "values"),
    [
        ({}, "wrong-budget", ["--steps", "--hours", "--flops"]),
        ({"steps": 3, "hours": 1.0}, "wrong-budget", ["--steps", "--hours", "--flops"]),
        ({"flops": 0.0, "steps": 1}, "wrong-budget", ["--steps", "--hours", "--flops"]),
        ({"steps": 0}, "out-of-range", ["--steps", 0]),
        ({"hours": -1.0}, "out-of-range", ["--hours", 0]),
    ],
)
def test_invalid_budgets_are_rejected(given: dict, code: str, values: list[object]) -> None:
    with raises(UsageError, code, *values):
        Budget(**given)


def test_warmup_share_out_of_range_is_rejected() -> None:
    with raises(UsageError, "out-of-range", "--schedule.max-warmup", 1.5):
        ScheduleConfig(max_warmup=1.5)


def test_schedule_of_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEDULES, "warmup-only", Schedule(lambda done, warmup, config: min(1.0, done / warmup)))
    run = recipe(Budget(steps=1000), warmup_steps=100, max_warmup=0.5, kind="warmup-only")
    assert [rate(run, t) for t in (0, 49, 500, 999)] == pytest.approx([0.005, 0.495, 1.0, 1.0])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("cosine", lambda done: 0.5 * (1 + math.cos(math.pi * (done - 0.1) / 0.9))),
        ("wsd", lambda done: min(1.0, (1 - done) / 0.25)),
        ("constant", lambda done: 1.0),
    ],
)
def test_other_schedules_after_the_warmup(kind: str, expected: Callable[[float], float]) -> None:
    run = recipe(Budget(steps=1000), warmup_steps=100, max_warmup=0.5, kind=kind, decay=0.25)
    linear = recipe(Budget(steps=1000), warmup_steps=100, max_warmup=0.5)
    # The rounding of wsd does not depend on the budget.
    assert [rate(run, t) for t in range(100)] == pytest.approx([rate(linear, t) for t in range(100)], rel=1e-14)
    later = (100, 500, 749, 750, 751, 900, 999)
    assert [rate(run, t) for t in later] == pytest.approx([expected((t + 0.5) / 1000) for t in later])


def test_a_decay_longer_than_the_rest_of_the_run_begins_after_the_warmup() -> None:
    short = recipe(Budget(steps=1000), warmup_steps=500, max_warmup=0.5, kind="wsd", decay=0.9)
    linear = recipe(Budget(steps=1000), warmup_steps=500, max_warmup=0.5)
    assert [rate(short, t) for t in range(1000)] == pytest.approx([rate(linear, t) for t in range(1000)])


@pytest.mark.parametrize("decay", [0.1, 0.2, 0.25, 0.3, 1 / 3, 0.9, 1.0])
@pytest.mark.parametrize("warmup", [0, 3, 7, 40])
def test_stable_phase_does_not_depend_on_the_budget(decay: float, warmup: int) -> None:
    """Every rate before the decay equals, to the bit, that of a budget whose decay starts later."""
    longest = recipe(Budget(steps=100_003), warmup_steps=warmup, max_warmup=0.5, kind="wsd", decay=0.01)
    for steps in range(80, 120):
        run = recipe(Budget(steps=steps), warmup_steps=warmup, max_warmup=0.5, kind="wsd", decay=decay)
        start = run.schedule.find_decay(steps)
        assert start is not None
        assert run.stem_step == start
        rates = [rate(run, step) for step in range(steps)]
        assert rates[:start] == [rate(longest, step) for step in range(start)]
        assert rates[warmup:start] == [1.0] * (start - warmup)
        assert all(a > b > 0 for a, b in pairwise([1.0, *rates[start:]]))


def test_budgets_and_schedules_without_a_stem() -> None:
    assert recipe(Budget(steps=100), kind="linear").stem_step is None
    assert recipe(Budget(hours=1.0), kind="wsd").stem_step is None
    assert recipe(Budget(flops=1e12), kind="wsd").stem_step is None


def test_unknown_schedule_is_rejected() -> None:
    with raises(
        UsageError, "unknown-choice", "schedule.kind", "linear, cosine, wsd, constant or linear-product", "step"
    ):
        ScheduleConfig(kind="step")
