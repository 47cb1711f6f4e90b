"""The run directory: what lies where, whose configuration it has, and whether the run is finished.

RUN/config.yaml          the resolved configuration; `electra pretrain --config` repeats the run from it
RUN/tokenizer/ data/     made from the text, where they were not given
RUN/checkpoints/         see train.checkpoint
RUN/metrics.jsonl        a row every training.log_every steps; RUN/events/ holds the same for TensorBoard
RUN/discriminator/       Hugging Face directories; an mlm run has masked_lm/ instead of the two
RUN/generator/
RUN/first-stage/         of training in two stages: the generator's own run
RUN/report.html          with RUN/pictures/
RUN/summary.json         written last: the run is finished
"""

import json
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field, FiniteFloat
from typing_extensions import TypedDict

from electra.config.files import describe_difference, to_yaml
from electra.errors import DataError, DeviceError, ModelError, RunError, TextError, TokenizerError, UsageError
from electra.pretraining.config import PretrainConfig, saved_config
from electra.schema import read_json
from electra.storage import LOCK, holds_files, lock_output, write_atomically

log = logging.getLogger(__name__)


# These may differ when a run is resumed: they do not change what is learnt, or, as the device, its random draws alone.
FREE = (
    "runtime.",
    "workers",
    "encoding_errors",
    "log_to",
    "training.log_every",
    "training.checkpoint_",
    "training.keep_checkpoints",
    "training.compile",
    "training.graphs",
)

Amount = Annotated[FiniteFloat, Field(ge=0)]


class FindingRecord(TypedDict):
    """A finding of the health report."""

    problem: str


class Summary(TypedDict):
    """`summary.json`."""

    step: Annotated[int, Field(ge=0)]
    seconds: Amount
    tokens: Amount
    flops: Amount
    heldout: dict[str, float]
    findings: list[FindingRecord]
    hardware: str
    versions: dict[str, str]


NETWORKS = ("discriminator", "masked_lm", "generator")


@dataclass(frozen=True)
class RunDirectory:
    """The paths of one run."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.yaml"

    @property
    def summary(self) -> Path:
        """The final metrics; its presence says that the run is finished."""
        return self.path / "summary.json"

    @property
    def tokenizer(self) -> Path:
        """The tokenizer trained for this run."""
        return self.path / "tokenizer"

    @property
    def data(self) -> Path:
        """The text prepared for this run."""
        return self.path / "data"

    @property
    def checkpoints(self) -> Path:
        """Checkpoints of the training loop."""
        return self.path / "checkpoints"

    @property
    def report(self) -> Path:
        """What a finished run has to say."""
        return self.path / "report.html"

    @property
    def first_stage(self) -> "RunDirectory":
        """The run of the generator alone, of training in two stages."""
        return RunDirectory(self.path / "first-stage")

    def saved(self) -> PretrainConfig:
        """The configuration that the run was started with.

        Raises:
            RunError: not a run directory.
        """
        if not self.config.exists():
            raise RunError(f"{self.path}: not a run directory, it has no {self.config.name}")
        return saved_config(self.config)

    def networks(self) -> list[Path]:
        """The Hugging Face directories of a finished run, the main network's first."""
        return [self.path / name for name in NETWORKS if (self.path / name).exists()]

    def check(self, config: PretrainConfig) -> None:
        """See that the directory is new, empty, or of the same configuration.

        Raises:
            RunError: it is the run of another configuration, or holds other things.
        """
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path}: not a directory")
        if not self.config.exists():
            if holds_files(self.path):
                raise RunError(f"{self.path}: not empty and not a run; choose another --out")
            return
        micro_batches = ("training.micro_batch_size",) if config.training.means == "global" else ()
        if (difference := describe_difference(self.config, config, FREE + micro_batches)) is not None:
            further = (
                f"; to train further from this one, --init {self.path} --out ANOTHER" if self.summary.exists() else ""
            )
            raise RunError(
                f"{self.path}: a run of another configuration: {difference}; "
                f"choose another --out, or repeat the options it was started with{further}"
            )

    @contextmanager
    def lock_or_create(self, config: PretrainConfig) -> Iterator[None]:
        """Make and lock the directory; if what the user gave is unusable, leave nothing half-written of a new one.

        Raises:
            RunError: another process works on it.
            StorageError: it cannot be written.
        """
        with lock_output(self.path, self.path / LOCK, log.warning), self._begun(config):
            yield

    @contextmanager
    def _begun(self, config: PretrainConfig) -> Iterator[None]:
        new = not self.config.exists()
        if new:
            write_atomically(self.config, to_yaml(config).encode())
        try:
            yield
        except (TextError, TokenizerError, DataError, ModelError, UsageError) as error:
            # Text that took hours to prepare is kept, unless the options themselves have to change.
            trained = self.checkpoints.exists() or self.first_stage.path.exists()
            prepared = any(self.data.glob("chunks/*"))
            wrong = isinstance(error, UsageError) and not isinstance(error, DeviceError)
            if new and not trained and (wrong or not prepared):
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    def finished(self) -> dict[str, Any] | None:
        """The summary of a finished run, None if there is still something to do.

        Raises:
            RunError: `summary.json` is damaged.
        """
        if not self.summary.exists():
            return None
        try:
            return cast("dict[str, Any]", read_json(self.summary, Summary, RunError))
        except RunError as error:
            raise RunError(f"{error}; delete it and run the same command again, which writes it anew") from None

    def finish(self, summary: dict[str, Any]) -> None:
        """Mark the run as finished."""
        write_atomically(self.summary, (json.dumps(summary, indent=2) + "\n").encode())
