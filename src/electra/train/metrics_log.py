"""The metrics of a run in `metrics.jsonl`: one JSON object per line."""

import json
import logging
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field
from torch import nn
from typing_extensions import TypedDict

from electra.errors import RunError
from electra.external import format_count
from electra.schema import check_file, validate_json
from electra.storage import convert_os_errors, write_atomically
from electra.train.callbacks import Callback
from electra.train.checkpoint import TrainingState

log = logging.getLogger(__name__)


LINE_BYTES = 1 << 16
"""Maximum bytes of a line that are read at once; a row has less than a thousand."""


class MetricsRow(TypedDict):
    """The required fields of a row; all further fields are numbers too."""

    step: Annotated[int, Field(ge=0)]
    loss: float
    gradient_norm: float
    learning_rate: float
    seconds: float
    tokens: float
    flops: float


class MetricsLog(Callback):
    """Appends rows of metrics to `metrics.jsonl` in a directory.

    On resuming, the rows of steps after the checkpoint are dropped, because the run writes them again.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / "metrics.jsonl"

    def on_train_begin(self, module: nn.Module, state: TrainingState) -> None:
        """Drop the rows after `state.step`."""
        if state.step == 0 and self.path.exists():
            log.info(
                "starting at step 0 again (the run was stopped before its first checkpoint)",
                extra={"code": "restarted"},
            )
        with convert_os_errors(self.path):
            kept = [row for row in read_metrics(self.path) if row["step"] <= state.step]
            write_atomically(self.path, "".join(json.dumps(row) + "\n" for row in kept).encode())

    def on_log(self, state: TrainingState, metrics: dict[str, float]) -> None:
        """Append a row."""
        with convert_os_errors(self.path), self.path.open("a") as file:
            file.write(json.dumps({"step": state.step, **metrics}) + "\n")


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a `metrics.jsonl`; none if there is no file. An incomplete last line, as after a kill, is skipped.

    Other lines that are not rows of metrics are skipped with a warning: the weights of a run do not depend on them.

    Raises:
        RunError: it is not a regular file.
    """
    if not path.exists():
        return
    check_file(path, RunError)
    bad: list[str] = []
    with path.open("rb") as file:
        for number in count(1):
            if not (line := file.readline(LINE_BYTES)):
                break
            try:
                yield parse_row(line, path, number)
            except RunError as error:
                whole = line.endswith(b"\n")
                while len(line) == LINE_BYTES and not line.endswith(b"\n"):  # the rest of a long line
                    whole, line = True, file.readline(LINE_BYTES)
                if whole:
                    bad.append(str(error))
    if bad:
        log.warning(
            f"{format_count(len(bad), 'line')} left out that {'is' if len(bad) == 1 else 'are'} no metrics: {bad[0]}",
            extra={"code": "damaged-metrics"},
        )


def parse_row(line: bytes, path: Path, number: int) -> dict[str, Any]:
    """Parse a line as a row. Raises a `RunError` with file and line number."""
    row = cast("dict[str, Any]", validate_json(line, MetricsRow, str(path), RunError, number))
    for name, value in row.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise RunError("wrong-type", f"{path}:{number}: {name!r} is not a number")
    return row
