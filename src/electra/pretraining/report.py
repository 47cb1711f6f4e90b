"""The report of a run: one HTML file with pictures, held-out metrics, findings, sentences; the pictures as PNG too."""

import base64
import html
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.markup import escape

from electra.pretraining.detection import BINS, WIDTH
from electra.pretraining.evaluate import Evaluation, Sample
from electra.pretraining.health import Finding
from electra.storage import writing

REPLACED, ORIGINAL, NEUTRAL = "#c8442d", "#2c6fa6", "#777777"

# What the metrics mean, in the order in which they are shown.
MEANINGS = {
    "loss": "total loss: the generator's plus the weighted discriminator's",
    "generator_loss": "generator: -log probability of the original token",
    "generator_accuracy": "generator: masked-LM accuracy, best guess",
    "sampled_accuracy": "generator: share of samples that are the original token",
    "mlm_loss": "masked-LM loss: -log probability of the original token",
    "mlm_accuracy": "masked-LM accuracy",
    "replaced": "share of tokens replaced",
    "discriminator_loss": "discriminator: cross-entropy per token",
    "accuracy": "discriminator: accuracy",
    "majority": "... of always saying the commoner answer",
    "precision": "discriminator: precision",
    "recall": "discriminator: recall",
    "auc": "discriminator: area under the ROC curve",
    "frequency_auc": "... of token frequency alone",
}


@dataclass(frozen=True)
class Report:
    """All that a report shows."""

    title: str
    facts: Mapping[str, str]
    rows: Sequence[Mapping[str, Any]]
    """The run's `metrics.jsonl`."""
    evaluation: Evaluation
    samples: Sequence[Sample]
    findings: Sequence[Finding]


def write_report(report: Report, directory: Path) -> Path:
    """Write `report.html`, which holds everything, and its pictures in `pictures/`; returns the HTML file."""
    matplotlib.use("Agg")
    with writing(directory):
        pictures = directory / "pictures"
        pictures.mkdir(exist_ok=True)
        images = []
        for name, figure in draw(report).items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format="png", dpi=110)
            (pictures / f"{name}.png").write_bytes(buffer.getvalue())
            images.append(
                f'<img alt="{name}" src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}">'
            )
        path = directory / "report.html"
        path.write_text(page(report, images), encoding="utf-8")
    return path


def draw(report: Report) -> dict[str, Figure]:
    """The pictures by name, those that the run's metrics allow."""
    figures = {}
    if report.rows:
        figures["training"] = draw_training(report.rows)
    if report.evaluation.histograms:
        figures["detection"] = draw_detection(report.evaluation)
    if any(sample.tokens for sample in report.samples):
        figures["sentences"] = draw_sentences(report.samples)
    return figures


