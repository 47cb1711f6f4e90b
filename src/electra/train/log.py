"""Metrics on disk: one JSON object a line in `metrics.jsonl`, and TensorBoard events beside it."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from electra.storage import write_atomically, writing


class MetricsLog:
    """Appends rows of numbers to `metrics.jsonl` and to TensorBoard events in the same directory.

    On resuming at `step`, what an interrupted run wrote beyond it is dropped, so that no step stands there twice.
    """

    def __init__(self, directory: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # 1 s of imports that no other command needs

        self.path = directory / "metrics.jsonl"
        with writing(self.path):
            kept = [row for row in read_metrics(self.path) if row["step"] <= step]
            write_atomically(self.path, "".join(json.dumps(row) + "\n" for row in kept).encode())
            self.events = SummaryWriter(str(directory / "events"), purge_step=step + 1)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add the metrics of one step."""
        with writing(self.path), self.path.open("a") as file:
            file.write(json.dumps({"step": step, **metrics}) + "\n")
        with writing(self.path.parent / "events"):
            for name, value in metrics.items():
                self.events.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush TensorBoard's events; where the disk is full they are lost, which the error under way says already."""
        with suppress(OSError):
            self.events.close()


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a `metrics.jsonl`; none if there is no file. A last line cut short by a kill is passed over."""
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue
