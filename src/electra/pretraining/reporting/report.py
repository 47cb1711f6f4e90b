"""The report of a run: one HTML file with figures, held-out metrics, findings and sentences; the figures as PNG files too."""

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape

from electra.pretraining.evaluation.held_out import Evaluation, Sample
from electra.pretraining.objectives.metrics import Metric
from electra.pretraining.reporting.diagnostics import Finding
from electra.pretraining.reporting.plots import draw_figures, select_metrics
from electra.reporting import format_table, write_page


@dataclass(frozen=True)
class Report:
    """The contents of a report."""

    title: str
    facts: Mapping[str, str]
    rows: Sequence[Mapping[str, Any]]
    """The rows of the run's `metrics.jsonl`."""
    metrics: Mapping[str, Metric]
    """Descriptions of the metrics, in the order of the tables."""
    evaluation: Evaluation
    by_source: Mapping[str, Mapping[str, float]]
    """Held-out metrics of each of several sources; empty for one."""
    samples: Sequence[Sample]
    findings: Sequence[Finding]


def write_report(report: Report, directory: Path) -> Path:
    """Write `report.html`, which contains all figures, and the figures in `pictures/`; returns the path of the HTML file."""
    figures = draw_figures(report.rows, report.metrics, report.evaluation, report.samples)
    return write_page(directory, report.title, format_body(report), figures)


def format_metrics(metrics: Mapping[str, float], descriptions: Mapping[str, Metric]) -> Iterator[tuple[str, str]]:
    """Format the metrics as pairs of description and value; without the total of a single loss."""
    for name, metric in select_metrics(metrics, descriptions).items():
        value = metrics[name]
        yield metric.description, f"{value:.1%}" if metric.percent else f"{value:.3f}"


def build_metric_table(
    metrics: Mapping[str, float], by_source: Mapping[str, Mapping[str, float]], descriptions: Mapping[str, Metric]
) -> list[list[str]]:
    """Build the rows of the held-out metrics, of all text and of each source, below a heading if there are several sources."""
    columns = [dict(format_metrics(each, descriptions)) for each in (metrics, *by_source.values())]
    rows = [[meaning, *(column.get(meaning, "") for column in columns)] for meaning in columns[0]]
    return [["", "all", *by_source], *rows] if by_source else rows


def format_period(finding: Finding, last_step: int) -> str:
    """Format the steps at which a problem was found, in a run whose last row of metrics is that of `last_step`."""
    if finding.last_step is None:
        return "at the end" if finding.step else "from the start"
    if finding.last_step == last_step:
        return f"step {finding.step:,} to the end"
    until = f" to {finding.last_step:,}" if finding.last_step > finding.step else ""
    return f"step {finding.step:,}{until}, not later"


def format_body(report: Report) -> str:
    """Format the report as HTML, without its figures."""
    metrics = build_metric_table(report.evaluation.metrics, report.by_source, report.metrics)
    last_step = report.rows[-1]["step"] if report.rows else 0
    findings = "".join(
        f"<li><b>{html.escape(f.problem)}</b> ({format_period(f, last_step)}): {html.escape(f.advice)}"
        for f in report.findings
    )
    sentences = "".join(f"<p class=s>{format_sentence_html(sample)}" for sample in report.samples)
    explained = (
        "<p>Each token is shaded by the discriminator's probability that it was replaced. "
        "Replaced tokens are underlined, followed by the original token in brackets."
    )
    return f"""{format_table(report.facts.items())}
<h2>Held-out text</h2>{format_table(metrics, numbers=True)}
<h2>Health</h2>{f"<ul>{findings}</ul>" if findings else "<p>No problems were found."}
{"<h2>Three held-out sentences</h2>" + explained + sentences if sentences else ""}
"""


def format_sentence_html(sample: Sample) -> str:
    """Format a sentence as HTML, with each token shaded by the probability that it was replaced."""
    parts = []
    for token, original, p in zip(sample.tokens, sample.originals, sample.probabilities, strict=True):
        word = f'<span style="background: rgb(200 68 45 / {p:.2f})" title="{p:.3f}">{html.escape(token)}</span>'
        parts.append(word if original is None else f"<u>{word}</u> <small>[{html.escape(original)}]</small>")
    return " ".join(parts)


def format_sentence_markup(sample: Sample) -> str:
    """Format a sentence for a terminal: tokens with their probabilities, replaced ones in red with the original token."""
    parts = []
    for token, original, p in zip(sample.tokens, sample.originals, sample.probabilities, strict=True):
        shade = "bold red" if p >= 0.5 else "yellow" if p >= 0.2 else "dim"
        word, score = escape(token), f"[{shade}]{p:.2f}[/{shade}]"
        parts.append(
            f"{word} {score}" if original is None else f"[red underline]{word}[/] (was {escape(original)}) {score}"
        )
    return "  ".join(parts)
