"""What is shown and written while a model is fine-tuned; and which epoch's weights are kept."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from rich.progress import TaskID
from safetensors import SafetensorError, safe_open
from torch import nn

from electra.console import LINE_EVERY, console, training_progress
from electra.errors import RunError
from electra.external import one_line
from electra.schema import check_file, read_tensors
from electra.storage import write_tensors
from electra.train.checkpoint import TrainingState
from electra.train.metrics_log import MetricsLog

log = logging.getLogger(__name__)


class FinetuneObserver:
    """A progress display, rows in `metrics.jsonl`, and a call at the end of every epoch."""

    def __init__(
        self, directory: Path, name: str, steps: int, steps_per_epoch: int, at_epoch: Callable[[int], None] | None
    ) -> None:
        self.directory = directory
        self.name = name
        self.steps = steps
        self.steps_per_epoch = steps_per_epoch
        self.at_epoch = at_epoch
        self.detail = ""
        self.last_line = time.monotonic()
        self.log: MetricsLog | None = None
        self.progress = training_progress()
        self.task = TaskID(0)

    def started(self, state: TrainingState) -> None:
        """Open the log where the run stands, and the display."""
        self.log = MetricsLog(self.directory, state.step)
        if state.step:
            log.info(f"going on from step {state.step:,} of {self.steps:,}")
        if console.is_terminal:
            self.progress.start()
        self.task = self.progress.add_task(self.name, total=self.steps, detail="")

    def stepped(self, state: TrainingState) -> None:
        """Move the display; evaluate where an epoch ends."""
        epoch = state.step / self.steps_per_epoch
        self.progress.update(self.task, completed=state.step, detail=f"epoch {epoch:.1f} {self.detail}")
        if self.at_epoch is not None and (state.step % self.steps_per_epoch == 0 or state.step == self.steps):
            self.at_epoch(state.step)

    def logged(self, state: TrainingState, metrics: dict[str, float]) -> None:
        """Write a row and show the loss."""
        assert self.log is not None
        self.log.write(state.step, metrics)
        self.detail = f"loss {metrics['loss']:.3f} · {metrics['tokens_per_second']:,.0f} tokens/s"
        if not console.is_terminal and time.monotonic() - self.last_line > LINE_EVERY:
            self.last_line = time.monotonic()
            console.print(f"  {self.name} step {state.step:,} of {self.steps:,} {self.detail}", markup=False)

    def close(self) -> None:
        """Put the display away and flush the log."""
        if console.is_terminal:
            self.progress.stop()
        if self.log is not None:
            self.log.close()


class BestEpoch:
    """The weights of the epoch that scored best on dev, in one file, so that a killed run still knows them."""

    def __init__(self, directory: Path, model: nn.Module, score: Callable[[], float]) -> None:
        self.path = directory / "best.safetensors"
        self.model = model
        self.score = score

    def __call__(self, step: int) -> None:
        """Score the model as it stands; keep it if nothing was better."""
        value = self.score()
        self.model.train()
        known = self.known()
        if known is None or value > known[1] or step == known[0]:
            state = {name: parameter.detach().contiguous() for name, parameter in self.model.named_parameters()}
            partial = self.path.with_suffix(".partial")
            write_tensors(partial, state, {"step": str(step), "score": repr(value)})
            partial.replace(self.path)

    def known(self) -> tuple[int, float] | None:
        """Step and score of the weights in the file, if there is one. Raises RunError where it is damaged."""
        if not self.path.exists():
            return None
        check_file(self.path, RunError)
        try:
            with safe_open(self.path, framework="pt") as file:
                metadata = file.metadata()
            return int(metadata["step"]), float(metadata["score"])
        except (SafetensorError, OSError, ValueError, LookupError, TypeError) as error:
            raise RunError(f"{self.path}: damaged ({one_line(error)}); choose another --out") from None

    def restore(self) -> int:
        """Put the best weights into the model; returns the step they are of."""
        known = self.known()
        assert known is not None
        weights = read_tensors(self.path, RunError)
        if {n: t.shape for n, t in weights.items()} != {n: t.shape for n, t in self.model.named_parameters()}:
            raise RunError(f"{self.path}: holds the parameters of another model; choose another --out")
        self.model.load_state_dict(weights, strict=True)
        return known[0]
