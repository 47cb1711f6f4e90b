"""The figures of a report: training curves, detection of replaced tokens, example sentences."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from electra.plotting import Axes, Figure, Patch
from electra.pretraining.evaluation.held_out import Evaluation, Sample
from electra.pretraining.objectives.metrics import Metric
from electra.pretraining.objectives.targets.detection_metrics import BINS, WIDTH
from electra.reporting import FALLING, NEUTRAL, RISING, Rows, plot_metrics

REPLACED, ORIGINAL = "#c8442d", "#2c6fa6"


def draw_figures(
    rows: Rows, descriptions: Mapping[str, Metric], evaluation: Evaluation, samples: Sequence[Sample]
) -> dict[str, Figure]:
    """Draw the figures for which the run has metrics; returns them by name."""
    figures = {}
    if rows:
        figures["training"] = draw_training(rows, descriptions, evaluation.metrics)
    if {"scores_replaced", "scores_original"} <= evaluation.histograms.keys():
        figures["detection"] = draw_detection(evaluation)
    if any(sample.tokens for sample in samples):
        figures["sentences"] = draw_sentences(samples)
    return figures


def select_metrics(values: Mapping[str, Any], descriptions: Mapping[str, Metric]) -> dict[str, Metric]:
    """Select the descriptions of the metrics that a run has; that of the total loss only if it sums several losses."""
    found = {name: metric for name, metric in descriptions.items() if name in values}
    losses = [name for name in found if name.endswith("_loss")]
    return {name: metric for name, metric in found.items() if name != "loss" or len(losses) != 1}


def draw_training(rows: Rows, descriptions: Mapping[str, Metric], heldout: Mapping[str, float]) -> Figure:
    """Plot losses, accuracies, gradient norm and learning rate over the steps."""
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    (a, b), (c, d) = figure.subplots(2, 2)
    panels: dict[str, dict[str, str]] = {"loss": {}, "discriminator": {}, "tokens": {}, "masked": {}}
    for name, metric in select_metrics(rows[-1], descriptions).items():
        if metric.panel:
            panels.setdefault(metric.panel, {})[name] = metric.label or name
    plot_metrics(a, rows, panels["loss"], "loss")
    if panels["discriminator"]:
        plot_metrics(b, rows, panels["discriminator"], "discriminator", RISING)
        if "frequency_auc" in heldout:
            baseline = {"color": NEUTRAL, "linestyle": ":", "label": "AUC of token frequency (held-out)"}
            b.axhline(heldout["frequency_auc"], **baseline)
        b.legend(fontsize=8, loc=RISING)
    else:
        plot_metrics(b, rows, panels["tokens"], "predicted tokens", RISING)
    if panels["masked"]:
        plot_metrics(c, rows, panels["masked"], "masked positions", RISING)
    else:
        plot_metrics(c, rows, {"tokens_per_second": "tokens/s"}, "speed")
    plot_metrics(d, rows, {"gradient_norm": "gradient norm"}, "gradient norm and learning rate")
    rate = d.twinx()
    rates = [row.get("learning_rate", math.nan) for row in rows]
    steps = [row["step"] for row in rows]
    rate.plot(steps, rates, color=NEUTRAL, linestyle="--", linewidth=1, label="learning rate (right)")
    rate.set_ylabel("learning rate", color=NEUTRAL)
    d.legend(handles=[*d.get_lines(), *rate.get_lines()], fontsize=8, loc=FALLING)
    return figure


def draw_detection(evaluation: Evaluation) -> Figure:
    """Draw the held-out scores of replaced and original tokens, and the ROC curve."""
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_scores(left, evaluation.histograms)
    draw_roc(right, evaluation)
    return figure


def draw_scores(axes: Axes, histograms: Mapping[str, Sequence[float]]) -> None:
    """Draw histograms of the discriminator's probabilities for original and replaced tokens."""
    probabilities = 1 / (1 + np.exp(-(np.arange(BINS) - BINS / 2 + 0.5) * WIDTH))
    for label, color in (("original", ORIGINAL), ("replaced", REPLACED)):
        counts = np.array(histograms[f"scores_{label}"])
        share = counts / max(counts.sum(), 1)
        axes.hist(probabilities, bins=50, range=(0, 1), weights=share, color=color, alpha=0.6, label=label)
    axes.set_title("held-out tokens by the discriminator's probability of “replaced”", fontsize=10)
    axes.set_xlabel("discriminator's probability of “replaced”")
    axes.set_ylabel("share of original or replaced tokens")
    axes.set_yscale("log")
    axes.legend(fontsize=8, loc="upper center")


