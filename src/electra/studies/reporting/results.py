"""What a study has found so far: a row for every variant and seed, and their means and spreads. Nothing is left out."""

import csv
import io
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from electra.studies.study import Study, Variant
from electra.studies.trial import Trial

Number = Callable[[Mapping[str, Any]], float | None]
"""One number out of a record, where it has it."""

TOLERANCE = 0.01
"""By how much what a run has spent may differ from its part of the budget."""


@dataclass(frozen=True)
class Spread:
    """A number over seeds."""

    mean: float
    std: float | None
    """None for one seed."""

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread | None":
        """Of some values; None if there are none."""
        if not values:
            return None
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


@dataclass(frozen=True)
class Outcome:
    """A variant with what its seeds have come to."""

    variant: Variant
    records: tuple[dict[str, Any], ...]
    """Of the seeds that are scored."""
    failed: Mapping[int, str]
    """The seeds that failed, and why."""
    missing: tuple[int, ...]
    """The seeds that were not run yet."""

    def values(self, number: Number) -> list[float]:
        """One number of each seed that has it."""
        return [float(value) for value in map(number, self.records) if value is not None]

    def spread(self, number: Number) -> Spread | None:
        """Its mean and standard deviation over the seeds."""
        return Spread.of(self.values(number))


@dataclass(frozen=True)
class Results:
    """A study and its outcomes."""

    study: Study
    scale: str
    tasks: tuple[str, ...]
    outcomes: tuple[Outcome, ...]

    @classmethod
    def collect(
        cls, study: Study, scale: str, tasks: tuple[str, ...], trials: Mapping[str, Sequence[Trial]]
    ) -> "Results":
        """What the trials of each variant have recorded."""
        outcomes = []
        for variant in study.variants:
            records = {trial.config.seed: trial.record() for trial in trials[variant.name]}
            known = {seed: record for seed, record in records.items() if record is not None}
            failed = {seed: record["failed"] for seed, record in known.items() if "failed" in record}
            done = tuple(record for record in known.values() if "finetuned" in record)
            missing = tuple(seed for seed in records if seed not in known)
            outcomes.append(Outcome(variant, done, failed, missing))
        return cls(study, scale, tasks, tuple(outcomes))

    @property
    def has_tags(self) -> bool:
        """Whether tags were probed for any run."""
        return any("tags" in record for outcome in self.outcomes for record in outcome.records)

    @property
    def has_finetuning(self) -> bool:
        """Whether any run was fine-tuned."""
        return any(record["finetuned"] for outcome in self.outcomes for record in outcome.records)

    def unscored_tasks(self, record: Mapping[str, Any]) -> list[str]:
        """What others are scored by, and this run is not yet."""
        tags = ["tags"] if self.has_tags and "tags" not in record else []
        return [task for task in self.tasks if task not in record["probed"]] + tags

    def off_budget(self) -> list[str]:
        """The runs that have spent more than 1 % more or less than their part of the budget, each in words."""
        found = []
        for outcome in self.outcomes:
            target = self.study.target(outcome.variant)
            for record in outcome.records if target is not None else ():
                spent = record["flops" if self.study.equal == "flops" else "step"]
                if abs(spent / target - 1) > TOLERANCE:
                    found.append(f"{outcome.variant.label}, seed {record['seed']}: {spent / target:.1%} of its budget")
        return found

    def finetuning_runs(self) -> dict[str, list[int]]:
        """How many fine-tuning runs the medians of each variant are of, by label; of seeds that differ, all numbers."""
        number = fewest_runs(self.tasks)
        runs = {each.variant.label: sorted({int(value) for value in each.values(number)}) for each in self.outcomes}
        return {label: counts for label, counts in runs.items() if counts}


def finetuned(task: str) -> Number:
    """The fine-tuned score of a task."""
    return lambda record: record["finetuned"].get(task, {}).get("median")


def fewest_runs(tasks: Sequence[str]) -> Number:
    """Fine-tuning runs whose median counts: the fewest of the tasks that are scored."""

    def fewest(record: Mapping[str, Any]) -> float | None:
        return min(
            (float(len(found["values"])) for task, found in record["finetuned"].items() if task in tasks), default=None
        )

    return fewest


