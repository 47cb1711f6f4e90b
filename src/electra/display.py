"""Results of the commands on the terminal: one function per command, of what it returned and of its options."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from electra.console import Output, console, show_rows


def show_pretrain(summary: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """The held-out metrics, and sentences if the run was finished by this call."""
    from electra.pretraining.export import show_metrics, show_samples

    if summary:  # empty in all but the main process
        show_metrics(summary["heldout"])
        show_samples(summary.get("samples", []))


def show_evaluate(metrics: Mapping[str, float], given: Mapping[str, Any]) -> None:
    """The held-out metrics."""
    from electra.pretraining.export import show_metrics

    show_metrics(metrics)


def show_evaluate_mlm(metrics: Mapping[str, float], given: Mapping[str, Any]) -> None:
    """The accuracies with their standard errors."""
    from electra.pretraining.evaluation.mlm_accuracy import show_accuracies

    show_accuracies(metrics)


def show_fill_mask(rows: Sequence[Mapping[str, Any]], given: Mapping[str, Any]) -> None:
    """A table of tokens for each [MASK]."""
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
    """Medians over the seeds, if there are several."""
    number = len(summary["seeds"])
    for split, metrics in summary["metrics"].items() if number > 1 else ():
        for metric, spread in metrics.items():
            line = f"{split} {metric}: median {spread['median']:.1f}, standard deviation {spread['std']:.1f}"
            console.print(f"{line} over {number} seeds", markup=False)
    console.print(f"Results: {Path(given['out']) / 'results.json'}", markup=False)


def show_glue(results: dict[str, Any], given: Mapping[str, Any]) -> None:
    """The table of scores beside the paper's."""
    from electra.finetuning.benchmark.grid import show_table

    show_table(results)


def show_predict(predictions: Iterable[Mapping[str, Any]], given: Mapping[str, Any]) -> None:
    """JSON lines on the standard output, if no file is given."""
    for row in predictions:
        if given.get("out") is None:
            output = Output(sys.stdout, required=True)
            output.write(json.dumps(row, ensure_ascii=False) + "\n")
            output.flush()


def show_flops(counted: dict[str, Any], given: Mapping[str, Any]) -> None:
    """FLOPs by network and part, and parameters."""
    from electra.studies.paper.run_costs import show_counts

    show_counts(counted)


def show_paper_table(table: dict[str, Any], given: Mapping[str, Any]) -> None:
    """The computed figures beside the printed ones."""
    from electra.studies.paper.computed_tables import show_table

    show_table(table)


def show_study(result: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """The table of the study, or the plan of a dry run. Exits with 1 if a run failed."""
    if result["summary"]:  # a dry run can have nothing to do
        show_rows(result["summary"])
    if result.get("failed"):
        raise SystemExit(1)
