"""The options of inference."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from electra.config.resolve import resolve
from electra.errors import UsageError
from electra.runtime.setup import RuntimeConfig


@dataclass(frozen=True)
class PredictConfig:
    """How inputs are read and predicted."""

    text: str | None = None
    """Column of the text, in files that have columns; by default that of fine-tuning's table, or "sentence"."""
    text_pair: str | None = None
    """Column of the second text of a pair; by default that of fine-tuning's table."""
    form: Literal["columns", "lines"] = "columns"
    """Words to tag in a .txt file are in columns (CoNLL) or sentences in lines; on standard input, in lines."""
    null_threshold: float | None = None
    """Null odds above which a question has no answer; by default the best one on dev in fine-tuning."""
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    """Device and precision."""

    def __post_init__(self) -> None:
        if self.null_threshold is not None and math.isnan(self.null_threshold):
            raise UsageError("--null-threshold is NaN; it must be a number")


def from_options(given: Mapping[str, Any]) -> PredictConfig:
    """The configuration out of options by name, nested ones as in `electra.config.resolve.resolve`.

    Raises:
        UsageError: a wrong name or value.
    """
    return resolve(PredictConfig(), {}, given, command="predict")
