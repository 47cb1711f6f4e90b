"""Display of the results of commands on the terminal: a function per command, of its return value and its options."""

import json
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from electra.console import Output, console, format_count, show_rows


def show_pretrain(summary: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Show the held-out metrics, and sample sentences if this call finished the run."""
    from electra.pretraining.export import show_metrics, show_samples

    if summary:  # it is empty in all processes but the main one
        show_metrics(summary["heldout"])
        show_samples(summary.get("samples", []))


def show_evaluate(metrics: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Show the held-out metrics, or the accuracies on minimal pairs by phenomenon."""
    from electra.pretraining.export import show_metrics

    if "methods" not in metrics:
        show_metrics(metrics)
        return
    from electra.pretraining.evaluation.minimal_pairs import build_rows

    methods = list(metrics["methods"])
    rows = [
        [
            f"{each['level']}: {each['name']}".replace("_", " ").removesuffix(": "),
            f"{each['pairs']:,}",
            *(f"{each[method]:.1f}" for method in methods),
        ]
        for each in build_rows(metrics)
        if each["level"] != "paradigm"
    ]
    ties = [str(metrics["methods"][method]["ties"]) for method in methods]
    show_rows([["accuracy in % (chance 50)", "pairs", *methods], *rows, ["ties", "", *ties]])
    paradigms = format_count(metrics["paradigms"], "paradigm")
    console.print(f"{metrics['pairs']:,} minimal pairs of {paradigms}", markup=False)


def show_score(rows: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> None:
    """Write JSON lines to standard output."""
    write_json_lines(rows)


def show_evaluate_mlm(metrics: Mapping[str, float], options: Mapping[str, Any]) -> None:
    """Show the accuracies with their standard errors."""
    from electra.pretraining.evaluation.mlm_accuracy import show_accuracies

    show_accuracies(metrics)


def show_fill_mask(rows: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> None:
    """Show a table of tokens and probabilities for each [MASK]; `rows` are those of `fill_mask`."""
    from rich.table import Table
    from rich.text import Text

    for row in rows:
        num_masks = row["text"].count("[MASK]")
        note = f"  ([MASK] {row['mask'] + 1} of {num_masks}, the others unchanged)" if num_masks > 1 else ""
        console.print(row["text"] + note, markup=False)
        table = Table(box=None)
        for name in row["answers"][0]:
            table.add_column(
                "original (D)" if name == "original" else name, justify="left" if name == "token" else "right"
            )
        for answer in row["answers"]:
            token, *probabilities = answer.values()
            table.add_row(Text(token), *(f"{value:.4f}" for value in probabilities))
        console.print(table)


def show_finetune(summary: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Show median and standard deviation of each metric if there are several seeds, and the path of the results."""
    num_seeds = len(summary["seeds"])
    first_split = next(iter(summary["metrics"]))
    for name, metrics in summary["baselines"].items():
        shown = ", ".join(f"{metric} {value:.1f}" for metric, value in metrics.items())
        console.print(f"baseline, {name}: {first_split} {shown}", markup=False)
    for split, metrics in summary["metrics"].items() if num_seeds > 1 else ():
        for metric, spread in metrics.items():
            line = f"{split} {metric}: median {spread['median']:.1f}, standard deviation {spread['std']:.1f}"
            console.print(f"{line} over {num_seeds} seeds", markup=False)
    console.print(f"Results: {Path(options['out']) / 'results.json'}", markup=False)


def show_glue(results: dict[str, Any], options: Mapping[str, Any]) -> None:
    """Show a table of the scores, with those of the paper."""
    from electra.finetuning.benchmark.score_table import show_table

    show_table(results)


def show_predict(predictions: Iterable[Mapping[str, Any]], options: Mapping[str, Any]) -> None:
    """Write JSON lines to standard output if no file is given in the options."""
    if options.get("out") is None:
        write_json_lines(predictions)
    else:
        deque(predictions, maxlen=0)  # the file is written as they are iterated


def write_json_lines(rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows to standard output, each as soon as it is there."""
    output = Output(sys.stdout, required=True)
    for row in rows:
        output.write(json.dumps(row, ensure_ascii=False) + "\n")
        output.flush()


def show_flops(counts: dict[str, Any], options: Mapping[str, Any]) -> None:
    """Show FLOPs and parameters by network and part."""
    from electra.studies.paper.run_costs import show_counts

    show_counts(counts)


def show_paper_table(table: dict[str, Any], options: Mapping[str, Any]) -> None:
    """Show the computed numbers beside the published ones."""
    from electra.studies.paper.computed_tables import show_table

    show_table(table)


def show_study(result: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Show the table of the study, or the plan of a dry run; exit with 1 if a run failed."""
    if result["summary"]:  # it is empty if a dry run has no run left
        show_rows(result["summary"])
    if result.get("failed"):
        raise SystemExit(1)