def draw_roc(axes: Axes, evaluation: Evaluation) -> None:
    """Draw the ROC curves of the discriminator, of token frequency and of guessing."""
    metrics, histograms = evaluation.metrics, evaluation.histograms
    false_rates, true_rates = compute_roc(histograms["scores_replaced"], histograms["scores_original"])
    axes.plot(false_rates, true_rates, color=REPLACED, label=format_auc("discriminator", metrics.get("auc")))
    if {"rarity_replaced", "rarity_original"} <= histograms.keys():
        false_rates, true_rates = compute_roc(histograms["rarity_replaced"], histograms["rarity_original"])
        area = (np.diff(false_rates) * (true_rates[1:] + true_rates[:-1])).sum() / 2
        if area < 0.5:  # replaced tokens are more frequent than original ones here
            false_rates, true_rates = 1 - false_rates, 1 - true_rates
        label = format_auc("token frequency", metrics.get("frequency_auc"))
        axes.plot(false_rates, true_rates, color=ORIGINAL, linewidth=1, label=label)
    axes.plot([0, 1], [0, 1], color=NEUTRAL, linestyle=":", label="guessing")
    axes.set_title("ROC curve on held-out text", fontsize=10)
    axes.set_xlabel("false positive rate")
    axes.set_ylabel("true positive rate")
    axes.legend(fontsize=8, loc=RISING)


def format_auc(name: str, auc: float | None) -> str:
    """Format the label of a ROC curve, with its area if that is known."""
    return name if auc is None else f"{name}, AUC {auc:.3f}"


def compute_roc(positive: Sequence[float], negative: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Compute false and true positive rates over falling thresholds, from histograms of the scores."""
    rates = [np.append(0, np.array(counts)[::-1].cumsum()) / max(sum(counts), 1) for counts in (negative, positive)]
    return rates[0], rates[1]


def draw_sentences(samples: Sequence[Sample]) -> Figure:
    """Draw sentences as bars of probability over their tokens; replaced tokens in red, with the original token above."""
    figure = Figure(figsize=(11, 2.6 * len(samples)), layout="constrained")
    for axes, sample in zip(np.atleast_1d(figure.subplots(len(samples), 1)), samples, strict=True):
        positions = range(len(sample.tokens))
        colors = [ORIGINAL if each is None else REPLACED for each in sample.originals]
        axes.bar(positions, sample.probabilities, color=colors)
        axes.set_xticks(
            positions, [token.replace("$", r"\$") for token in sample.tokens], rotation=60, ha="right", fontsize=8
        )
        for label, color in zip(axes.get_xticklabels(), colors, strict=True):
            label.set_color(color)
        for position, original in enumerate(sample.originals):
            if original is not None:
                text = original.replace("$", r"\$")
                axes.text(position, sample.probabilities[position] + 0.03, text, ha="center", fontsize=7, color=NEUTRAL)
        axes.set_ylim(0, 1.15)
        axes.set_ylabel("P(replaced)")
    figure.suptitle("Held-out sentences: the discriminator's probability that each token was replaced", fontsize=10)
    kinds = {"original token": ORIGINAL, "replaced token, with the original token above": REPLACED}
    figure.legend(
        handles=[Patch(color=color, label=label) for label, color in kinds.items()],
        fontsize=8,
        loc="outside lower right",
    )
    return figure
