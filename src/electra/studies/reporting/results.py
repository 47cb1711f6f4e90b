"""Results of a study so far: a row per variant and seed, including failed and missing ones; means and deviations."""

import csv
import io
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from electra.studies.compute import compute_hardware_share
from electra.studies.instruments import INSTRUMENTS
from electra.studies.reporting.scores import Number, extract_fewest_runs, list_columns
from electra.studies.study import Study, Variant
from electra.studies.trial import Trial

TOLERANCE = 0.01
"""Tolerated relative difference between a run's compute and its share of the budget."""


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over seeds."""

    mean: float
    std: float | None
    """None for one seed."""

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread | None":
        """Compute the spread of values; None if there are none."""
        if not values:
            return None
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


@dataclass(frozen=True)
class Outcome:
    """A variant with the results of its seeds."""

    variant: Variant
    records: tuple[dict[str, Any], ...]
    """Records of the scored seeds, each with the FLOPs that hardware computes, `hardware_flops`."""
    failed: Mapping[int, str]
    """Reasons of failures by seed."""
    missing: tuple[int, ...]
    """Seeds that were not run yet."""

    def values(self, number: Number) -> list[float]:
        """Extract a number for each seed that has it."""
        return [float(value) for value in map(number, self.records) if value is not None]

    def spread(self, number: Number) -> Spread | None:
        """Compute mean and standard deviation of a number over the seeds."""
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
        """Collect the records of all trials."""
        return cls.gather(
            study,
            scale,
            tasks,
            {name: {trial.config.seed: trial.record() for trial in row} for name, row in trials.items()},
        )

    @classmethod
    def gather(
        cls,
        study: Study,
        scale: str,
        tasks: tuple[str, ...],
        records: Mapping[str, Mapping[int, dict[str, Any] | None]],
    ) -> "Results":
        """Gather outcomes from the records by variant and seed; None is a seed that was not run."""
        outcomes = []
        for variant in study.variants:
            known = {seed: record for seed, record in records[variant.name].items() if record is not None}
            failed = {seed: record["failed"] for seed, record in known.items() if "failed" in record}
            share = compute_hardware_share(variant.config)
            done = tuple(
                record | {"hardware_flops": record["flops"] * share}
                for record in known.values()
                if "finetuned" in record
            )
            missing = tuple(seed for seed in records[variant.name] if seed not in known)
            outcomes.append(Outcome(variant, done, failed, missing))
        return cls(study, scale, tasks, tuple(outcomes))

    def has(self, instrument: str) -> bool:
        """Whether any run has a score by an instrument."""
        return any(instrument in record for outcome in self.outcomes for record in outcome.records)

    @property
    def has_finetuning(self) -> bool:
        """Whether any run was fine-tuned."""
        return any(record["finetuned"] for outcome in self.outcomes for record in outcome.records)

    def unscored_tasks(self, record: Mapping[str, Any]) -> list[str]:
        """List the scores that other runs have and this one does not."""
        instruments = [name for name in INSTRUMENTS if self.has(name) and name not in record]
        return [task for task in self.tasks if task not in record["probed"]] + instruments

    def find_off_budget(self) -> dict[tuple[str, int], float]:
        """Find the runs whose compute differs by more than 1 % from their share of the budget.

        Returns:
            (label of the variant, seed) -> compute relative to that share.
        """
        found = {}
        for outcome in self.outcomes:
            target = self.study.target(outcome.variant)
            for record in outcome.records if target is not None else ():
                spent = record["flops" if self.study.equal == "flops" else "step"]
                if abs(spent / target - 1) > TOLERANCE:
                    found[outcome.variant.label, record["seed"]] = spent / target
        return found

    def finetuning_runs(self) -> dict[str, list[int]]:
        """Return the numbers of fine-tuning runs per median, by label of the variant; all numbers if seeds differ."""
        number = extract_fewest_runs(self.tasks)
        runs = {each.variant.label: sorted({int(value) for value in each.values(number)}) for each in self.outcomes}
        return {label: counts for label, counts in runs.items() if counts}


def build_csv_rows(results: Results) -> Iterator[dict[str, Any]]:
    """Yield a row per variant and seed; a failed one has the reason."""
    scores = list_columns(results.tasks)
    for outcome in results.outcomes:
        variant = outcome.variant
        common = {
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
            spent = {name: record[name] for name in ("flops", "hardware_flops", "step", "tokens", "seconds")}
            heldout = {f"heldout_{name}": value for name, value in record["heldout"].items()}
            given = {name: score(record) for name, score in scores.items()}
            reason = outcome.failed.get(record["seed"])
            finished = "scored in part" if results.unscored_tasks(record) else "done"
            status = finished if reason is None else f"failed: {reason}"
            yield {**common, "seed": record["seed"], "status": status, **spent, **given, **heldout}
        scored = {record["seed"] for record in outcome.records}
        for seed, reason in ((seed, reason) for seed, reason in outcome.failed.items() if seed not in scored):
            yield {**common, "seed": seed, "status": f"failed: {reason}"}
        for seed in outcome.missing:
            yield {**common, "seed": seed, "status": "not run"}


def to_csv(results: Results) -> str:
    """Format the CSV file; a missing value is empty."""
    rows = list(build_csv_rows(results))
    names = list(dict.fromkeys(name for row in rows for name in row))
    file = io.StringIO()
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()
