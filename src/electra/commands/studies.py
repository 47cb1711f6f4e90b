"""The commands for FLOPs, tables and experiments of the paper: flops, paper_table, study."""

import os
from collections.abc import Iterable
from typing import Any, Literal

from electra.commands.pretraining import list_sources
from electra.config.checks import check_local
from electra.errors import UsageError
from electra.external import check_output_path
from electra.storage import PathLike, restrict_permissions


def flops(
    *,
    preset: str = "small",
    objective: str | None = None,
    seq_len: int | None = None,
    steps: int | None = None,
    batch_size: int | None = None,
) -> dict[str, Any]:
    """Count the training and inference FLOPs of a preset, as in Appendix E of the paper, and its parameters.

    Args:
        preset: Name of the preset.
        objective: Pre-training objective, instead of the preset's.
        seq_len: Tokens of a sequence, instead of the preset's.
        steps: Number of updates, instead of the preset's.
        batch_size: Sequences of one update, instead of the preset's.

    Returns:
        See `electra.studies.paper.run_costs.count_costs`.

    Raises:
        UsageError: no such preset or objective, a wrong value, or more tokens than the model has positions.
    """
    from electra.config.resolve import resolve
    from electra.presets import get_preset
    from electra.studies.paper.run_costs import count_costs

    config = get_preset(preset)
    if seq_len is not None and seq_len > config.model.max_positions:
        raise UsageError(
            "longer-than-model",
            f"--seq-len {seq_len} is more than the {config.model.max_positions} positions of {preset}; lower it",
        )
    given = {"objective": objective, "seq_len": seq_len, "steps": steps, "training.batch_size": batch_size}
    overrides = {name: value for name, value in given.items() if value is not None}
    return count_costs(resolve(config, {}, overrides, command="flops"))


def paper_table(number: int) -> dict[str, Any]:
    """Compute the FLOPs and parameters in a table of the paper, for comparison with the published ones.

    Args:
        number: Number of the table: 1, 2, 4 or 8.

    Returns:
        See `electra.studies.paper.computed_tables.paper_table`.

    Raises:
        UsageError: there is no such table.
    """
    from electra.studies.paper.computed_tables import paper_table as compute

    return compute(number)


def study(
    name: str,
    *,
    data: PathLike,
    glue: PathLike = "hf://nyu-mll/glue",
    tags: PathLike | None = None,
    minimal_pairs: Iterable[PathLike] | PathLike = (),
    out: PathLike,
    scale: str = "tiny",
    seeds: int = 2,
    hours: float | None = None,
    share: float = 1.0,
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
    """Compare variants of pre-training at equal compute by a grid of runs, as in the tables and figures of the paper.

    Called again with this `out`, it resumes.

    Args:
        name: Name of the study.
        data: Directory that `electra prepare` wrote, or text, which is prepared once for all runs.
        glue: Folder in GLUE's layout, or hf://nyu-mll/glue.
        tags: Folder with train.txt and dev.txt or test.txt in CoNLL's columns (or JSONL), for a linear probe of the frozen
            encoder on tags of words.
        minimal_pairs: Files of minimal pairs, as for `electra minimal-pairs`, to score the pre-trained networks on.
        out: Directory of the study: its runs, results.csv, table.md, figure.png and figure.svg.
        scale: tiny (minutes per run on a CPU core), mini (25 minutes per run), or a preset with the paper's budget.
        seeds: Pre-training runs per variant.
        hours: Choose the budget so that the grid takes about this many hours, estimated from measured steps.
        share: Share of the scale's budget that every variant gets, for example 0.25 or 4; not together with hours.
        tasks: Tasks of GLUE; by default the paper's eight, at the scales tiny and mini cola sst2 mrpc stsb rte.
        variants: Run only these variants; by default all.
        finetune_seeds: Fine-tuning runs per task; the score is their median. 0: only the linear probe; repeat the call with
            a larger number to add fine-tuning.
        workers: Number of runs at a time, each in its own process; they share the threads of the CPU.
        rates: Peak learning rates by objective, as found by the study learning-rate: "electra=2e-3", "mlm=1e-3".
        device: auto uses a GPU if there is one; several workers use several GPUs in turn.
        precision: Precision of matrix products; auto is bfloat16 on a GPU that supports it.
        dry_run: Only list the runs and their cost, estimated from a measured step.
        private: Restrict the files to their owner: directories get mode 0700, files 0600. The umask of the process is
            changed during the call.

    Returns:
        The budget, a row for each run (for each variant, of a dry run), and the runs that failed.

    Raises:
        UsageError: no such study, scale, task or variant, or a wrong value.
        RunError: `out` belongs to another process or another study.
    """
    from electra.studies.config import StudyConfig
    from electra.studies.run import run_study

    check_local({"--tags": tags, "--out": out})
    config = StudyConfig(
        name,
        os.fspath(data),
        os.fspath(glue),
        check_output_path(out),
        scale,
        seeds,
        hours,
        as_tuple(tasks),
        as_tuple(variants),
        finetune_seeds,
        workers,
        dict(map(parse_rate, as_tuple(rates))),
        None if tags is None else os.fspath(tags),
        list_sources(minimal_pairs),
        device,
        precision,
        share,
    )
    with restrict_permissions(private):
        return run_study(config, dry_run)


def parse_rate(word: str) -> tuple[str, float]:
    """Parse a learning rate and its objective, as in `mlm=1e-3`.

    Raises:
        UsageError: another form.
    """
    name, _, number = word.partition("=")
    try:
        return name, float(number)
    except ValueError:
        raise UsageError("bad-rate", f"--rates {word}: expected an objective and a number, as in mlm=1e-3") from None


def as_tuple(names: Iterable[str] | str) -> tuple[str, ...]:
    """Return the names as a tuple; a single string is one name."""
    return (names,) if isinstance(names, str) else tuple(names)
