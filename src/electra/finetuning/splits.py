"""The files of the splits of a task, and a dev split held out from the training examples if there is none."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from electra.errors import DataError, UsageError
from electra.finetuning.config import FinetuneConfig
from electra.seeding import Stream, build_numpy_generator

log = logging.getLogger(__name__)

Item = TypeVar("Item")


def get_split_files(config: FinetuneConfig, hint: str = "") -> dict[str, Path]:
    """Return the files of --train, --dev and --test: split -> path.

    Raises:
        UsageError: --train is missing; the message ends with `hint`.
    """
    if config.train is None:
        raise UsageError("missing-option", f"{config.task} needs --train FILE{hint}")
    files = {"train": config.train, "dev": config.dev, "test": config.test}
    return {split: Path(path) for split, path in files.items() if path is not None}


def hold_out(
    items: Sequence[Item], groups: Sequence[str], config: FinetuneConfig, unit: str
) -> tuple[list[Item], list[Item]]:
    """Split training items into train and dev by `config.dev_share` and `config.split_seed`.

    Args:
        items: Training items.
        groups: Group of each item, its context for instance; the share is one of groups, which are not divided.
        config: Options of the run.
        unit: What the items are, in the plural, for messages.

    Returns:
        (train, dev), each in the order of `items`.

    Raises:
        DataError: there are too few groups for one of them to be held out.
    """
    names = list(dict.fromkeys(groups))
    number = max(1, round(config.dev_share * len(names)))
    if number >= len(names):
        raise DataError(
            "too-few-rows", f"{config.train or config.data}: too few {unit} to hold some out as dev; give --dev"
        )
    order = build_numpy_generator(Stream.DEV_SPLIT, config.split_seed).permutation(len(names))
    held_out = {names[i] for i in order[:number]}
    train = [item for item, group in zip(items, groups, strict=True) if group not in held_out]
    dev = [item for item, group in zip(items, groups, strict=True) if group in held_out]
    log.info(
        f"{len(dev):,} of {len(items):,} {unit} are held out as dev (no --dev was given)", extra={"code": "held-out"}
    )
    return train, dev
