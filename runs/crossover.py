"""`python runs/crossover.py`: ELECTRA and BERT over compute, from the committed rows of docs/research/results.

Writes crossover-tiny.png and crossover-tiny.csv there: the table has the crossing of straight lines through the runs of both
objectives over the logarithm of FLOPs and of seconds, with Fieller's interval (electra.studies.reporting.crossover).
"""

import csv
from pathlib import Path

from electra.plotting import Figure
from electra.studies.reporting.crossover import COMPUTE, find_crossing, fit_line

RESULTS = Path(__file__).parents[1] / "docs/research/results"
STUDIES = ("efficiency-tiny", "convergence-tiny")
"""Studies with runs of both objectives at several budgets; runs that both have count once."""
LINES = {"ELECTRA": "#c8442d", "BERT": "#2c6fa6"}
SCORES = {"tags": "tags, best layer", "tags_last": "tags, last layer", "probe_average": "sentence probe, best layers"}
UNITS = {name: COMPUTE[name] for name in ("flops", "seconds")}
"""Columns of compute that these rows have, with their units."""
AFTER_PLATEAU = 7e12
"""FLOPs from which on BERT has left its plateau in every run; ELECTRA leaves it between 1.5e13 and 3e13."""

Rows = list[dict[str, str]]


def read_runs() -> Rows:
    """Read the finished runs of both objectives, each once."""
    runs: dict[tuple[str, str], dict[str, str]] = {}
    for study in STUDIES:
        with (RESULTS / f"{study}.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                if row["line"] in LINES and row["status"] == "done":
                    runs[row["variant"], row["seed"]] = row
    return list(runs.values())


def select_points(rows: Rows, line: str, score: str, compute: str, least: float) -> list[tuple[float, float]]:
    """Select compute and score of the runs of a line with at least this many FLOPs."""
    return [
        (float(row[compute]), float(row[score])) for row in rows if row["line"] == line and float(row["flops"]) >= least
    ]


def build_table(rows: Rows) -> list[dict[str, str]]:
    """Build a row for each score, kind of compute and range of budgets."""
    table = []
    for score, label in SCORES.items():
        for compute, unit in UNITS.items():
            for least in (0.0, AFTER_PLATEAU):
                first, second = (fit_line(select_points(rows, line, score, compute, least)) for line in LINES)
                assert first is not None
                assert second is not None
                crossing = find_crossing(first, second)
                # Without a gain the second line overtakes the first; without an interval the runs do not bound the crossing.
                found = ("", "", "")
                if crossing.gain > 0 and crossing.at is not None and crossing.interval is not None:
                    low, high = crossing.interval
                    found = (f"{crossing.at:.3g}", f"{low:.3g}", f"{high:.3g}")
                table.append(
                    {
                        "score": label,
                        "compute": unit,
                        "from_flops": f"{least:g}",
                        "gain_per_tenfold": f"{crossing.gain:.2f}",
                        **dict(zip(("crossing", "low", "high"), found, strict=True)),
                    }
                )
    return table


def draw(rows: Rows) -> Figure:
    """Draw tags over FLOPs and over seconds, a dot for each run."""
    figure = Figure(figsize=(9.2, 3.8), layout="constrained")
    for axes, (compute, unit) in zip(figure.subplots(1, 2, sharey=True), UNITS.items(), strict=True):
        for line, color in LINES.items():
            points = sorted(select_points(rows, line, "tags", compute, 0.0))
            axes.plot(*zip(*points, strict=True), "o", color=color, label=line, markersize=4)
        axes.set_xscale("log")
        axes.set_xlabel(f"{unit} of pre-training" if compute == "flops" else unit)
        axes.grid(alpha=0.25)
    figure.axes[0].set_ylabel("accuracy of word tags, best layer, %")
    figure.axes[0].legend(fontsize=8, loc="lower right")
    return figure


def main() -> None:
    """Write the table and the figure."""
    rows = read_runs()
    table = build_table(rows)
    with (RESULTS / "crossover-tiny.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    draw(rows).savefig(RESULTS / "crossover-tiny.png", dpi=150)


if __name__ == "__main__":
    main()
