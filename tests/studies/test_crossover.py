"""The compute at which one line of a study overtakes another: fits, intervals, table."""

import csv
import math
from dataclasses import replace

import crossover as crossover_script
import numpy as np
import pytest
from scipy.stats import linregress
from support.toy_studies import toy_scale, toy_study

from electra.studies.reporting.crossover import (
    Crossing,
    Line,
    build_crossing_rows,
    find_crossing,
    fit_line,
    format_crossing,
    format_interval,
)
from electra.studies.reporting.results import Outcome, Results
from electra.studies.study import Axis


def simulate(
    rng: np.random.Generator, intercept: float, slope: float, spread: float, budgets: tuple[float, ...], seeds: int = 3
) -> list[tuple[float, float]]:
    return [
        (flops, intercept + slope * math.log10(flops) + spread * rng.standard_normal())
        for flops in budgets
        for _ in range(seeds)
    ]


def get_line(points: list[tuple[float, float]]) -> Line:
    line = fit_line(points)
    assert line is not None
    return line


def test_fit_is_that_of_scipy() -> None:
    points = simulate(np.random.default_rng(0), 3.0, 4.0, 1.0, (1e12, 1e13, 1e14))
    line, expected = get_line(points), linregress([math.log10(x) for x, _ in points], [y for _, y in points])
    assert (line.intercept, line.slope) == pytest.approx((expected.intercept, expected.slope))
    assert line.covariance[1, 1] ** 0.5 == pytest.approx(expected.stderr)
    assert line.covariance[0, 0] ** 0.5 == pytest.approx(expected.intercept_stderr)
    assert line.freedom == len(points) - 2


def test_too_few_points_have_no_line() -> None:
    assert fit_line([(1e12, 1.0), (1e13, 2.0)]) is None
    assert fit_line([(1e12, 1.0), (1e12, 2.0), (1e12, 3.0)]) is None


def test_lines_without_noise_cross_where_they_were_made_to() -> None:
    rng = np.random.default_rng(0)
    budgets = (1e12, 1e13, 1e14)
    first, second = (get_line(simulate(rng, *each, 0.0, budgets)) for each in ((20.0, 4.0), (50.0, 2.0)))
    crossing = find_crossing(first, second)
    assert crossing.at == pytest.approx(1e15)
    assert crossing.gain == pytest.approx(2.0)
    assert crossing.interval == pytest.approx((1e15, 1e15))
    assert format_crossing(crossing, 1e14) == "1e+15, extrapolated"
    assert format_crossing(crossing, 1e16) == "1e+15"
    behind = find_crossing(second, first)
    assert behind.gain == pytest.approx(-2.0)
    assert format_crossing(behind, 1e14) == "falls behind as compute grows"


def test_interval_has_its_confidence() -> None:
    """The true crossing, 1e14, is in the interval in 95 % of repeated experiments; three deviations of 1,000 are 2.1 %."""
    rng = np.random.default_rng(1)
    budgets, inside, repetitions = (1e12, 1e13, 1e14), 0, 1_000
    for _ in range(repetitions):
        first, second = (get_line(simulate(rng, *each, 0.5, budgets)) for each in ((14.0, 4.0), (42.0, 2.0)))
        a, b = first.intercept - second.intercept, first.slope - second.slope
        interval = find_crossing(first, second).interval
        if interval is None:  # then the set is all of the axis, or all but a part of it: the definition decides
            covariance = first.covariance + second.covariance
            variance = covariance[0, 0] + 2 * 14 * covariance[0, 1] + 14**2 * covariance[1, 1]
            inside += (a + 14 * b) ** 2 <= 4.6 * variance
        else:
            inside += interval[0] <= 1e14 <= interval[1]
    assert abs(inside / repetitions - 0.95) < 0.025


def test_equal_slopes_do_not_bound_the_crossing() -> None:
    rng = np.random.default_rng(2)
    first, second = (get_line(simulate(rng, each, 2.0, 1.0, (1e12, 1e13, 1e14))) for each in (40.0, 42.0))
    crossing = find_crossing(first, second)
    assert crossing.interval is None
    assert format_interval(crossing) == "not bounded by these runs"
    parallel = Line(1.0, 2.0, np.zeros((2, 2)), 1)
    assert find_crossing(parallel, replace(parallel, intercept=2.0)) == Crossing(0.0, None, None)


def test_table_has_a_row_for_each_score_and_kind_of_compute() -> None:
    study = replace(toy_study(toy_scale()), axis=Axis("FLOPs", flops=True), compared=("ELECTRA", "BERT"))
    variants = [
        replace(study.variants[0], name=f"{line}-{share}", line=line, share=share)
        for line in ("ELECTRA", "BERT")
        for share in (0.1, 1.0, 10.0)
    ]
    outcomes = []
    for variant in variants:
        slope, start = (4.0, 10.0) if variant.line == "ELECTRA" else (2.0, 12.0)
        records = tuple(
            {
                "flops": variant.share,
                "hardware_flops": variant.share / 2,
                "seconds": 60 * variant.share,
                "score": start + slope * math.log10(variant.share),
            }
            for _ in range(2)
        )
        outcomes.append(Outcome(variant, records, {}, ()))
    results = Results(replace(study, variants=tuple(variants)), "toy", (), tuple(outcomes))
    rows = build_crossing_rows(results, {"a score": lambda record: record["score"], "none": lambda record: None})
    assert rows[0][2] == "ELECTRA minus BERT, gain for ten times the compute"
    assert rows[1] == ["a score", "FLOPs", "+2.0", "10", "10 to 10"]
    assert rows[2][:4] == ["a score", "FLOPs that hardware computes", "+2.0", "5"]
    assert rows[3][:4] == ["a score", "seconds of training", "+2.0", "6e+02"]
    assert len(rows) == 4
    assert build_crossing_rows(results, {"none": lambda record: None}) == []


def test_committed_table_is_that_of_the_committed_rows() -> None:
    table = crossover_script.build_table(crossover_script.read_runs())
    with (crossover_script.RESULTS / "crossover-tiny.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == table
