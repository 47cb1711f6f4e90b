"""The files of the splits of a task over one's own data, and a dev split held out of train where there is none."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from electra.errors import DataError, UsageError
from electra.finetuning.config import FinetuneConfig
from electra.seeding import Stream, build_numpy_generator

log = logging.getLogger(__name__)

Item = TypeVar("Item")


def get_files(config: FinetuneConfig, hint: str = "") -> dict[str, Path]:
    """The files of --train, --dev and --test, by split.

    Raises:
        UsageError: there is no training file; the message ends with `hint`.
    """
    if config.train is None:
        raise UsageError("missing-option", f"{config.task} needs --train FILE{hint}")
    files = {"train": config.train, "dev": config.dev, "test": config.test}
    return {split: Path(path) for split, path in files.items() if path is not None}


def hold_out(
    items: Sequence[Item], groups: Sequence[str], config: FinetuneConfig, what: str
) -> tuple[list[Item], list[Item]]:
    """(train, dev): a share of the training items becomes dev; the items of a group stay together.

    Raises:
        DataError: there are too few groups.
    """
    names = list(dict.fromkeys(groups))
    number = max(1, round(config.dev_share * len(names)))
    if number >= len(names):
        raise DataError("too-few-rows", f"{config.train or config.data}: too few {what} to hold some out; give --dev")
    order = build_numpy_generator(Stream.DEV_SPLIT, config.split_seed).permutation(len(names))
    held_out = {names[i] for i in order[:number]}
    train = [item for item, group in zip(items, groups, strict=True) if group not in held_out]
    dev = [item for item, group in zip(items, groups, strict=True) if group in held_out]
    log.info(
        f"{len(dev):,} of {len(items):,} {what} are held out as dev (no --dev was given)", extra={"code": "held-out"}
    )
    return train, dev
