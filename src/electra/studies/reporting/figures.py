"""A study's figure: scores with their spread over seeds, and the paper's numbers in a separate panel."""

import io
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from electra.external import format_count
from electra.plotting import Axes, Figure, LogLocator, NullFormatter, rc_context
from electra.storage import write_atomically
from electra.studies.reporting.results import Outcome, Results, Spread
from electra.studies.reporting.scores import (
    Number,
    average,
    extract_best_pairs,
    extract_best_probe,
    extract_best_tags,
    extract_finetuned,
    extract_last_probe,
)
from electra.studies.study import Axis, Study

COLORS = ("#c8442d", "#2c6fa6", "#4f9153", "#b58900", "#7a5195", "#3b8ea5")
NEUTRAL = "#777777"
MARKERS = ("o", "s", "^", "D", "v", "P")
PANELS = {
    "fine-tuned": extract_finetuned,
    "linear probe, best layer": extract_best_probe,
    "linear probe, last layer": extract_last_probe,
}
WITHOUT_TASKS: dict[str, tuple[Number, str]] = {
    "linear probe of words' tags, best layer": (extract_best_tags, "accuracy of word tags, %"),
    "minimal pairs, best method": (extract_best_pairs, "accuracy, mean over paradigms, %"),
}
"""Panels of scores without GLUE: title -> score and its label."""
SECONDS = Axis("seconds of pre-training", flops=True)
"""Axis of the panels over time."""
WIDTH, HEIGHT = 4.6, 3.8
"""Size of a panel in inches."""
LABEL_WIDTH = 0.07
"""Width of a character of a label in inches."""


def write_figures(results: Results, directory: Path) -> None:
    """Write `figure.png` and `figure.svg`."""
    figure = draw(results)
    # Without a date and with fixed ids, equal results give equal files.
    with rc_context({"svg.hashsalt": results.study.name, "svg.fonttype": "none"}):
        for form, more in (("png", {"dpi": 150}), ("svg", {"metadata": {"Date": None}})):
            file = io.BytesIO()
            figure.savefig(file, format=form, **more)
            write_atomically(directory / f"figure.{form}", file.getvalue())


def draw(results: Results) -> Figure:
    """Draw a panel for each kind of score, one for the difference of compared lines, and one for the paper's scores."""
    study = results.study
    numbers = {title: average(kind, results.tasks) for title, kind in PANELS.items()}
    numbers |= {title: number for title, (number, _) in WITHOUT_TASKS.items()}
    found = {title for title in numbers if any(each.spread(numbers[title]) for each in results.outcomes)}
    compute = ("flops", "seconds") if study.axis is not None and study.axis.flops else ("flops",)
    panels: list[Callable[[Axes], None]] = [
        partial(draw_scores, results=results, title=title, number=numbers[title], compute=each)
        for title in numbers
        if title in (found or PANELS)
        for each in compute
    ]
    if study.compared is not None:
        panels.append(partial(draw_difference, results=results))
    if study.published.lines or any(variant.published is not None for variant in study.variants):
        panels.append(partial(draw_published, study=study))
    across = 2 if len(compute) == 2 or len(panels) == 4 else min(len(panels), 3)
    down = -(-len(panels) // across)
    width, height = WIDTH * across, HEIGHT
    if study.axis is None:
        width += LABEL_WIDTH * max(len(variant.label) for variant in study.variants)
        height = 1.5 + 0.36 * len(study.variants)
    figure = Figure(figsize=(width, height * down), layout="constrained")
    grid = list(figure.subplots(down, across, squeeze=False).flat)
    for place, (panel, axes) in enumerate(zip(panels, grid, strict=False)):
        panel(axes)
        axes.grid(alpha=0.25)
        if study.axis is None and place % across:  # all panels have the same rows; only the first one labels them
            axes.tick_params(labelleft=False)
    for axes in grid[len(panels) :]:
        axes.remove()
    seeds = max((len(outcome.records) for outcome in results.outcomes), default=0)
    spread = f"means and standard deviations over up to {seeds} seeds, each a dot" if seeds > 1 else "one seed"
    figure.suptitle(f"{study.title}: scale {results.scale}, {spread}", fontsize=11)
    return figure


def draw_scores(axes: Axes, results: Results, title: str, number: Number, compute: str) -> None:
    """Draw one kind of score over the study's axis, or as a row per variant if it has none.

    `compute` is the field of the records that an axis of compute shows: flops or seconds.
    """
    axes.set_title(title, fontsize=10)
    glue = f"average of {format_count(len(results.tasks), 'GLUE task')}, dev"
    score = WITHOUT_TASKS[title][1] if title in WITHOUT_TASKS else glue
    if results.study.axis is None:
        draw_rows(axes, results.outcomes, number)
        axes.set_xlabel(score)
        return
    for style, name in enumerate(list_lines(results.study)):
        points = {
            get_position(outcome, compute): outcome.values(number)
            for outcome in results.outcomes
            if outcome.variant.line == name and (outcome.variant.x is not None or outcome.values(number))
        }
        draw_line(axes, points, name, style)
    axes.set_ylabel(score)
    label_axis(axes, results.study.axis if compute == "flops" else SECONDS)


def draw_rows(axes: Axes, outcomes: Sequence[Outcome], number: Number) -> None:
    """Draw a row per variant: mean, standard deviation, and a dot per seed."""
    for row, outcome in enumerate(outcomes):
        values, spread = outcome.values(number), outcome.spread(number)
        if spread is not None:
            axes.plot(values, [row] * len(values), ".", color=NEUTRAL, alpha=0.6, markersize=5)
            axes.errorbar(spread.mean, row, xerr=spread.std or 0.0, fmt="o", color=COLORS[0], capsize=3)
        else:
            axes.text(
                0.5, row, "no result", ha="center", va="center", color=NEUTRAL, transform=axes.get_yaxis_transform()
            )
    label_rows(axes, [outcome.variant.label for outcome in outcomes])


def label_rows(axes: Axes, labels: Sequence[str]) -> None:
    """Label the rows of a panel, the first on top."""
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)