def draw_training(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Losses, accuracies and the optimisation over the steps."""
    steps = [row["step"] for row in rows]

    def plot(axes: Axes, names: Mapping[str, str], title: str) -> None:
        for name, label in names.items():
            if name in rows[-1]:
                axes.plot(steps, [row.get(name, math.nan) for row in rows], label=label, linewidth=1.4)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("step")
        axes.grid(alpha=0.25)
        axes.legend(fontsize=8)

    figure = Figure(figsize=(11, 6.4), layout="constrained")
    (a, b), (c, d) = figure.subplots(2, 2)
    plot(a, {"loss": "total", "generator_loss": "generator", "mlm_loss": "masked LM"}, "loss")
    plot(
        b,
        {
            "auc": "AUC",
            "precision": "precision",
            "recall": "recall",
            "accuracy": "accuracy",
            "majority": "majority class",
        },
        "discriminator",
    ) if "auc" in rows[-1] else plot(b, {"mlm_accuracy": "accuracy"}, "masked LM")
    plot(
        c,
        {"generator_accuracy": "generator accuracy", "replaced": "tokens replaced"}
        if "replaced" in rows[-1]
        else {"tokens_per_second": "tokens/s"},
        "generator" if "replaced" in rows[-1] else "speed",
    )
    plot(d, {"gradient_norm": "gradient norm"}, "gradient norm and learning rate")
    rate = d.twinx()
    rate.plot(steps, [row["learning_rate"] for row in rows], color=NEUTRAL, linestyle="--", linewidth=1)
    rate.set_ylabel("learning rate", color=NEUTRAL)
    return figure


def draw_detection(evaluation: Evaluation) -> Figure:
    """Held-out scores of replaced and original tokens, and the ROC curve."""
    replaced = np.array(evaluation.histograms["scores_replaced"])
    original = np.array(evaluation.histograms["scores_original"])
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    probabilities = 1 / (1 + np.exp(-(np.arange(BINS) - BINS / 2 + 0.5) * WIDTH))
    for counts, color, label in ((original, ORIGINAL, "original"), (replaced, REPLACED, "replaced")):
        left.hist(
            probabilities,
            bins=50,
            range=(0, 1),
            weights=counts / max(counts.sum(), 1),
            color=color,
            alpha=0.6,
            label=label,
        )
    left.set_title("held-out tokens by the discriminator's probability of “replaced”", fontsize=10)
    left.set_yscale("log")
    left.legend(fontsize=8)
    hits = np.append(0, replaced[::-1].cumsum()) / max(replaced.sum(), 1)
    alarms = np.append(0, original[::-1].cumsum()) / max(original.sum(), 1)
    right.plot(alarms, hits, color=REPLACED, label=f"discriminator, AUC {evaluation.metrics['auc']:.3f}")
    right.plot([0, 1], [0, 1], color=NEUTRAL, linestyle=":", label="guessing")
    right.set_title("ROC curve on held-out text", fontsize=10)
    right.set_xlabel("share of original tokens called replaced")
    right.set_ylabel("share of replaced tokens found")
    right.legend(fontsize=8)
    return figure


def draw_sentences(samples: Sequence[Sample]) -> Figure:
    """Sentences as bars of probability over their tokens; replaced tokens in red, with the original above."""
    figure = Figure(figsize=(11, 2.6 * len(samples)), layout="constrained")
    for axes, sample in zip(np.atleast_1d(figure.subplots(len(samples), 1)), samples, strict=True):
        places = range(len(sample.tokens))
        colors = [ORIGINAL if each is None else REPLACED for each in sample.originals]
        axes.bar(places, sample.probabilities, color=colors)
        axes.set_xticks(
            places, [token.replace("$", r"\$") for token in sample.tokens], rotation=60, ha="right", fontsize=8
        )
        for label, color in zip(axes.get_xticklabels(), colors, strict=True):
            label.set_color(color)
        for place, original in enumerate(sample.originals):
            if original is not None:
                text = original.replace("$", r"\$")
                axes.text(place, sample.probabilities[place] + 0.03, text, ha="center", fontsize=7, color=NEUTRAL)
        axes.set_ylim(0, 1.15)
        axes.set_ylabel("P(replaced)")
    return figure


def shown(name: str, value: float) -> str:
    """A metric as people read it."""
    return f"{value:.3f}" if "loss" in name or "auc" in name else f"{value:.1%}"


def page(report: Report, images: Sequence[str]) -> str:
    """The report as one HTML page."""
    metrics = report.evaluation.metrics
    facts = "".join(f"<tr><td>{html.escape(k)}<td>{html.escape(v)}" for k, v in report.facts.items())
    table = "".join(
        f"<tr><td>{html.escape(meaning)}<td class=n>{shown(name, metrics[name])}"
        for name, meaning in MEANINGS.items()
        if name in metrics
    )
    findings = "".join(
        f"<li><b>step {f.step}: {html.escape(f.problem)}</b>: {html.escape(f.advice)}" for f in report.findings
    )
    sentences = "".join(f"<p class=s>{sentence_html(sample)}" for sample in report.samples)
    explained = (
        "<p>Each token is shaded by the discriminator's probability that it was replaced. "
        "Underlined: really replaced; the original stands in brackets."
    )
    return f"""<!doctype html><meta charset="utf-8"><title>{html.escape(report.title)}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222 }}
table {{ border-collapse: collapse }} td {{ padding: .15rem 1rem .15rem 0; border-bottom: 1px solid #ddd }}
.n {{ text-align: right; font-variant-numeric: tabular-nums }} img {{ max-width: 100% }}
.s span {{ padding: .05rem .15rem; border-radius: .2rem }} .r {{ text-decoration: underline }} small {{ color: #777 }}
</style>
<h1>{html.escape(report.title)}</h1>
<table>{facts}</table>
<h2>Held-out text</h2><table>{table}</table>
<h2>Health</h2>{f"<ul>{findings}</ul>" if findings else "<p>Nothing unusual was seen."}
{"<h2>Three held-out sentences</h2>" + explained + sentences if sentences else ""}
<h2>Pictures</h2>{"".join(f"<p>{image}" for image in images)}
"""


def sentence_html(sample: Sample) -> str:
    """A sentence with each token shaded by its probability."""
    parts = []
    for token, original, p in zip(sample.tokens, sample.originals, sample.probabilities, strict=True):
        word = f'<span style="background: rgb(200 68 45 / {p:.2f})" title="{p:.3f}">{html.escape(token)}</span>'
        parts.append(word if original is None else f"<u>{word}</u> <small>[{html.escape(original)}]</small>")
    return " ".join(parts)


def sentence_markup(sample: Sample) -> str:
    """A sentence for a terminal: every token with its probability, replaced ones in red with what stood there."""
    parts = []
    for token, original, p in zip(sample.tokens, sample.originals, sample.probabilities, strict=True):
        shade = "bold red" if p >= 0.5 else "yellow" if p >= 0.2 else "dim"
        word, score = escape(token), f"[{shade}]{p:.2f}[/{shade}]"
        parts.append(
            f"{word} {score}" if original is None else f"[red underline]{word}[/] (was {escape(original)}) {score}"
        )
    return "  ".join(parts)
