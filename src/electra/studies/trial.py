"""One cell of a grid: a variant with a seed, pre-trained, fine-tuned, probed. It writes one record, after each score anew.

OUT/runs/VARIANT/seed-N/             the pre-training run
OUT/finetuned/VARIANT/seed-N/TASK/   fine-tuning; of its models the scores and predictions stay
OUT/cells/VARIANT-seed-N.json        the record
OUT/logs/VARIANT-seed-N.log          what the cell had to say
"""

import json
import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field, FiniteFloat
from typing_extensions import Required, TypedDict

from electra.errors import RunError
from electra.finetuning.benchmark.grid import get_main_score
from electra.finetuning.classification.task import TextClassification
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.hub import find_model_directory
from electra.finetuning.run import finetune
from electra.pretraining.config import PretrainConfig
from electra.pretraining.run import pretrain
from electra.schema import read_json
from electra.storage import exclusive, write_atomically
from electra.studies.probing.probe import Probed, probe
from electra.studies.probing.tags import TagsProbed, probe_tags

log = logging.getLogger(__name__)


class FinetunedRecord(TypedDict):
    """Of a task."""

    metric: str
    median: float
    values: Annotated[list[float], Field(min_length=1)]


class ProbedRecord(TypedDict):
    """As `Probed`."""

    last: float
    best: float
    layer: int


class TagsRecord(TypedDict):
    """As `TagsProbed`."""

    layers: Annotated[list[float], Field(min_length=1)]
    layer: Annotated[int, Field(ge=0)]
    folder: str
    split: str


class CellRecord(TypedDict, total=False):
    """The record of a cell. One that failed before its run was finished has a reason and nothing else."""

    variant: Required[str]
    seed: Required[int]
    failed: str
    step: int
    tokens: FiniteFloat
    flops: FiniteFloat
    seconds: FiniteFloat
    heldout: dict[str, float]
    finetuned: dict[str, FinetunedRecord]
    probed: dict[str, ProbedRecord]
    tags: TagsRecord


def read_record(path: Path) -> dict[str, Any]:
    """The record of a cell.

    Raises:
        RunError: it is damaged.
    """
    record = read_json(path, CellRecord, RunError)
    needed = (
        ("step", "tokens", "flops", "seconds", "heldout", "finetuned", "probed")
        if "finetuned" in record
        else ("failed",)
    )
    if missing := [name for name in needed if name not in record]:
        raise RunError(f"{path}: {missing[0]} is missing")
    if "tags" in record and (layer := record["tags"]["layer"]) >= len(record["tags"]["layers"]):
        raise RunError(f"{path}: tags.layer is {layer}, but there are {len(record['tags']['layers'])} layers")
    return cast("dict[str, Any]", record)


@dataclass(frozen=True)
class EvalConfig:
    """How an encoder is scored."""

    glue: str
    """Folder in GLUE's layout, or hf://nyu-mll/glue."""
    tasks: tuple[str, ...]
    """Tasks of GLUE."""
    finetune_seeds: int = 1
    """Fine-tuning runs of each task, with seeds from the pre-training seed on; their median counts. 0: only probes."""
    probe_examples: int = 5_000
    """Training examples that a probe sees at most."""
    tags: str | None = None
    """Folder of sentences whose words have tags, for a probe of these."""


