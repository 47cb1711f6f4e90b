"""A trial: one variant of a study with one seed, pre-trained, fine-tuned and probed. Its record is rewritten after each score.

OUT/runs/VARIANT/seed-N/             the pre-training run
OUT/finetuned/VARIANT/seed-N/TASK/   scores and predictions of fine-tuning; its models are deleted
OUT/trials/VARIANT-seed-N.json        the record; with a copy of it the study continues on another machine
OUT/logs/VARIANT-seed-N.log          output of the trial
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field, FiniteFloat
from typing_extensions import NotRequired, Required, TypedDict

from electra.errors import RunError
from electra.finetuning.benchmark.score_table import get_main_score
from electra.finetuning.classification.task import TextClassification
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.hub import find_model_directory
from electra.finetuning.run import finetune
from electra.pretraining.config import PretrainConfig
from electra.pretraining.run import pretrain
from electra.schema import read_json
from electra.storage import lock_output, write_atomically
from electra.studies.config import TRIALS
from electra.studies.instruments import INSTRUMENTS, EvalConfig
from electra.studies.probing.probe import ProbeScores, probe


class FinetunedRecord(TypedDict):
    """Fine-tuned scores of a task."""

    metric: str
    median: float
    values: Annotated[list[float], Field(min_length=1)]


class ProbeRecord(TypedDict):
    """See `ProbeScores`."""

    last: float
    best: float
    layer: int


class TagsRecord(TypedDict):
    """See `TagProbeScores`."""

    layers: Annotated[list[float], Field(min_length=1)]
    layer: Annotated[int, Field(ge=0)]
    source: str
    split: str


class PairsRecord(TypedDict):
    """Accuracies on minimal pairs in percent: by method, `overall` and by phenomenon; of token frequencies overall."""

    source: str
    methods: dict[str, dict[str, FiniteFloat]]
    frequencies: NotRequired[FiniteFloat]


class SimilarityRecord(TypedDict):
    """See `electra.studies.probing.sentence_vectors.compute_similarity_scores`."""

    source: str
    layers: Annotated[list[FiniteFloat], Field(min_length=1)]


class TrialRecord(TypedDict, total=False):
    """The record of a trial. After a failure of the pre-training run it has only the reason."""

    variant: Required[str]
    seed: Required[int]
    failed: str
    step: int
    tokens: FiniteFloat
    flops: FiniteFloat
    seconds: FiniteFloat
    heldout: dict[str, float]
    finetuned: dict[str, FinetunedRecord]
    probed: dict[str, ProbeRecord]
    tags: TagsRecord
    pairs: PairsRecord
    similarity: SimilarityRecord


def read_record(path: Path) -> dict[str, Any]:
    """Read the record of a trial.

    Raises:
        RunError: the record is damaged.
    """
    record = read_json(path, TrialRecord, RunError)
    needed = (
        ("step", "tokens", "flops", "seconds", "heldout", "finetuned", "probed")
        if "finetuned" in record
        else ("failed",)
    )
    if missing := [name for name in needed if name not in record]:
        raise RunError("missing-field", f"{path}: {missing[0]} is missing")
    if "tags" in record and (layer := record["tags"]["layer"]) >= len(record["tags"]["layers"]):
        raise RunError(
            "bad-layer", f"{path}: tags.layer is {layer}, but there are {len(record['tags']['layers'])} layers"
        )
    if not all("overall" in each for each in record.get("pairs", {}).get("methods", {}).values()):
        raise RunError("missing-field", f"{path}: pairs.methods: an accuracy overall is missing")
    return cast("dict[str, Any]", record)


@dataclass(frozen=True)
class Trial:
    """A variant with a seed."""

    out: Path
    """The study's directory."""
    variant: str
    config: PretrainConfig
    eval_config: EvalConfig

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
        """Output of the trial's process."""
        return self.out / "logs" / f"{self.name}.log"

    @property
    def lock(self) -> Path:
        """Locked by the process that runs the trial."""
        return self.out / TRIALS / f".{self.name}.lock"

    @property
    def path(self) -> Path:
        """The record."""
        return self.out / TRIALS / f"{self.name}.json"

    def record(self) -> dict[str, Any] | None:
        """Load the record: results or the reason of a failure; None before the first run.

        Raises:
            RunError: the record is damaged.
        """
        return read_record(self.path) if self.path.exists() else None

    def is_finished(self) -> bool:
        """Whether all tasks are probed and fine-tuned with the configured number of seeds."""
        return not self.unscored_tasks() and not self.unused_instruments() and "failed" not in (self.record() or {})

    def unscored_tasks(self) -> list[str]:
        """Return the tasks that are not probed yet, or are fine-tuned with fewer seeds than configured."""
        record = self.record() or {}
        probed = record.get("probed", {})
        runs = {task: len(found["values"]) for task, found in record.get("finetuned", {}).items()}
        num_seeds = self.eval_config.finetune_seeds
        return [task for task in self.eval_config.tasks if task not in probed or runs.get(task, 0) < num_seeds]

    def unused_instruments(self) -> list[str]:
        """Return the instruments that are requested and have no results yet."""
        record = self.record() or {}
        return [
            name
            for name, instrument in INSTRUMENTS.items()
            if instrument.is_requested(self.eval_config) and name not in record
        ]

    def fail(self, reason: str) -> None:
        """Record the reason of a failure, in one line; existing scores are kept."""
        self.write({**(self.record() or {}), "failed": reason})

    def write(self, record: dict[str, Any]) -> None:
        """Write the record."""
        facts = {"variant": self.variant, "seed": self.config.seed, **record}
        write_atomically(self.path, (json.dumps(facts, indent=2) + "\n").encode())


