"""Display of the results of commands on the terminal: a function per command, of its return value and its options."""

import json
import math
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from electra.console import Output, console, show_rows
from electra.external import format_count

if TYPE_CHECKING:
    from electra.pretraining.evaluation.held_out import Sample


def show_pretrain(summary: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Show the held-out metrics, and sample sentences if this call finished the run."""
    if summary:  # it is empty in all processes but the main one
        show_metrics(summary["heldout"], summary.get("heldout_by_source", {}))
        show_samples(summary.get("samples", []))


def show_evaluate(metrics: Mapping[str, Any] | list[dict[str, Any]], options: Mapping[str, Any]) -> None:
    """Show the held-out metrics, or those of each export."""
    if isinstance(metrics, list):
        show_learning_curve(metrics)
    else:
        show_metrics(metrics, metrics.get("by_source", {}))


def show_learning_curve(rows: Sequence[Mapping[str, int | float]]) -> None:
    """Show the metrics of each export of a run."""
    shown = [[f"{value:,.0f}" if value >= 1000 else f"{value:.4g}" for value in row.values()] for row in rows]
    show_rows([[name.replace("_", " ") for name in rows[0]], *shown])


def show_minimal_pairs(results: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Show the accuracies over all, by field and by phenomenon."""
    from electra.pretraining.evaluation.minimal_pairs import build_rows

    if "exports" in results:
        show_learning_curve(results["exports"])
        return
    methods = list(results["methods"])
    rows = [
        [
            f"{each['level']}: {each['name']}".replace("_", " ").removesuffix(": "),
            f"{each['pairs']:,}",
            *(f"{each[method]:.1f}" for method in methods),
        ]
        for each in build_rows(results)
        if each["level"] != "paradigm"
    ]
    ties = [str(results["methods"][method]["ties"]) for method in methods]
    show_rows([["accuracy in % (chance 50)", "pairs", *methods], *rows, ["ties", "", *ties]])
    paradigms = format_count(results["paradigms"], "paradigm")
    console.print(f"{format_count(results['pairs'], 'minimal pair')} of {paradigms}", markup=False)


def show_score(rows: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> None:
    """Write JSON lines to standard output."""
    write_json_lines(rows)


def show_evaluate_mlm(metrics: Mapping[str, float], options: Mapping[str, Any]) -> None:
    """Show the accuracies with their standard errors."""
    from rich.table import Table

    from electra.pretraining.evaluation.mlm_accuracy import DESCRIPTIONS

    grid = Table(title="masked-LM accuracy", title_justify="left", show_header=False, box=None)
    for name, description in DESCRIPTIONS.items():
        if (share := metrics.get(name)) is not None:
            grid.add_row(description, f"{share:.1%} ± {math.sqrt(share * (1 - share) / metrics['examples']):.1%}")
    console.print(grid)


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
    if "exports" in summary:
        show_learning_curve(summary["exports"])
        return
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


def show_push(result: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Show the files with their sizes, and the addresses of the commits."""
    rows = [[each["revision"], each["name"], f"{each['bytes']:,}"] for each in result["files"]]
    show_rows([["revision", "file", "bytes"], *rows])
    total = f"{format_count(len(rows), 'file')}, {sum(each['bytes'] for each in result['files']):,} bytes"
    kind = "private" if result["private"] else "public"
    verb = "sent" if result["commits"] else "would be sent"
    console.print(f"{total} {verb} to {result['repository']} ({kind})", markup=False)
    for address in result["commits"].values():
        console.print(address, markup=False)


def show_glue(results: dict[str, Any], options: Mapping[str, Any]) -> None:
    """Show a table of the scores, with those of the paper."""
    from electra.finetuning.benchmark.score_table import build_table_rows, list_notes

    if "exports" in results:
        show_learning_curve(results["exports"])
        return
    show_table("", build_table_rows(results), list_notes(results))


def show_predict(predictions: Iterable[Mapping[str, Any]], options: Mapping[str, Any]) -> None:
    """Write JSON lines to standard output if no file is given in the options."""
    if options.get("out") is None:
        write_json_lines(predictions)
    else:
        deque(predictions, maxlen=0)  # the file is written as they are iterated


def show_embed(vectors: Iterable[Mapping[str, Any]], options: Mapping[str, Any]) -> None:
    """Write JSON lines to standard output if no file is given in the options."""
    show_predict(vectors, options)


def write_json_lines(rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows to standard output, each as soon as it is there."""
    output = Output(sys.stdout, required=True)
    for row in rows:
        output.write(json.dumps(row, ensure_ascii=False) + "\n")
        output.flush()


def show_export(result: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Show the file, and its differences from PyTorch."""
    equal = result["equal_predictions"]
    rows = [
        ["file", result["file"]],
        ["size", f"{result['bytes'] / 1e6:,.1f} MB"],
        ["compared on", format_count(result["sequences"], "sequence")],
        ["largest difference", f"{result['max_difference']:.2g}"],
        ["equal predictions", "none in these outputs" if equal is None else f"{equal:.1%}"],
    ]
    for name, value in rows:
        console.print(f"{name:<20}{value}", markup=False)


def show_advise(record: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Show the sizes, the recommended run, the reasons and the next command."""
    from electra.studies.advice.report import format_record

    sizes, run, sentences = format_record(record)
    show_rows(sizes)
    console.print()
    for label, value in run:
        console.print(f"{label:<16}  {value}", markup=False)
    console.print()
    for sentence in sentences:
        console.print(f"- {sentence}", markup=False)
    for warning in record["warnings"]:
        console.print(f"! {warning}", markup=False)
    if (path := options.get("write")) is not None:
        console.print(f"written to {path}: electra pretrain TEXT --config {path} --out RUN", markup=False)


def show_flops(counts: dict[str, Any], options: Mapping[str, Any]) -> None:
    """Show FLOPs and parameters by network and part."""
    from electra.studies.paper.run_costs import format_counts

    show_table(*format_counts(counts))


def show_paper_table(table: dict[str, Any], options: Mapping[str, Any]) -> None:
    """Show the computed numbers beside the published ones."""
    from electra.studies.paper.computed_tables import format_table

    show_table(*format_table(table))


def show_study(result: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Show the table of the study, or the plan of a dry run; exit with 1 if a run failed."""
    if result["summary"]:  # it is empty if a dry run has no run left
        show_rows(result["summary"])
    if result.get("failed"):
        raise SystemExit(1)


def show_metrics(metrics: Mapping[str, Any], by_source: Mapping[str, Mapping[str, float]]) -> None:
    """Show held-out metrics with their descriptions, of all text and of each of several sources."""
    from rich.table import Table

    from electra.pretraining.objectives.catalog import OBJECTIVES
    from electra.pretraining.reporting.report import build_metric_table

    descriptions = {name: metric for row in OBJECTIVES.values() for name, metric in row.all_metrics.items()}
    grid = Table(title="held-out text", title_justify="left", show_header=False, box=None)
    for row in build_metric_table(metrics, by_source, descriptions):
        grid.add_row(*row)
    console.print(grid)


def show_samples(samples: Sequence["Sample"]) -> None:
    """Show held-out sentences with the discriminator's probabilities."""
    from electra.pretraining.reporting.report import format_sentence_markup

    if samples:
        console.print(
            "Held-out sentences: each token with the probability that it was replaced; replaced tokens are marked."
        )
    for sample in samples:
        console.print(format_sentence_markup(sample))
        console.print()


def show_table(heading: str, rows: Sequence[Sequence[str]], notes: Iterable[str]) -> None:
    """Show a heading, if there is one, a table with a line per row at any width of the terminal, and notes."""
    if heading:
        console.print(heading, markup=False)
    show_rows(rows)
    for note in notes:
        console.print(note, markup=False)
