"""The stem of a run: the checkpoint at the start of its decay, from which runs with other budgets continue.

With `schedule.kind wsd`, a run of `--steps` keeps this checkpoint in `checkpoints/stem`. Warm-up and stable phase are the same
for every budget, so that `--stem RUN` continues with the decay of another budget, or with more updates of the stable phase
(Hu et al., "MiniCPM", 2024, section 4). The result is that of a run of this budget from its first update on.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from electra.config.files import describe_difference
from electra.config.resolve import read_config
from electra.errors import RunError, UsageError
from electra.pretraining.config import PretrainConfig
from electra.pretraining.run_directory import RunDirectory, list_changeable_options
from electra.storage import write_atomically
from electra.train.checkpoint import PREFIX, Checkpoints

log = logging.getLogger(__name__)


OWN_OPTIONS = ("stem", "steps", "schedule.decay", "text", "data", "tokenizer")
"""Options that may differ from those of the stem's run, beside those that never change the training; the data may not."""


def read_stem_options(run: Path) -> dict[str, Any]:
    """Read the options of a stem's run, by dotted name, with the data that it prepared instead of its text.

    Raises:
        RunError: not a run directory.
        UsageError: its configuration cannot be read.
    """
    directory = RunDirectory(run)
    directory.check_is_run()
    values = read_config(directory.config, PretrainConfig, "pretrain")
    prepared = {"text": (), "data": str(directory.data.absolute()), "tokenizer": None} if values.get("text") else {}
    return values | prepared


def check_stem(directory: RunDirectory, config: PretrainConfig) -> None:
    """Check that a new run can continue from the stem that it names: what differs must not change the training before it.

    A run that has a checkpoint of its own does not need the stem any more.

    Raises:
        RunError: not a run directory, it has no stem, or it is a run of another configuration.
        UsageError: the warm-up is of another length, or the decay starts before the stem.
    """
    if config.stem is None or Checkpoints(directory.checkpoints, 1).paths():
        return
    stem = RunDirectory(Path(config.stem))
    theirs, step = stem.load_config(), find_stem_step(stem)
    difference = describe_difference(stem.config, config, OWN_OPTIONS + list_changeable_options(config))
    if difference is None and config.data != (data := read_stem_options(stem.path)["data"]):
        difference = f"--data is {data} there, {config.data} here"
    if difference is not None:
        raise RunError(
            "other-configuration",
            f"--stem {config.stem}: a run of another configuration: {difference}; only --steps and --schedule.decay may "
            "differ",
        )
    assert theirs.steps is not None
    assert config.steps is not None
    before, now = (each.schedule.count_warmup(each.steps or 0) for each in (theirs, config))
    if before != now:
        raise UsageError(
            "other-warmup",
            f"--stem {config.stem}: its warm-up has {before:,g} steps, that of --steps {config.steps} has {now:,g}: "
            f"schedule.max_warmup limits one of them; repeat {config.stem} with a --schedule.warmup-steps that is no more "
            "than this share of the smaller budget",
        )
    decay = config.schedule.find_decay(config.steps)
    assert decay is not None
    if decay < step:
        raise UsageError(
            "after-decay",
            f"--stem {config.stem}: its stem is at step {step}, and the decay of --steps {config.steps} starts at step "
            f"{decay}; use a larger --steps or a smaller --schedule.decay",
        )


def find_stem_step(directory: RunDirectory) -> int:
    """Return the step of a run's stem. Raises a `RunError` without one."""
    if found := Checkpoints(directory.checkpoints, 1).stem.paths():
        return int(found[-1].name.removeprefix(PREFIX))
    raise RunError(
        "no-stem",
        f"{directory.path}: has no stem; a run with --schedule.kind wsd and --steps has one as soon as its decay starts",
    )


def open_checkpoints(
    directory: RunDirectory, config: PretrainConfig, keep: int = 1, settings: Mapping[str, int] | None = None
) -> Checkpoints:
    """Open the checkpoints of a run, which begins with the stem of another run if the configuration names one."""
    stem = Checkpoints(RunDirectory(Path(config.stem)).checkpoints, 1).stem if config.stem else None
    return Checkpoints(directory.checkpoints, keep, settings, stem)


def copy_stem_metrics(directory: RunDirectory, config: PretrainConfig) -> None:
    """Copy the rows of metrics of the stem's run to a run that has no checkpoint of its own yet."""
    if config.stem is None or Checkpoints(directory.checkpoints, 1).paths():
        return
    stem = RunDirectory(Path(config.stem))
    if stem.metrics.exists():  # rows after the stem are dropped when the training starts
        write_atomically(directory.metrics, stem.metrics.read_bytes())
    log.info(f"continuing from the stem of {config.stem}, step {find_stem_step(stem):,}", extra={"code": "stem"})
