"""The table of GLUE scores, with baselines and published scores."""

import statistics
from typing import Any

COLUMNS = {
    "cola": "CoLA",
    "sst2": "SST",
    "mrpc": "MRPC",
    "stsb": "STS",
    "qqp": "QQP",
    "mnli": "MNLI",
    "qnli": "QNLI",
    "rte": "RTE",
}
"""Task -> column of the paper's tables, in their order; the paper's average is over these eight."""

PUBLISHED: dict[str, tuple[float | None, ...]] = {
    "ELECTRA-Small (Table 1)": (None,) * 8 + (79.9,),
    "BERT-Small (Table 1)": (None,) * 8 + (75.1,),
    "ELECTRA-Base (Table 1)": (None,) * 8 + (85.1,),
    "BERT-Base (Table 1)": (None,) * 8 + (82.2,),
    "ELECTRA-Large, 1.75M (Table 2)": (69.1, 96.9, 90.8, 92.6, 92.4, 90.9, 95.0, 88.0, 89.5),
    "BERT-Large (Table 2)": (60.6, 93.2, 88.0, 90.0, 91.3, 86.6, 92.3, 70.4, 84.0),
    "ELECTRA-Small++ (released)": (57.0, 91.2, 88.0, 87.5, 89.0, 81.3, 88.4, 66.7, 81.1),
    "ELECTRA-Base++ (released)": (67.7, 95.1, 89.5, 91.2, 91.5, 88.8, 93.2, 82.7, 87.5),
}
"""Dev scores in the order of COLUMNS, then their average; None if only the average was published."""


NUMBER_BASELINES = {"mean": "majority class", "TF-IDF, ridge regression": "TF-IDF, logistic regression"}
"""Baseline of numbers -> the baseline of classes with which it shares a row."""


def compute_average(summaries: dict[str, Any]) -> float | None:
    """Compute the paper's average, over the medians of its eight tasks; None unless all of them were run."""
    if not set(COLUMNS) <= set(summaries):
        return None
    return statistics.fmean(get_main_score(summaries[name])["median"] for name in COLUMNS)


def get_main_score(summary: dict[str, Any]) -> dict[str, Any]:
    """Return median, mean, standard deviation and values of a task's main metric on dev."""
    return summary["metrics"]["dev"][summary["main_metric"]]


def build_table_rows(results: dict[str, Any]) -> list[list[str]]:
    """Build the rows of the table: a header, the scores of the model, those of its ensemble if there is one, the paper's."""
    names = [*COLUMNS, *(name for name in results["tasks"] if name not in COLUMNS)]

    def format_cell(value: float | None) -> str:
        return "" if value is None else f"{value:.1f}"

    def format_task(name: str) -> str:
        summary = results["tasks"].get(name)
        if summary is None:
            return ""
        score = get_main_score(summary)
        return format_cell(score["median"]) + (f" ± {score['std']:.1f}" if score["std"] is not None else "")

    rows = [["", *(COLUMNS.get(name, name.upper()) for name in names), "Avg."]]
    start = "random weights" if results["config"]["from_scratch"] else "this model"
    rows.append([f"{start}, median of {results['seeds']}", *map(format_task, names), format_cell(results["average"])])
    if "ensemble" in results:
        metric = {name: summary["main_metric"] for name, summary in results["tasks"].items()}
        values = {name: splits["dev"][metric[name]] for name, splits in results["ensemble"].items()}
        mean = statistics.fmean(values[name] for name in COLUMNS) if set(COLUMNS) <= set(values) else None
        size = len(next(iter(results["best_seeds"].values())))
        cells = map(format_cell, [*map(values.get, names), mean])
        rows.append([f"ensemble of the {size} best on dev", *cells])
    for label, values in collect_baselines(results["tasks"]).items():
        mean = statistics.fmean(values[name] for name in COLUMNS) if set(COLUMNS) <= set(values) else None
        rows.append([f"baseline, {label}", *map(format_cell, [*map(values.get, names), mean])])
    extra = [""] * (len(names) - len(COLUMNS))
    for label, (*scores, mean) in PUBLISHED.items():
        rows.append([label, *map(format_cell, scores), *extra, format_cell(mean)])
    return rows


def collect_baselines(summaries: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Collect the main metric of every baseline: row of the table -> task -> score."""
    rows: dict[str, dict[str, float]] = {}
    for name, summary in summaries.items():
        for baseline, metrics in summary["baselines"].items():
            rows.setdefault(NUMBER_BASELINES.get(baseline, baseline), {})[name] = metrics[summary["main_metric"]]
    return rows


def format_markdown(results: dict[str, Any]) -> str:
    """Format the table and its notes as Markdown."""
    header, *rows = build_table_rows(results)
    rows = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows) + "\n" + " ".join(list_notes(results)) + "\n"


def list_notes(results: dict[str, Any]) -> list[str]:
    """List notes on how the scores were computed."""
    notes = [
        "Dev scores in percent: Matthews correlation for CoLA, Spearman for STS, accuracy for the rest; ± is the standard "
        "deviation over seeds.",
        "Published rows: the paper's tables, and the released models' dev scores.",
    ]
    if any(set(summary["baselines"]) & set(NUMBER_BASELINES) for summary in results["tasks"].values()):
        notes.append("The baselines of STS are the mean instead of the majority class, and ridge regression.")
    if results["config"]["select"] == "best":
        notes.append(
            "Each run's epoch was selected on the dev rows that are scored here, which biases the scores upwards."
        )
    if "ensemble" in results:
        notes.append(
            "The runs of the ensemble were selected on the dev rows that are scored here, which biases the scores upwards."
        )
    if "wnli" in results["tasks"]:
        notes.append("WNLI is scored by candidate antecedents.")
    if results["intermediate"]:
        notes.append("RTE and STS start from the model fine-tuned on MNLI.")
    return notes