@dataclass(frozen=True)
class Trial:
    """One variant with one seed."""

    out: Path
    """The study's directory."""
    variant: str
    config: PretrainConfig
    scoring: EvalConfig

    @property
    def name(self) -> str:
        """`VARIANT-seed-N`."""
        return f"{self.variant}-seed-{self.config.seed}"

    @property
    def run(self) -> Path:
        """The pre-training run."""
        return self.out / "runs" / self.variant / f"seed-{self.config.seed}"

    @property
    def log(self) -> Path:
        """What it had to say."""
        return self.out / "logs" / f"{self.name}.log"

    @property
    def lock(self) -> Path:
        """Held by the process that works on it."""
        return self.out / "cells" / f".{self.name}.lock"

    @property
    def path(self) -> Path:
        """The record."""
        return self.out / "cells" / f"{self.name}.json"

    def record(self) -> dict[str, Any] | None:
        """What is known of the cell: its results, or why it failed; None if it was not run.

        Raises:
            RunError: the record is damaged.
        """
        return read_record(self.path) if self.path.exists() else None

    def is_finished(self) -> bool:
        """Whether nothing is left to do: all tasks are probed, and fine-tuned by as many runs as are wanted."""
        return not self.unscored() and not self.untagged() and "failed" not in (self.record() or {})

    def unscored(self) -> list[str]:
        """The tasks that are not probed yet, or fine-tuned by fewer runs than are wanted."""
        record = self.record() or {}
        probed = record.get("probed", {})
        runs = {task: len(found["values"]) for task, found in record.get("finetuned", {}).items()}
        wanted = self.scoring.finetune_seeds
        return [task for task in self.scoring.tasks if task not in probed or runs.get(task, 0) < wanted]

    def untagged(self) -> bool:
        """Whether the probe of tags is wanted and not there yet."""
        return self.scoring.tags is not None and "tags" not in (self.record() or {})

    def fail(self, reason: str) -> None:
        """Record that the cell failed, in one line; what an earlier call has scored stays."""
        self.write({**(self.record() or {}), "failed": reason})

    def write(self, record: dict[str, Any]) -> None:
        """Write the record."""
        facts = {"variant": self.variant, "seed": self.config.seed, **record}
        write_atomically(self.path, (json.dumps(facts, indent=2) + "\n").encode())


FACTS = ("step", "tokens", "flops", "seconds", "heldout", "hardware", "versions")
"""What a record has of the pre-training run's summary."""


@contextmanager
def alone(trial: Trial) -> Iterator[None]:
    """Wait for a process that still works on the cell: one whose study was killed takes a while to save and stop."""
    with exclusive(trial.path, trial.lock, log.warning, wait=True):
        yield


def run_trial(trial: Trial) -> None:
    """Do what is left to do of a cell. Its parts resume by themselves.

    Raises:
        ElectraError: see `electra.errors`.
        SystemExit: a signal asked to stop; the same call goes on.
    """
    summary = pretrain(trial.config, trial.run)
    before = trial.record() or {}
    finetuned, probes = before.get("finetuned", {}), before.get("probed", {})
    record = {
        **{name: summary[name] for name in FACTS},
        "findings": [finding["problem"] for finding in summary["findings"]],
        "finetuned": finetuned,
        "probed": probes,
        **({"tags": before["tags"]} if "tags" in before else {}),
    }
    tasks, untagged = trial.unscored(), trial.untagged()
    trial.write(record)
    if untagged:
        record["tags"] = asdict(probed_tags(trial))
        trial.write(record)
    for task in tasks:  # written after each, so that a task that fails takes no other's score along
        if trial.scoring.finetune_seeds:
            finetuned[task] = finetuned_score(trial, task)
        if task not in probes:
            probes[task] = asdict(probed(trial, task))
        trial.write(record)


def finetuned_score(trial: Trial, task: str) -> dict[str, Any]:
    """Median and values of the task's main metric on dev over the fine-tuning seeds."""
    config = FinetuneConfig(
        task=task,
        model=str(trial.run),
        data=trial.scoring.glue,
        seed=trial.config.seed,
        max_length=finetuning_length(trial.config),
        runtime=trial.config.runtime,
    )
    out = trial.out / "finetuned" / trial.variant / f"seed-{trial.config.seed}" / task
    summary = finetune(config, out, trial.scoring.finetune_seeds)
    for model in out.glob("seed-*/model"):  # as large as the encoder, for every task
        shutil.rmtree(model)
    score = get_main_score(summary)
    return {"metric": summary["main_metric"], "median": score["median"], "values": score["values"]}


def finetuning_length(config: PretrainConfig) -> int:
    """Tokens of an example: fine-tuning's own, as far as there are positions. It learns those pre-training never reached."""
    return min(TextClassification.max_length, config.model.max_positions)


def probed_tags(trial: Trial) -> TagsProbed:
    """The linear probe of words' tags."""
    assert trial.scoring.tags is not None
    return probe_tags(
        find_model_directory(str(trial.run)),
        trial.scoring.tags,
        max_length=trial.config.seq_len,
        device=trial.config.runtime,
    )


def probed(trial: Trial, task: str) -> Probed:
    """The linear probe of a task."""
    return probe(
        find_model_directory(str(trial.run)),
        trial.scoring.glue,
        task,
        max_length=trial.config.seq_len,
        most=trial.scoring.probe_examples,
        device=trial.config.runtime,
    )