def draw_line(axes: Axes, points: Mapping[float, Sequence[float]], name: str, style: int) -> None:
    """Draw the values at each position, and their means with standard deviations, connected by a line.

    The line has a gap at a position without values.
    """
    color, marker = COLORS[style % len(COLORS)], MARKERS[style % len(MARKERS)]
    positions = sorted(points)
    for position in positions:
        axes.plot([position] * len(points[position]), points[position], marker, color=color, alpha=0.4, markersize=3)
    spreads = [Spread.of(points[position]) or Spread(math.nan, None) for position in positions]
    deviations = [spread.std or 0.0 for spread in spreads]
    means = [spread.mean for spread in spreads]
    if any(points.values()):
        bars = axes.errorbar(positions, means, deviations, color=color, linewidth=1.4, capsize=3, label=name)
        bars.lines[0].set(marker=marker, markersize=5)


def draw_difference(axes: Axes, results: Results) -> None:
    """Draw the difference of the compared lines by position and seed, for two kinds of score."""
    assert results.study.axis is not None
    assert results.study.compared is not None
    first, second = results.study.compared
    for style, title in enumerate(list(PANELS)[:2]):
        draw_line(axes, compute_gains(results, average(PANELS[title], results.tasks)), title, style)
    axes.axhline(0, color=NEUTRAL, linewidth=1)
    axes.set_title(f"{first} minus {second}", fontsize=10)
    axes.set_ylabel("points")
    label_axis(axes, results.study.axis)


def compute_gains(results: Results, number: Number) -> dict[float, list[float]]:
    """Compute, by position, the first compared line's score minus the second's, for each seed that both have."""
    assert results.study.compared is not None
    first, second = (
        {get_pair_key(outcome): outcome for outcome in results.outcomes if outcome.variant.line == line}
        for line in results.study.compared
    )
    points = {}
    for key in [key for key in first if key in second]:
        scores, baseline = (
            {record["seed"]: value for record in each.records if (value := number(record)) is not None}
            for each in (first[key], second[key])
        )
        if differences := [scores[seed] - baseline[seed] for seed in scores if seed in baseline]:
            points[get_position(first[key])] = differences
    return points


def draw_published(axes: Axes, study: Study) -> None:
    """Draw the paper's scores."""
    axes.set_title(f"the paper: {study.published.source}", fontsize=10)
    score = "GLUE score, dev"
    if study.axis is None:
        scores = [math.nan if variant.published is None else variant.published for variant in study.variants]
        axes.plot(scores, range(len(scores)), "o", color=COLORS[1])
        label_rows(axes, [variant.label for variant in study.variants])
        axes.set_xlabel(score)
        return
    for style, (name, points) in enumerate(study.published.lines):
        draw_line(axes, {position: [value] for position, value in points}, name, style)
    axes.set_ylabel(score)
    label_axis(axes, study.axis)


def list_lines(study: Study) -> list[str]:
    """List the lines of a study in the order of their variants."""
    return list(dict.fromkeys(variant.line for variant in study.variants))


def get_position(outcome: Outcome, compute: str = "flops") -> float:
    """Return a variant's position on the axis: its `x`, or the mean compute of its runs."""
    if outcome.variant.x is not None:
        return outcome.variant.x
    return statistics.fmean(outcome.values(lambda record: record[compute]))


def get_pair_key(outcome: Outcome) -> tuple[float | None, float]:
    """Return what compared variants have in common: the position and the share of the budget."""
    return outcome.variant.x, outcome.variant.share


def label_axis(axes: Axes, axis: Axis) -> None:
    """Set the label, scale, ticks and legend of the horizontal axis."""
    axes.set_xlabel(axis.label)
    if axis.flops and axes.get_lines():
        axes.set_xscale("log")
        least, most = axes.get_xlim()
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if most / least > 100 else (1.0, 2.0, 5.0)))
        axes.xaxis.set_minor_formatter(NullFormatter())
    if axis.ticks:
        axes.set_xticks(range(len(axis.ticks)), axis.ticks)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize=8)