FACTS = ("step", "tokens", "flops", "seconds", "heldout", "hardware", "versions")
"""Fields of the pre-training run's summary that a record has."""


@contextmanager
def lock_trial(trial: Trial) -> Iterator[None]:
    """Lock the trial; wait for a process of a killed study, which needs time to save and stop."""
    with lock_output(trial.path, trial.lock, wait=True):
        yield


def run_trial(trial: Trial) -> None:
    """Run the unfinished parts of a trial: pre-training, instruments, probes, fine-tuning. Each of them resumes.

    Raises:
        ElectraError: see `electra.errors`.
        SystemExit: stopped by a signal; the same call continues.
    """
    summary = pretrain(trial.config, trial.run)
    before = trial.record() or {}
    finetuned, probes = before.get("finetuned", {}), before.get("probed", {})
    record = {
        **{name: summary[name] for name in FACTS},
        "findings": [finding["code"] for finding in summary["findings"]],
        "finetuned": finetuned,
        "probed": probes,
        **{name: before[name] for name in INSTRUMENTS if name in before},
    }
    tasks, instruments = trial.unscored_tasks(), trial.unused_instruments()
    trial.write(record)
    for name in instruments:
        instrument = INSTRUMENTS[name]
        results = instrument.measure(trial.run, trial.config, trial.eval_config)
        record[name] = {"source": instrument.source(trial.eval_config), **results}
        trial.write(record)
    for task in tasks:  # written after each task, so a failure loses no other score
        if trial.eval_config.finetune_seeds:
            finetuned[task] = finetune_trial(trial, task)
        if task not in probes:
            probes[task] = asdict(probe_task(trial, task))
        trial.write(record)


def finetune_trial(trial: Trial, task: str) -> dict[str, Any]:
    """Fine-tune on a task; return median and values of its main metric on dev over the fine-tuning seeds."""
    config = FinetuneConfig(
        task=task,
        model=str(trial.run),
        data=trial.eval_config.glue,
        seed=trial.config.seed,
        max_length=get_finetuning_length(trial.config),
        runtime=trial.config.runtime,
    )
    out = trial.out / "finetuned" / trial.variant / f"seed-{trial.config.seed}" / task
    summary = finetune(config, out, trial.eval_config.finetune_seeds)
    for model in out.glob("seed-*/model"):  # as large as the encoder, for every task
        shutil.rmtree(model)
    score = get_main_score(summary)
    return {"metric": summary["main_metric"], "median": score["median"], "values": score["values"]}


def get_finetuning_length(config: PretrainConfig) -> int:
    """Return the maximum tokens of an example: fine-tuning's default, at most the model's positions.

    Fine-tuning trains the positions that pre-training never reached.
    """
    return min(TextClassification.max_length, config.model.max_positions)


def probe_task(trial: Trial, task: str) -> ProbeScores:
    """Fit the linear probe of a task."""
    return probe(
        find_model_directory(str(trial.run)),
        trial.eval_config.glue,
        task,
        max_length=trial.config.seq_len,
        max_examples=trial.eval_config.probe_examples,
        device=trial.config.runtime,
    )
