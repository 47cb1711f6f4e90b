"""The report of fine-tuning: one HTML page with scores, baselines, learning curves and errors; figures as PNG files too."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from electra.finetuning.training.dev_scores import read_dev_scores
from electra.plotting import Axes, Figure
from electra.reporting import NEUTRAL, format_table, write_page
from electra.train.metrics_log import read_metrics

MAX_CLASSES = 30
"""Largest number of classes whose confusion matrix is drawn."""


def write_report(out: Path, results: Sequence[Mapping[str, Any]], summary: Mapping[str, Any]) -> Path:
    """Write `out/report.html` of the runs `out/seed-N`, given by their results, with their `summary`."""
    figures = {"training": draw_training(out, results)}
    if (matrix := add_confusions(results)) is not None:
        figures["confusion"] = draw_confusion(results[0]["confusion"]["labels"], matrix)
    if all("residuals" in result for result in results):
        figures["residuals"] = draw_residuals(results)
    return write_page(out, f"Fine-tuning: {summary['task']}", format_body(summary), figures)


def format_body(summary: Mapping[str, Any]) -> str:
    """Format facts, scores and baselines as HTML."""
    facts = {
        "model": summary["start"],
        "seeds": ", ".join(map(str, summary["seeds"])),
        "failed seeds": ", ".join(map(str, summary["failed_seeds"])) or "none",
        "examples": ", ".join(f"{split} {data['examples']:,}" for split, data in summary["data"].items()),
        **{
            name.replace("_", " "): str(value)
            for name, value in summary["hyperparameters"].items()
            if value is not None
        },
        "selected weights": "; ".join(dict.fromkeys(summary["selected"])),
        "hardware": summary["hardware"],
    }
    first = next(iter(summary["metrics"]))
    header = ["", *summary["metrics"][first]]
    rows = [
        [split, *(format_spread(each) for each in metrics.values())]
        if list(metrics) == header[1:]
        else [split, *(f"{name} {format_spread(each)}" for name, each in metrics.items())]
        for split, metrics in summary["metrics"].items()
    ]
    for name, metrics in summary["baselines"].items():
        rows.append([f"{first}, baseline: {name}", *(f"{metrics[each]:.1f}" for each in header[1:] if each in metrics)])
    cells = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}' for cell in row)}" for row in rows)
    heads = "".join(f"<th>{html.escape(name.replace('_', ' '))}" for name in header)
    return (
        f"{format_table(facts.items())}\n<h2>Scores</h2><p>In percent: the median over seeds, ± their standard deviation.\n"
        f"<table><tr>{heads}{cells}</table>"
    )


def format_spread(spread: Mapping[str, Any]) -> str:
    """Format median and standard deviation over seeds."""
    return f"{spread['median']:.1f}" + (f" ± {spread['std']:.1f}" if spread["std"] is not None else "")


def draw_training(out: Path, results: Sequence[Mapping[str, Any]]) -> Figure:
    """Plot the training loss and the dev score of each seed over the updates, with the loss of a constant prediction."""
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for result in results:
        directory, label = out / f"seed-{result['seed']}", f"seed {result['seed']}"
        rows = list(read_metrics(directory / "metrics.jsonl"))
        left.plot([row["step"] for row in rows], [row["loss"] for row in rows], marker=".", linewidth=1.2, label=label)
        scores = {row["step"]: row["score"] for row in read_dev_scores(directory)}
        if result["selected"] == "last epoch" and "dev" in result["metrics"]:
            scores[result["steps"]] = result["metrics"]["dev"][result["main_metric"]]
        right.plot(list(scores), list(scores.values()), marker=".", linewidth=1.2, label=label)
    if (chance := results[0].get("chance_loss")) is not None:
        left.axhline(chance, color=NEUTRAL, linestyle=":", label="constant prediction")
    for name, metrics in results[0]["baselines"].items():
        if (value := metrics.get(results[0]["main_metric"])) is not None:
            right.axhline(value, color=NEUTRAL, linestyle=":", linewidth=1)
            right.annotate(name, (0, value), xycoords=("axes fraction", "data"), fontsize=7, color=NEUTRAL, va="bottom")
    finish(left, "training loss", "loss of an example")
    finish(right, "dev, after each epoch", f"{results[0]['main_metric'].replace('_', ' ')} in %")
    return figure


def finish(axes: Axes, title: str, label: str) -> None:
    """Add title, labels, grid and a legend for up to ten seeds."""
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("step")
    axes.set_ylabel(label)
    axes.grid(alpha=0.25)
    if len(axes.get_legend_handles_labels()[1]) <= 11:
        axes.legend(fontsize=8)


def add_confusions(results: Sequence[Mapping[str, Any]]) -> np.ndarray | None:
    """Add the confusion matrices [C, C] of all seeds; None if there are none, too many classes to draw, or other shapes."""
    if not all("confusion" in result for result in results):
        return None
    size = len(results[0]["confusion"]["labels"])
    matrices = [result["confusion"]["counts"] for result in results]
    square = all(len(rows) == size and all(len(row) == size for row in rows) for rows in matrices)
    return np.sum(matrices, axis=0) if size <= MAX_CLASSES and square else None


def draw_confusion(labels: Sequence[str], matrix: np.ndarray) -> Figure:
    """Draw a confusion matrix: rows are the labels, columns the predictions; the shade is the share of the row."""
    side = 2.8 + 0.45 * len(labels)
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    axes = figure.subplots()
    shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    names = [label.replace("$", r"\$")[:30] for label in labels]
    axes.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    for (row, column), count in np.ndenumerate(matrix):
        color = "white" if shares[row, column] > 0.6 else "black"
        axes.text(column, row, f"{count:,}", ha="center", va="center", fontsize=8, color=color)
    axes.set_xlabel("prediction")
    axes.set_ylabel("label")
    axes.set_title("confusion matrix on dev, all seeds", fontsize=10)
    return figure


def draw_residuals(results: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw predicted minus true numbers over the true ones, for each seed."""
    figure = Figure(figsize=(6.5, 3.8), layout="constrained")
    axes = figure.subplots()
    for result in results:
        targets, predicted = result["residuals"]["targets"], result["residuals"]["predicted"]
        differences = [y - x for x, y in zip(targets, predicted, strict=False)]
        axes.scatter(targets[: len(differences)], differences, s=9, alpha=0.5, label=f"seed {result['seed']}")
    axes.axhline(0, color=NEUTRAL, linewidth=1)
    finish(axes, "residuals on dev", "prediction - label")
    axes.set_xlabel("label")
    return figure
