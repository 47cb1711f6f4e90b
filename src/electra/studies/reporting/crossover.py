"""The compute at which one objective overtakes another: straight lines through scores over the logarithm of compute."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student_t

from electra.studies.reporting.results import Results
from electra.studies.reporting.scores import Number

CONFIDENCE = 0.95
COMPUTE: dict[str, str] = {
    "flops": "FLOPs",
    "hardware_flops": "FLOPs that hardware computes",
    "seconds": "seconds of training",
}
"""Fields of a record that measure compute, with their units."""


@dataclass(frozen=True)
class Line:
    """Least-squares line of a score over log10 of compute: score = intercept + slope x."""

    intercept: float
    slope: float
    covariance: np.ndarray
    """Of intercept and slope, [2, 2]."""
    freedom: int
    """Degrees of freedom: points minus two."""


@dataclass(frozen=True)
class Crossing:
    """Where the first of two lines overtakes the second."""

    gain: float
    """Slope of the first line minus that of the second: points gained for ten times the compute."""
    at: float | None
    """Compute at which the lines cross; None if they are parallel."""
    interval: tuple[float, float] | None
    """Confidence interval of `at`; an end can be 0 or infinite. None: the slopes do not differ significantly, so that the data
    does not bound the crossing."""


def fit_line(points: Sequence[tuple[float, float]]) -> Line | None:
    """Fit a line to (compute, score); None for fewer than three points or only one value of compute."""
    if len(points) < 3 or len({compute for compute, _ in points}) < 2:
        return None
    compute, scores = np.array(points, dtype=np.float64).T
    design = np.stack([np.ones_like(compute), np.log10(compute)], 1)
    inverse = np.linalg.inv(design.T @ design)
    intercept, slope = inverse @ design.T @ scores
    residuals = scores - design @ (intercept, slope)
    freedom = len(points) - 2
    return Line(float(intercept), float(slope), inverse * (residuals @ residuals) / freedom, freedom)


def find_crossing(first: Line, second: Line, confidence: float = CONFIDENCE) -> Crossing:
    """Find where `first` overtakes `second`.

    The interval is the set of x at which the difference of the lines is not significant (Fieller, 1954): the solution of
    (a + b x)^2 <= t^2 Var(a + b x), where a and b are the differences of intercepts and slopes.
    """
    a, b = first.intercept - second.intercept, first.slope - second.slope
    covariance = first.covariance + second.covariance
    limit = float(student_t.ppf(0.5 + confidence / 2, first.freedom + second.freedom)) ** 2
    square = b * b - limit * covariance[1, 1]
    linear = a * b - limit * covariance[0, 1]
    constant = a * a - limit * covariance[0, 0]
    root = linear * linear - square * constant
    at = raise_ten(-a / b) if b else None
    if square <= 0 or root < 0:
        return Crossing(b, at, None)
    ends = ((-linear - math.sqrt(root)) / square, (-linear + math.sqrt(root)) / square)
    return Crossing(b, at, (raise_ten(ends[0]), raise_ten(ends[1])))


def raise_ten(exponent: float) -> float:
    """Return ten to the power of `exponent`, 0 or infinity if it is out of range."""
    return 10.0**exponent if abs(exponent) < 300 else math.inf if exponent > 0 else 0.0


def find_crossings(results: Results, scores: Mapping[str, Number]) -> list[tuple[str, str, float, Crossing]]:
    """Find the crossing of the study's compared lines for every score and kind of compute.

    Returns:
        (name of the score, key of `COMPUTE`, largest compute of any run, crossing), where both lines have enough points.
    """
    assert results.study.compared is not None
    found = []
    for name, score in scores.items():
        for kind in COMPUTE:
            points = [collect_points(results, line, score, kind) for line in results.study.compared]
            lines = [fit_line(each) for each in points]
            if lines[0] is not None and lines[1] is not None:
                most = max(compute for each in points for compute, _ in each)
                found.append((name, kind, most, find_crossing(lines[0], lines[1])))
    return found


def collect_points(results: Results, line: str, score: Number, compute: str) -> list[tuple[float, float]]:
    """Collect compute, a key of `COMPUTE`, and score of every run of a line."""
    return [
        (float(record[compute]), float(value))
        for outcome in results.outcomes
        if outcome.variant.line == line
        for record in outcome.records
        if (value := score(record)) is not None
    ]


def build_crossing_rows(results: Results, scores: Mapping[str, Number]) -> list[list[str]]:
    """Build a table of the crossings: a heading, then a row per score and kind of compute; empty without any."""
    assert results.study.compared is not None
    first, second = results.study.compared
    rows = [
        ["Score", "Compute", f"{first} minus {second}, gain for ten times the compute", f"{first} overtakes at", "95 %"]
    ]
    for name, kind, most, crossing in find_crossings(results, scores):
        rows.append(
            [name, COMPUTE[kind], f"{crossing.gain:+.1f}", format_crossing(crossing, most), format_interval(crossing)]
        )
    return rows if len(rows) > 1 else []


def format_crossing(crossing: Crossing, most: float) -> str:
    """Format the compute of a crossing, and whether it is beyond all runs."""
    if crossing.at is None or crossing.gain <= 0:
        return "falls behind as compute grows"
    return f"{crossing.at:.2g}{', extrapolated' if crossing.at > most else ''}"


def format_interval(crossing: Crossing) -> str:
    """Format the confidence interval of a crossing."""
    if crossing.interval is None:
        return "not bounded by these runs"
    low, high = crossing.interval
    return f"{low:.2g} to {high:.2g}"
