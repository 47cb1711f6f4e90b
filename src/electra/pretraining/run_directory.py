"""The run directory: its layout, configuration and state.

RUN/config.yaml          the resolved configuration; `electra pretrain --config` repeats the run from it
RUN/tokenizer/ data/     made from the text, if not given
RUN/checkpoints/         see train.checkpoint; checkpoints/stem/: see stem
RUN/metrics.jsonl        a row every training.log_every steps; RUN/events/ has the same for TensorBoard
RUN/discriminator/       Hugging Face directories; an mlm run has masked_lm/ instead of the two, electric energy_model/
RUN/generator/
RUN/first-stage/         two-stage training: the generator's run
RUN/exports/             networks of earlier steps; see learning_curve
RUN/report.html          with RUN/pictures/
RUN/summary.json         written last: marks the run as finished
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field, FiniteFloat
from typing_extensions import NotRequired, TypedDict

from electra.config.files import describe_difference, to_yaml
from electra.errors import DataError, DeviceError, ModelError, RunError, TextError, TokenizerError, UsageError
from electra.pretraining.config import PretrainConfig, load_saved_config
from electra.pretraining.objectives.spec import list_main_directories
from electra.schema import read_json
from electra.storage import LOCK, holds_files, lock_output, write_atomically

# Options (or prefixes) that may differ when a run is resumed: they do not change the training, or only, as the device does,
# its random numbers.
CHANGEABLE_OPTIONS = (
    "runtime.",
    "workers",
    "encoding_errors",
    "log_to",
    "export_",
    "training.log_every",
    "training.checkpoint_",
    "training.keep_checkpoints",
    "training.compile",
    "training.graphs",
)


def list_changeable_options(config: PretrainConfig) -> tuple[str, ...]:
    """List the options (or prefixes) that may differ when a run is continued."""
    return CHANGEABLE_OPTIONS + (() if config.reason_for_micro_batches else ("training.micro_batch_size",))


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
    heldout_by_source: NotRequired[dict[str, dict[str, float]]]
    findings: list[FindingRecord]
    hardware: str
    versions: dict[str, str]


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
        """The final metrics; present only in a finished run."""
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
    def exports(self) -> Path:
        """Networks of earlier steps."""
        return self.path / "exports"

    @property
    def metrics(self) -> Path:
        """A row of metrics every training.log_every steps."""
        return self.path / "metrics.jsonl"

    @property
    def report(self) -> Path:
        """The report of a finished run."""
        return self.path / "report.html"

    @property
    def first_stage(self) -> "RunDirectory":
        """Two-stage training: the generator's run."""
        return RunDirectory(self.path / "first-stage")

    def load_config(self) -> PretrainConfig:
        """Load the configuration that the run was started with.

        Raises:
            RunError: not a run directory.
        """
        self.check_is_run()
        return load_saved_config(self.config)

    def check_is_run(self) -> None:
        """Raise a `RunError` if it is not a run directory."""
        if not self.config.exists():
            raise RunError(
                "not-run",
                f"{self.path}: not a run directory, it has no {self.config.name}; name the --out of electra pretrain",
            )

    def list_networks(self) -> list[Path]:
        """List the Hugging Face directories of a finished run, that of the discriminator or main encoder first."""
        names = [*list_main_directories(), "generator"]
        return [path for name in names if (path := self.path / name).exists()]

    def check(self, config: PretrainConfig) -> None:
        """Check that the directory is new, empty, or a run of the same configuration.

        Raises:
            RunError: it is a run of another configuration, or has other files.
        """
        if self.path.exists() and not self.path.is_dir():
            raise RunError("not-directory", f"{self.path}: not a directory; choose another --out")
        if not self.config.exists():
            if holds_files(self.path):
                raise RunError("not-run", f"{self.path}: not empty and not a run; choose another --out")
            return
        if (difference := describe_difference(self.config, config, list_changeable_options(config))) is not None:
            hint = (
                f"; to continue training from it, use --init {self.path} --out ANOTHER" if self.summary.exists() else ""
            )
            raise RunError(
                "other-configuration",
                f"{self.path}: a run of another configuration: {difference}; "
                f"choose another --out, or repeat the options it was started with{hint}",
            )

    @contextmanager
    def lock_or_create(self, config: PretrainConfig) -> Iterator[None]:
        """Create and lock the directory; a new one is removed again if the user's input is unusable.

        Raises:
            RunError: another process uses it.
            StorageError: it cannot be written.
        """
        with lock_output(self.path, self.path / LOCK), self._create(config):
            yield

    @contextmanager
    def _create(self, config: PretrainConfig) -> Iterator[None]:
        new = not self.config.exists()
        if new:
            write_atomically(self.config, to_yaml(config).encode())
        try:
            yield
        except (TextError, TokenizerError, DataError, ModelError, UsageError) as error:
            # Prepared text, the work of hours, is kept unless the options have to change.
            trained = self.checkpoints.exists() or self.first_stage.path.exists()
            prepared = any(self.data.glob("chunks/*"))
            wrong = isinstance(error, UsageError) and not isinstance(error, DeviceError)
            if new and not trained and (wrong or not prepared):
                shutil.rmtree(self.path, ignore_errors=True)
            raise

    def load_summary(self) -> dict[str, Any] | None:
        """Load the summary of a finished run; None if the run is not finished.

        Raises:
            RunError: `summary.json` is damaged.
        """
        if not self.summary.exists():
            return None
        try:
            return cast("dict[str, Any]", read_json(self.summary, Summary, RunError))
        except RunError as error:
            raise RunError(error.code, f"{error}; delete it and repeat the command to write it again") from None

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Mark the run as finished."""
        write_atomically(self.summary, (json.dumps(summary, indent=2) + "\n").encode())
