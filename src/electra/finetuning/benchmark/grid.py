"""All of GLUE over several seeds, as one table with the paper's rows. It resumes at the first missing run."""

import json
import logging
import statistics
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from electra.console import console, show_rows
from electra.errors import DataError, ModelError, RunError, UsageError
from electra.finetuning.benchmark.ensemble import score_ensemble, select_best_runs
from electra.finetuning.benchmark.submission import write_submission
from electra.finetuning.classification.glue import GLUE, has_split, load_glue_task
from electra.finetuning.classification.task import TextClassification
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.hub import find_model_directory
from electra.finetuning.registry import build_task, check_options
from electra.finetuning.run import finetune, run_seeds
from electra.finetuning.run_directory import read_results, with_absolute_paths
from electra.model.checkpoints import load_pretrained
from electra.storage import LOCK, lock_output, write_atomically
from electra.text.tokenizer import load_tokenizer

log = logging.getLogger(__name__)


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
"""The paper's columns, in its order; its average is over these eight."""

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
"""Dev scores in the order of COLUMNS, then their average; None where the paper has only the average."""

RTE_AFTER_MNLI = 2e-5
"""Learning rate of RTE where it starts from MNLI (Appendix B)."""


def glue(
    config: FinetuneConfig,
    out: Path,
    *,
    tasks: Sequence[str] = (),
    seeds: int = 10,
    intermediate: bool = False,
    ensemble: int | None = None,
    submission: bool = False,
) -> dict[str, Any]:
    """Fine-tune `config.model` on every task with `seeds` seeds; returns and writes the table.

    Args:
        config: Options of every run; its task is not used.
        out: Directory of the results, with a directory for each task; also of `results.json` and `results.md`.
        tasks: See `resolve_task_names`.
        seeds: Runs of each task; scores are medians over them.
        intermediate: RTE and STS start from the model fine-tuned on MNLI, RTE at a rate of 2e-5 (Appendix B).
        ensemble: Score (and submit) the average of this many runs, the best on dev (Appendix B).
        submission: Write the test predictions for gluebenchmark.com, of the best run on dev or of the ensemble.

    Raises:
        UsageError: no data or no such task, or fewer seeds than the ensemble needs.
        RunError: another process works in `out`.
    """
    if not config.data:
        raise UsageError("missing-option", "--data is missing: a folder in GLUE's layout, or hf://nyu-mll/glue")
    names = resolve_task_names(tasks, config.data, submission)
    loaded = load_tasks(config, names, seeds, intermediate, ensemble)
    with lock_output(out, out / LOCK):
        requested = {name: loaded[name] for name in names}  # without MNLI where others only start from it
        return run_tasks(config, out, requested, seeds, intermediate, ensemble, submission)


def run_tasks(
    config: FinetuneConfig,
    out: Path,
    tasks: dict[str, TextClassification],
    seeds: int,
    intermediate: bool,
    ensemble: int | None,
    submission: bool,
) -> dict[str, Any]:
    """Fine-tune on the tasks in their order; see `glue`."""
    names, summaries = list(tasks), {}
    for name in names:
        each = configure_task(config, name)
        if intermediate and name in ("rte", "stsb"):
            each = start_from_mnli(each, out)
        summaries[name] = finetune(each, out / name, seeds)
    best = {
        name: select_best_runs(read_runs(out / name, summaries[name]["seeds"]), ensemble or 1, "dev") for name in names
    }
    results: dict[str, Any] = {
        "config": asdict(config) | {"log_to": list(config.log_to)},
        "seeds": seeds,
        "intermediate": intermediate,
        "tasks": summaries,
        "average": compute_average(summaries),
        "best_seeds": best,
    }
    if ensemble is not None:
        results["ensemble"] = {name: score_ensemble(tasks[name], out / name, best[name]) for name in names}
    write_atomically(out / "results.json", (json.dumps(results, indent=2) + "\n").encode())
    write_atomically(out / "results.md", format_markdown(results).encode())
    if submission:
        written, missing = write_submission(tasks, best, out)
        log.info(f"{len(written)} files for gluebenchmark.com in {out / 'submission'}", extra={"code": "submission"})
        if missing:
            log.warning(
                f"the site also requires {', '.join(missing)}: no such run, or no test file in {config.data}",
                extra={"code": "incomplete-submission"},
            )
    return results


def resolve_task_names(tasks: Sequence[str], data: str, submission: bool) -> list[str]:
    """The tasks to run: those that are named, separated by spaces or commas; ax means mnli.

    By default the paper's eight, and WNLI too for a submission if its data exists.

    Raises:
        UsageError: there is no such task.
        DataError: ax is named and has no data.
    """
    named = [name for word in tasks for name in word.replace(",", " ").split()]
    for name in named:
        if name not in (*GLUE, "ax"):
            raise UsageError("unknown-task", f"there is no GLUE task {name!r}; there are {', '.join(GLUE)}, ax")
    if "ax" in named and not has_split("mnli", data, "diagnostic"):
        raise DataError("missing", f"{data}: no AX/diagnostic.tsv here")
    default = [*COLUMNS, *(["wnli"] if submission and has_split("wnli", data, "train") else [])]
    return list(dict.fromkeys("mnli" if name == "ax" else name for name in named or default))


def configure_task(config: FinetuneConfig, name: str) -> FinetuneConfig:
    """The configuration of one task; only pairs without order are swapped, and WNLI is by candidates."""
    swap = config.swap_pairs if GLUE[name].symmetric else None
    return replace(config, task="wnli-candidates" if name == "wnli" else name, swap_pairs=swap)


