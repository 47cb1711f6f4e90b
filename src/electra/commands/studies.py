"""What the paper counts and compares."""

import os
from collections.abc import Iterable
from typing import Any, Literal

from electra.config.hints import check_local
from electra.errors import UsageError
from electra.external import output_path
from electra.storage import PathLike, owner_only


def flops(
    *,
    preset: str | None = None,
    table: int | None = None,
    objective: str | None = None,
    seq_len: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
) -> dict[str, Any]:
    """Train and inference FLOPs, counted as in Appendix E of the paper, and parameters: of a preset, or a table's.

    Args:
        preset: Whose costs, by part: tiny, small, small++, base, base++, large, or a BERT of these (default: small).
        table: A table of the paper instead, 1, 2, 4 or 8: every figure computed, beside the printed one.
        objective: Pre-training task, instead of the preset's.
        seq_len: Tokens of a sequence, instead of the preset's.
        steps: Number of updates, instead of the preset's.
        batch_size: Sequences of one update, instead of the preset's.

    Returns:
        What was shown, as numbers: see `electra.studies.paper.run_costs.counts` and
        `electra.studies.paper.computed_tables.paper_table`.
    """
    from electra.studies.paper.computed_tables import paper_table, show_table
    from electra.studies.paper.run_costs import counts, preset_config, show_counts

    options = {
        "preset": preset,
        "objective": objective,
        "seq-len": seq_len,
        "steps": steps,
        "batch-size": batch_size,
    }
    if table is not None:
        if clash := [f"--{name}" for name, value in options.items() if value is not None]:
            raise UsageError(f"--table counts the paper's models as they are; leave out {' and '.join(clash)}")
        result = paper_table(table)
        show_table(result)
        return result
    result = counts(preset_config(preset or "small", objective, seq_len, steps, batch_size))
    show_counts(result)
    return result


def study(
    name: str,
    *,
    data: PathLike,
    glue: PathLike = "hf://nyu-mll/glue",
    tags: PathLike | None = None,
    out: PathLike,
    scale: str = "tiny",
    seeds: int = 2,
    hours: float | None = None,
    tasks: Iterable[str] | str = (),
    variants: Iterable[str] | str = (),
    finetune_seeds: int = 1,
    workers: int = 1,
    rates: Iterable[str] | str = (),
    device: Literal["auto", "cpu", "cuda"] = "auto",
    precision: Literal["auto", "float32", "bfloat16"] = "auto",
    dry_run: bool = False,
    private: bool = False,
) -> dict[str, Any]:
    """Redraw a table or figure of the paper: a grid of runs at equal compute. Run again with the same `out`, it resumes.

    Args:
        name: objectives, generator-size, training-algorithms, tying, model-size, convergence, efficiency,
            negative-results, or learning-rate.
        data: Directory that `electra prepare` wrote, or text, which is prepared once for all runs.
        glue: Folder in GLUE's layout, or hf://nyu-mll/glue.
        tags: Folder with train.txt and dev.txt or test.txt in CoNLL's columns (or JSONL): whether the frozen encoder knows
            the tag of each word is probed too.
        out: Directory of the study: its runs, results.csv, table.md, figure.png and figure.svg.
        scale: tiny (minutes a run on a CPU core), mini (25 minutes a run), or a preset, with the paper's budget.
        seeds: Pre-training runs of each variant.
        hours: Choose the budget so that the whole grid takes about this long, by measured steps.
        tasks: Tasks of GLUE; by default the paper's eight, and five small ones at scale tiny or mini.
        variants: Run only these; by default all.
        finetune_seeds: Fine-tuning runs of each task; their median counts. 0: only the linear probe; fine-tuning can follow
            later, by the same call with more.
        workers: Runs at a time, each in a process of its own; they share the CPU's threads.
        rates: Peak learning rates by objective, as the study learning-rate finds them: "electra=2e-3", "mlm=1e-3".
        device: auto takes a GPU if there is one; several workers take one after the other of several GPUs.
        precision: Of the matrix products; auto is bfloat16 on a GPU that has it.
        dry_run: Only say which runs there are, and what they cost by a measured step.
        private: Files are for their owner alone: directories have mode 0700, files 0600. The umask of the process is changed
            meanwhile.

    Returns:
        The budget, a row for each run (each variant, of a dry run), and which of the runs asked for failed.
    """
    from electra.studies.config import StudyConfig
    from electra.studies.run import run_study

    check_local({"--tags": tags, "--out": out})
    config = StudyConfig(
        name,
        os.fspath(data),
        os.fspath(glue),
        output_path(out),
        scale,
        seeds,
        hours,
        as_tuple(tasks),
        as_tuple(variants),
        finetune_seeds,
        workers,
        dict(map(rate_of, as_tuple(rates))),
        None if tags is None else os.fspath(tags),
        device,
        precision,
    )
    with owner_only(private):
        return run_study(config, dry_run)


def rate_of(word: str) -> tuple[str, float]:
    """An objective and its learning rate, out of `mlm=1e-3`.

    Raises:
        UsageError: it is not of this form.
    """
    name, _, number = word.partition("=")
    try:
        return name, float(number)
    except ValueError:
        raise UsageError(f"--rates {word}: expected an objective and a number, as in mlm=1e-3") from None


def as_tuple(names: Iterable[str] | str) -> tuple[str, ...]:
    """One name or several; a string is one, not its letters."""
    return (names,) if isinstance(names, str) else tuple(names)
