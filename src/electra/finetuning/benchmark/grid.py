"""Fine-tuning on all tasks of GLUE over several seeds, and a table with the paper's scores. Finished runs are kept."""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from electra.console import hide_log
from electra.errors import DataError, ModelError, RunError, UsageError
from electra.finetuning.benchmark.ensemble import score_ensemble, select_best_runs
from electra.finetuning.benchmark.score_table import COLUMNS, compute_average, format_markdown
from electra.finetuning.benchmark.submission import write_submission
from electra.finetuning.classification.glue import GLUE, has_split, load_glue_task
from electra.finetuning.classification.task import TextClassification
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.hub import find_model_directory
from electra.finetuning.registry import build_task, check_options
from electra.finetuning.run import finetune, run_seeds
from electra.finetuning.run_directory import make_paths_absolute, read_results
from electra.model.checkpoints import load_pretrained
from electra.storage import LOCK, lock_output, write_atomically
from electra.text.tokenizer import load_tokenizer
from electra.train.callbacks import Callback

log = logging.getLogger(__name__)

RTE_AFTER_MNLI = 2e-5
"""Learning rate of RTE if it starts from the model fine-tuned on MNLI (Appendix B)."""


def glue(
    config: FinetuneConfig,
    out: Path,
    *,
    tasks: Sequence[str] = (),
    seeds: int = 10,
    intermediate: bool = False,
    ensemble: int | None = None,
    submission: bool = False,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Fine-tune `config.model` on every task with `seeds` seeds, and write `out/results.json` and the table `out/results.md`.

    Args:
        config: Options of every run; its task is not used.
        out: Directory of the results, with a directory for each task.
        tasks: Names of tasks; see `resolve_task_names`.
        seeds: Runs of each task; scores are medians over them.
        intermediate: Start RTE and STS-B from the model fine-tuned on MNLI, RTE at a learning rate of 2e-5 (Appendix B).
        ensemble: Score (and submit) the average of this many runs, the best on dev (Appendix B).
        submission: Write the test predictions for gluebenchmark.com, of the best run on dev or of the ensemble.
        callbacks: Callbacks of the training of every run, including that of MNLI from which RTE and STS-B start.

    Returns:
        The content of `results.json`; see `electra.glue`.

    Raises:
        UsageError: --data or a task is missing, or there are fewer seeds than the ensemble needs.
        DataError: a file of a task is missing or malformed; all files are checked before the first run.
        RunError: another process writes to `out`.
    """
    if not config.data:
        raise UsageError("missing-option", "--data is missing: a folder in GLUE's layout, or hf://nyu-mll/glue")
    names = resolve_task_names(tasks, config.data, submission)
    loaded = load_tasks(config, names, seeds, intermediate, ensemble)
    with lock_output(out, out / LOCK):
        requested = {name: loaded[name] for name in names}  # without MNLI if other tasks only start from it
        return run_tasks(config, out, requested, seeds, intermediate, ensemble, submission, callbacks)


def run_tasks(
    config: FinetuneConfig,
    out: Path,
    tasks: dict[str, TextClassification],
    seeds: int,
    intermediate: bool,
    ensemble: int | None,
    submission: bool,
    callbacks: Sequence[Callback],
) -> dict[str, Any]:
    """Fine-tune on the tasks in the given order, and write the results; see `glue`."""
    names, summaries = list(tasks), {}
    for name in names:
        task_config = configure_task(config, name)
        if intermediate and name in ("rte", "stsb"):
            task_config = start_from_mnli(task_config, out, callbacks)
        summaries[name] = finetune(task_config, out / name, seeds, callbacks)
    best = {
        name: select_best_runs(read_runs(out / name, summaries[name]["seeds"]), ensemble or 1, "dev") for name in names
    }
    results: dict[str, Any] = {
        "config": json.loads(json.dumps(asdict(config))),  # as it is written, with lists for tuples
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
    """Return the names of the tasks to run, without duplicates.

    `tasks` are names, possibly several in a string, separated by spaces or commas; ax selects mnli, whose runs predict it. By
    default the paper's eight tasks, and for a submission also wnli, if there is data for it.

    Raises:
        UsageError: there is no such task.
        DataError: ax is requested and has no data.
    """
    given = [name for word in tasks for name in word.replace(",", " ").split()]
    for name in given:
        if name not in (*GLUE, "ax"):
            raise UsageError("unknown-task", f"there is no GLUE task {name!r}; there are {', '.join(GLUE)}, ax")
    if "ax" in given and not has_split("mnli", data, "diagnostic"):
        raise DataError("missing", f"{data}: no AX/diagnostic.tsv here; the task ax needs it")
    default = [*COLUMNS, *(["wnli"] if submission and has_split("wnli", data, "train") else [])]
    return list(dict.fromkeys("mnli" if name == "ax" else name for name in given or default))


def configure_task(config: FinetuneConfig, name: str) -> FinetuneConfig:
    """Return the configuration of a task; wnli becomes wnli-candidates, which has no pooling, and pairs are swapped only if
    their order is free."""
    swap = config.swap_pairs if GLUE[name].symmetric else None
    if name == "wnli":
        return replace(config, task="wnli-candidates", pooling=None, swap_pairs=swap)
    return replace(config, task=name, swap_pairs=swap)


def load_tasks(
    config: FinetuneConfig, names: Sequence[str], seeds: int, intermediate: bool, ensemble: int | None
) -> dict[str, TextClassification]:
    """Load the tasks by name, and check that no option, file or weight is missing for any run of the grid.

    Raises:
        UsageError: fewer seeds than the ensemble needs, or an option that a task does not use.
        DataError: a file of a task is missing or malformed.
        ModelError: wnli is among the tasks and the model has no discriminator head, which scores its candidates.
    """
    if ensemble is not None and not 1 <= ensemble <= seeds:
        raise UsageError("too-few-seeds", f"--ensemble {ensemble} needs as many seeds; --seeds is {seeds}")
    for name in names:
        check_options(configure_task(config, name))
    directory = find_model_directory(config.model)
    tokenizer = load_tokenizer(directory)
    first = ["mnli"] if intermediate and {"rte", "stsb"} & set(names) else []
    tasks = {
        name: load_glue_task(name, config.data or "", tokenizer, skip_bad_rows=config.skip_bad_rows)
        for name in dict.fromkeys([*names, *first])
    }
    try:
        with hide_log():  # each run logs the same records
            for task in tasks.values():
                for split in ("train", *task.scored_splits, *task.predicted_splits):
                    task.read(split)
            if "wnli" in names:
                build_task(configure_task(config, "wnli"), tokenizer, load_pretrained(directory))
    except (DataError, ModelError) as error:
        raise type(error)(error.code, f"{error} (choose tasks with --tasks)") from None
    return tasks


def start_from_mnli(config: FinetuneConfig, out: Path, callbacks: Sequence[Callback] = ()) -> FinetuneConfig:
    """Return the configuration of a task that starts from the first seed of MNLI, which is trained first if it is missing."""
    with lock_output(out / "mnli", out / "mnli" / LOCK):
        [result], _ = run_seeds(configure_task(config, "mnli"), out / "mnli", 1, callbacks)
    mnli = out / "mnli" / f"seed-{result['seed']}"
    given_rate = config.learning_rate
    rate = RTE_AFTER_MNLI if config.task == "rte" and given_rate is None else given_rate
    return make_paths_absolute(replace(config, model=str(mnli / "model"), learning_rate=rate, from_scratch=False))


def read_runs(out: Path, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Read the results of each seed.

    Raises:
        RunError: a file is damaged, or has no main metric on dev.
    """
    results = [read_results(out / f"seed-{seed}") for seed in seeds]
    for result in results:
        if result["main_metric"] not in result["metrics"].get("dev", {}):
            file = out / f"seed-{result['seed']}" / "results.json"
            raise RunError("missing-metric", f"{file}: metrics.dev.{result['main_metric']} is missing")
    return results
