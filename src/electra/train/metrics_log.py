"""Metrics on disk: one JSON object a line in `metrics.jsonl`, and TensorBoard events beside it."""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field
from typing_extensions import TypedDict

from electra.console import format_count
from electra.errors import RunError
from electra.schema import check_file, validate_json
from electra.storage import convert_os_errors, write_atomically

log = logging.getLogger(__name__)


LINE_BYTES = 1 << 16
"""A row has less than a thousand."""


class MetricsRow(TypedDict):
    """What every row has; all else in it are numbers, too."""

    step: Annotated[int, Field(ge=0)]
    loss: float
    gradient_norm: float
    learning_rate: float
    seconds: float
    tokens: float
    flops: float


class MetricsLog:
    """Appends rows of numbers to `metrics.jsonl` and to TensorBoard events in the same directory.

    On resuming at `step`, what an interrupted run wrote beyond it is dropped, so that no step stands there twice.
    """

    def __init__(self, directory: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # 1 s of imports that no other command needs

        self.path = directory / "metrics.jsonl"
        with convert_os_errors(self.path):
            kept = [row for row in read_metrics(self.path) if row["step"] <= step]
            write_atomically(self.path, "".join(json.dumps(row) + "\n" for row in kept).encode())
            self.events = SummaryWriter(str(directory / "events"), purge_step=step + 1)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add the metrics of one step."""
        with convert_os_errors(self.path), self.path.open("a") as file:
            file.write(json.dumps({"step": step, **metrics}) + "\n")
        with convert_os_errors(self.path.parent / "events"):
            for name, value in metrics.items():
                self.events.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush TensorBoard's events; where the disk is full they are lost, which the error under way says already."""
        with suppress(OSError):
            self.events.close()


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a `metrics.jsonl`; none if there is no file. A last line cut short by a kill is passed over.

    Other lines that are no rows of metrics are left out with a warning: the weights of a run do not depend on them.

    Raises:
        RunError: it is no regular file.
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
                yield metrics_row(line, path, number)
            except RunError as error:
                whole = line.endswith(b"\n")
                while len(line) == LINE_BYTES and not line.endswith(b"\n"):  # the rest of a line without end
                    whole, line = True, file.readline(LINE_BYTES)
                if whole:
                    bad.append(str(error))
    if bad:
        log.warning(
            f"{format_count(len(bad), 'line')} left out that {'is' if len(bad) == 1 else 'are'} no metrics: {bad[0]}"
        )


def metrics_row(line: bytes, path: Path, number: int) -> dict[str, Any]:
    """A line as a row. Raises a `RunError` that names the place."""
    row = cast("dict[str, Any]", validate_json(line, MetricsRow, str(path), RunError, number))
    for name, value in row.items():
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise RunError(f"{path}:{number}: {name!r} is not a number")
    return row