def load_tasks(
    config: FinetuneConfig, names: Sequence[str], seeds: int, intermediate: bool, ensemble: int | None
) -> dict[str, TextClassification]:
    """The tasks by name, after a check that nothing is missing for the whole grid.

    Raises:
        UsageError: fewer seeds than the ensemble needs, or an option that a task does not use.
        DataError: a file of a task is missing or broken.
        ModelError: the model has no head of a discriminator, which scores WNLI's candidates.
    """
    if ensemble is not None and not 1 <= ensemble <= seeds:
        raise UsageError("too-few-seeds", f"--ensemble {ensemble} needs as many seeds; --seeds is {seeds}")
    for name in names:
        check_options(configure_task(config, name))
    directory = find_model_directory(config.model)
    tokenizer = load_tokenizer(directory)
    before = ["mnli"] if intermediate and {"rte", "stsb"} & set(names) else []
    tasks = {
        name: load_glue_task(name, config.data or "", tokenizer, skip_bad_rows=config.skip_bad_rows)
        for name in dict.fromkeys([*names, *before])
    }
    try:
        with console.capture():  # the runs will log it
            for task in tasks.values():
                for split in ("train", *task.scored, *task.predicted):
                    task.read(split)
            if "wnli" in names:
                build_task(configure_task(config, "wnli"), tokenizer, load_pretrained(directory))
    except (DataError, ModelError) as error:
        raise type(error)(error.code, f"{error} (choose tasks with --tasks)") from None
    return tasks


def start_from_mnli(config: FinetuneConfig, out: Path) -> FinetuneConfig:
    """The configuration that starts from MNLI's first seed, which is trained here if it was not."""
    mnli = out / "mnli" / f"seed-{config.seed}"
    with lock_output(out / "mnli", out / "mnli" / LOCK):
        run_seeds(configure_task(config, "mnli"), out / "mnli", [config.seed])
    given = config.learning_rate
    rate = RTE_AFTER_MNLI if config.task == "rte" and given is None else given
    return with_absolute_paths(replace(config, model=str(mnli / "model"), learning_rate=rate, from_scratch=False))


def read_runs(out: Path, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """The results of each seed, which need scores on dev."""
    results = [read_results(out / f"seed-{seed}") for seed in seeds]
    for each in results:
        if each["main_metric"] not in each["metrics"].get("dev", {}):
            file = out / f"seed-{each['seed']}" / "results.json"
            raise RunError("missing-metric", f"{file}: metrics.dev.{each['main_metric']} is missing")
    return results


def compute_average(summaries: dict[str, Any]) -> float | None:
    """The paper's average: of the medians of its eight tasks, if all were run."""
    if not set(COLUMNS) <= set(summaries):
        return None
    return statistics.fmean(get_main_score(summaries[name])["median"] for name in COLUMNS)


def get_main_score(summary: dict[str, Any]) -> dict[str, Any]:
    """Median, mean, standard deviation and values of a task's main metric on dev."""
    return summary["metrics"]["dev"][summary["main_metric"]]


def build_table_rows(results: dict[str, Any]) -> list[list[str]]:
    """The rows of the table: the model's, its ensemble's if there is one, the paper's."""
    names = [*COLUMNS, *(name for name in results["tasks"] if name not in COLUMNS)]

    def cell(value: float | None) -> str:
        return "" if value is None else f"{value:.1f}"

    def scored(name: str) -> str:
        summary = results["tasks"].get(name)
        if summary is None:
            return ""
        score = get_main_score(summary)
        return cell(score["median"]) + (f" ± {score['std']:.1f}" if score["std"] is not None else "")

    rows = [["", *(COLUMNS.get(name, name.upper()) for name in names), "Avg."]]
    start = "random weights" if results["config"]["from_scratch"] else "this model"
    rows.append([f"{start}, median of {results['seeds']}", *map(scored, names), cell(results["average"])])
    if "ensemble" in results:
        metric = {name: summary["main_metric"] for name, summary in results["tasks"].items()}
        values = {name: splits["dev"][metric[name]] for name, splits in results["ensemble"].items()}
        mean = statistics.fmean(values[name] for name in COLUMNS) if set(COLUMNS) <= set(values) else None
        size = len(next(iter(results["best_seeds"].values())))
        rows.append([f"ensemble of the {size} best on dev", *(cell(values.get(name)) for name in names), cell(mean)])
    extra = [""] * (len(names) - len(COLUMNS))
    for label, (*scores, mean) in PUBLISHED.items():
        rows.append([label, *map(cell, scores), *extra, cell(mean)])
    return rows


def format_markdown(results: dict[str, Any]) -> str:
    """The table as Markdown."""
    header, *rows = build_table_rows(results)
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n" + " ".join(list_notes(results)) + "\n"


def list_notes(results: dict[str, Any]) -> list[str]:
    """Notes on the scores."""
    lines = [
        "Dev scores in percent: Matthews correlation for CoLA, Spearman for STS, accuracy for the rest; ± is the standard "
        "deviation over seeds.",
        "Published rows: the paper's tables, and the released models' dev scores.",
    ]
    if results["config"]["select"] == "best":
        lines.append(
            "Each run's epoch was selected on the dev rows that are scored here, which biases the scores upwards."
        )
    if "ensemble" in results:
        lines.append(
            "The runs of the ensemble were selected on the dev rows that are scored here, which biases the scores upwards."
        )
    if "wnli" in results["tasks"]:
        lines.append("WNLI is scored by candidate antecedents.")
    if results["intermediate"]:
        lines.append("RTE and STS start from the model fine-tuned on MNLI.")
    return lines


def show_table(results: dict[str, Any]) -> None:
    """Print the table, one line for each row, however narrow the terminal is."""
    show_rows(build_table_rows(results))
    for note in list_notes(results):
        console.print(note, markup=False)
