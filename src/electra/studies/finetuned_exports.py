"""Fine-tuning of each network that a pre-training run exported on its way: scores over steps and FLOPs."""

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from electra.finetuning.benchmark.score_table import get_main_score
from electra.finetuning.run_directory import get_medians
from electra.plotting import Figure
from electra.pretraining.learning_curve import list_exports, read_amounts, write_csv
from electra.storage import write_atomically

AMOUNTS = ("step", "tokens", "flops", "seconds")
"""Columns of a row beside its scores."""


def finetune_exports(
    run: Path,
    out: Path,
    tune: Callable[[Path, Path], dict[str, Any]],
    get_scores: Callable[[Mapping[str, Any]], Mapping[str, float]],
) -> dict[str, Any]:
    """Fine-tune each export of a run in a directory of its name, and write `out/learning_curve.csv` and `.png`.

    Args:
        run: Run directory of pre-training.
        out: Directory of the results.
        tune: Fine-tunes the model in a directory (first argument) in another (second) and returns the results.
        get_scores: Returns the scores, by name, of these results.

    Returns:
        The results of the last export, with `exports`: a row of step, tokens, FLOPs, seconds and scores for each.

    Raises:
        RunError: not a run directory, it has no exports, or one is damaged.
    """
    rows: list[dict[str, Any]] = []
    for path in list_exports(run):
        amounts = read_amounts(path)
        results = tune(path, out / path.name)
        rows.append({**amounts, **get_scores(results)})
    write_csv(rows, out / "learning_curve.csv")
    buffer = io.BytesIO()
    draw_curve(rows).savefig(buffer, format="png", dpi=110)
    write_atomically(out / "learning_curve.png", buffer.getvalue())
    return results | {"exports": rows}


def get_summary_scores(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the medians over seeds of `electra.finetune`, and the standard deviation of the main one."""
    main = next(iter(summary["metrics"].values()))[summary["main_metric"]]
    return get_medians(dict(summary)) | ({} if main["std"] is None else {f"{summary['main_metric']}_std": main["std"]})


def get_glue_scores(results: Mapping[str, Any]) -> dict[str, float]:
    """Return the median of each task's main metric over seeds, and the paper's average if all of its tasks were run."""
    scores = {name: get_main_score(summary)["median"] for name, summary in results["tasks"].items()}
    return scores if results["average"] is None else scores | {"average": results["average"]}


def draw_curve(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Plot the scores over the steps and over the FLOPs of pre-training."""
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    names = [name for name in rows[0] if name not in AMOUNTS and not name.endswith("_std")]
    for axes, amount in zip(figure.subplots(1, 2), ("step", "flops"), strict=True):
        for name in names:
            axes.plot([row[amount] for row in rows], [row[name] for row in rows], marker="o", linewidth=1.2, label=name)
        axes.set_xlabel({"step": "steps of pre-training", "flops": "FLOPs of pre-training"}[amount])
        axes.set_ylabel("score in %")
        axes.grid(alpha=0.25)
        axes.legend(fontsize=8)
    return figure
