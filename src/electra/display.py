"""Results of the commands on the terminal: one function per command, from its return value and its options."""

import json
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from electra.console import Output, console, show_rows


def show_pretrain(summary: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Show the held-out metrics, and sample sentences if this call finished the run."""
    from electra.pretraining.export import show_metrics, show_samples

    if summary:  # empty in all processes except the main one
        show_metrics(summary["heldout"])
        show_samples(summary.get("samples", []))


def show_evaluate(metrics: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Show the held-out metrics, or the accuracies on minimal pairs by phenomenon."""
    from electra.pretraining.export import show_metrics

    if "methods" not in metrics:
        show_metrics(metrics)
        return
    from electra.pretraining.evaluation.minimal_pairs import build_rows

    methods = list(metrics["methods"])
    rows = [
        [str(each["name"]).replace("_", " ") or "all paradigms", *(f"{each[method]:.1f}" for method in methods)]
        for each in build_rows(metrics)
        if each["level"] != "paradigm"
    ]
    ties = [str(metrics["methods"][method]["ties"]) for method in methods]
    show_rows([["accuracy in % (chance 50)", *methods], *rows, ["ties", *ties]])
    console.print(f"{metrics['pairs']:,} minimal pairs of {metrics['paradigms']} paradigms", markup=False)


def show_score(rows: Sequence[Mapping[str, Any]], given: Mapping[str, Any]) -> None:
    """Write JSON lines to standard output."""
    write_json_lines(rows)


def show_evaluate_mlm(metrics: Mapping[str, float], given: Mapping[str, Any]) -> None:
    """Show the accuracies with their standard errors."""
    from electra.pretraining.evaluation.mlm_accuracy import show_accuracies

    show_accuracies(metrics)


def show_fill_mask(rows: Sequence[Mapping[str, Any]], given: Mapping[str, Any]) -> None:
    """Show a table of tokens for each [MASK]."""
    from rich.table import Table
    from rich.text import Text

    for row in rows:
        number = row["text"].count("[MASK]")
        which = f"  ([MASK] {row['mask'] + 1} of {number}, the others unchanged)" if number > 1 else ""
        console.print(row["text"] + which, markup=False)
        grid = Table(box=None)
        for name in row["answers"][0]:
            grid.add_column(
                "original (D)" if name == "original" else name, justify="left" if name == "token" else "right"
            )
        for answer in row["answers"]:
            token, *numbers = answer.values()
            grid.add_row(Text(token), *(f"{value:.4f}" for value in numbers))
        console.print(grid)


def show_finetune(summary: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Show medians over the seeds if there are several, and the results file."""
    number = len(summary["seeds"])
    for split, metrics in summary["metrics"].items() if number > 1 else ():
        for metric, spread in metrics.items():
            line = f"{split} {metric}: median {spread['median']:.1f}, standard deviation {spread['std']:.1f}"
            console.print(f"{line} over {number} seeds", markup=False)
    console.print(f"Results: {Path(given['out']) / 'results.json'}", markup=False)


def show_glue(results: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Show a table of the scores and the paper's."""
    from electra.finetuning.benchmark.grid import show_table

    show_table(results)


def show_predict(predictions: Iterable[Mapping[str, Any]], given: Mapping[str, Any]) -> None:
    """Write JSON lines to standard output if no file is given."""
    if given.get("out") is None:
        write_json_lines(predictions)
    else:
        deque(predictions, maxlen=0)  # the file is written as they are iterated


def write_json_lines(rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows to standard output, each as soon as it is there."""
    output = Output(sys.stdout, required=True)
    for row in rows:
        output.write(json.dumps(row, ensure_ascii=False) + "\n")
        output.flush()


def show_flops(counted: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Show FLOPs by network and part, and parameters."""
    from electra.studies.paper.run_costs import show_counts

    show_counts(counted)


def show_paper_table(table: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Show the computed numbers and the published ones."""
    from electra.studies.paper.computed_tables import show_table

    show_table(table)


def show_study(result: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Show the table of the study, or the plan of a dry run. Exits with 1 if a run failed."""
    if result["summary"]:  # empty if a dry run has nothing to do
        show_rows(result["summary"])
    if result.get("failed"):
        raise SystemExit(1)