def finetuning_std(task: str) -> Number:
    """Standard deviation over the fine-tuning runs of a task; None of one run."""

    def std(record: Mapping[str, Any]) -> float | None:
        values = record["finetuned"].get(task, {}).get("values", ())
        return statistics.stdev(values) if len(values) > 1 else None

    return std


def probed(task: str, which: str) -> Number:
    """The probe of a task: of the last layer or of the best one."""
    return lambda record: record["probed"].get(task, {}).get(which)


def average(score: Callable[[str], Number], tasks: Sequence[str]) -> Number:
    """The mean of a score over the tasks, where all of them have it."""

    def mean(record: Mapping[str, Any]) -> float | None:
        values = [value for task in tasks if (value := score(task)(record)) is not None]
        return statistics.fmean(values) if len(values) == len(tasks) else None

    return mean


def best_probe(task: str) -> Number:
    """The probe of the layer that cross-validation chose."""
    return probed(task, "best")


def last_probe(task: str) -> Number:
    """The probe of the last layer."""
    return probed(task, "last")


def heldout(name: str) -> Number:
    """A metric of pre-training on held-out text."""
    return lambda record: record["heldout"].get(name)


def best_layer(task: str) -> Number:
    """The layer that cross-validation chose."""
    return probed(task, "layer")


def embeddings_tags(record: Mapping[str, Any]) -> float | None:
    """The probe of tags: of the embeddings, which know a word's first token and its place."""
    return record["tags"]["layers"][0] if "tags" in record else None


def best_tags(record: Mapping[str, Any]) -> float | None:
    """The probe of tags: of the layer that cross-validation chose."""
    return record["tags"]["layers"][record["tags"]["layer"]] if "tags" in record else None


def last_tags(record: Mapping[str, Any]) -> float | None:
    """The probe of tags: of the last layer."""
    return record["tags"]["layers"][-1] if "tags" in record else None


def tags_layer(record: Mapping[str, Any]) -> float | None:
    """The layer that cross-validation chose for tags."""
    return float(record["tags"]["layer"]) if "tags" in record else None


def columns(tasks: Sequence[str]) -> dict[str, Number]:
    """Every score by its name in the CSV file."""
    return {
        "average": average(finetuned, tasks),
        **{task: finetuned(task) for task in tasks},
        "finetuning_runs": fewest_runs(tasks),
        **{f"finetuning_std_{task}": finetuning_std(task) for task in tasks},
        "probe_average": average(best_probe, tasks),
        **{f"probe_{task}": best_probe(task) for task in tasks},
        "probe_last_average": average(last_probe, tasks),
        **{f"probe_last_{task}": last_probe(task) for task in tasks},
        **{f"probe_layer_{task}": best_layer(task) for task in tasks},
        "tags_embeddings": embeddings_tags,
        "tags": best_tags,
        "tags_last": last_tags,
        "tags_layer": tags_layer,
    }


def csv_rows(results: Results) -> Iterator[dict[str, Any]]:
    """A row for every variant and seed, those that failed with their reason."""
    scores = columns(results.tasks)
    for outcome in results.outcomes:
        variant = outcome.variant
        about = {
            "study": results.study.name,
            "scale": results.scale,
            "variant": variant.name,
            "label": variant.label,
            "line": variant.line,
            "x": variant.x,
            "equal": results.study.equal,
            "target": results.study.target(variant),
            "published": variant.published,
        }
        for record in outcome.records:
            spent = {name: record[name] for name in ("flops", "step", "tokens", "seconds")}
            heldout = {f"heldout_{name}": value for name, value in record["heldout"].items()}
            given = {name: score(record) for name, score in scores.items()}
            reason = outcome.failed.get(record["seed"])
            finished = "scored in part" if results.unscored_tasks(record) else "done"
            status = finished if reason is None else f"failed: {reason}"
            yield {**about, "seed": record["seed"], "status": status, **spent, **given, **heldout}
        scored = {record["seed"] for record in outcome.records}
        for seed, reason in ((seed, reason) for seed, reason in outcome.failed.items() if seed not in scored):
            yield {**about, "seed": seed, "status": f"failed: {reason}"}
        for seed in outcome.missing:
            yield {**about, "seed": seed, "status": "not run"}


def to_csv(results: Results) -> str:
    """The CSV file; a value that a row does not have is empty."""
    rows = list(csv_rows(results))
    names = list(dict.fromkeys(name for row in rows for name in row))
    file = io.StringIO()
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()
