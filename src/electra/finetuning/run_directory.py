"""The run directory of fine-tuning: its files, its configuration and the checksums of its inputs.

OUT/results.json                     summary over the seeds, with baselines
OUT/report.html                      learning curves, scores and errors; its figures are in pictures/
OUT/random-weights/seed-N/           the same of random weights (`--baseline random`)
OUT/seed-N/config.yaml               configuration
OUT/seed-N/inputs.json               checksums of the files that were read
OUT/seed-N/checkpoints/              removed when the run is finished; see `electra.train.checkpoint`
OUT/seed-N/best.safetensors          weights of the best epoch (`--select best`), removed when the run is finished
OUT/seed-N/dev_scores.json           dev scores after each epoch
OUT/seed-N/metrics.jsonl             training loss and speed; events/ has the same for TensorBoard
OUT/seed-N/predictions-SPLIT.jsonl   a prediction per line
OUT/seed-N/logits-SPLIT.npy          float array [N, C], for tasks with ensembles
OUT/seed-N/model/                    the fine-tuned model
OUT/seed-N/results.json              scores, written last
"""

import json
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field, FiniteFloat
from typing_extensions import NotRequired, TypedDict

from electra.config.files import describe_difference
from electra.errors import RunError
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.registry import find_task
from electra.schema import JsonObject, read_json, read_object
from electra.storage import holds_files
from electra.train.checkpoint import checksum


class Confusion(TypedDict):
    """A confusion matrix of the first scored split: rows are labels, columns predictions."""

    labels: list[str]
    counts: list[list[int]]


class Residuals(TypedDict):
    """Numbers of the first examples of the first scored split."""

    targets: list[FiniteFloat]
    predicted: list[FiniteFloat]


class RunResults(TypedDict):
    """Content of `results.json` in the run directory of a seed."""

    task: str
    seed: int
    start: str
    main_metric: str
    metrics: Annotated[dict[str, dict[str, float]], Field(min_length=1)]
    hyperparameters: JsonObject
    data: JsonObject
    selected: str
    hardware: str
    versions: JsonObject
    baselines: dict[str, dict[str, float]]
    confusion: NotRequired[Confusion]
    residuals: NotRequired[Residuals]
    training_loss: NotRequired[float | None]
    chance_loss: NotRequired[float | None]


def read_results(out: Path) -> dict[str, Any]:
    """Read the results of the finished run in `out`.

    Raises:
        RunError: `results.json` is damaged, lacks the main metric, or is that of another seed.
    """
    file = out / "results.json"
    results = read_json(file, RunResults, RunError)
    split, metrics = next(iter(results["metrics"].items()))
    if results["main_metric"] not in metrics:
        raise RunError(
            "missing-metric", f"{file}: metrics.{split} has no {results['main_metric']!r}, the value of main_metric"
        )
    if out.name != f"seed-{results['seed']}":
        raise RunError("other-seed", f"{file}: has the results of seed {results['seed']}, expected those of {out.name}")
    return cast("dict[str, Any]", results)


@dataclass(frozen=True)
class InputChecksums:
    """Checksums of the files that a run reads."""

    files: dict[str, str]
    """Path -> SHA-256."""

    @classmethod
    def from_config(cls, config: FinetuneConfig, model: Path) -> "InputChecksums":
        """Compute the checksums of the model in the directory `model`, and of the local files of the task."""
        paths = [model / name for name in ("config.json", "model.safetensors", "pytorch_model.bin", "vocab.txt")]
        paths += [Path(name) for name in (config.train, config.dev, config.test) if name is not None]
        if config.data is not None and Path(config.data).is_dir():
            folders = find_task(config.task).list_data_folders(Path(config.data))
            paths += [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())]
        return cls({str(path): checksum(path) for path in paths if path.is_file()})

    def check(self, out: Path, config: FinetuneConfig) -> None:
        """Check that the run directory `out` is new or empty, or of a run with the same configuration and the same files.

        Raises:
            RunError: it has other files, another configuration, or a file has changed since the run began.
        """
        saved = out / "config.yaml"
        if not saved.exists():
            # inputs.json is written before config.yaml: a run that was killed between the two has done nothing yet.
            if out.is_file() or (holds_files(out) and {path.name for path in out.glob("[!.]*")} != {"inputs.json"}):
                raise RunError("not-run", f"{out}: not empty and not a run; choose another --out")
            return
        free = ("runtime.", "log_to", "baseline", "retry_failed_seeds")
        if (difference := describe_difference(saved, config, free)) is not None:
            raise RunError(
                "other-configuration", f"{out}: a run of another configuration: {difference}; choose another --out"
            )
        saved_files = read_object(out / "inputs.json", RunError)
        changed = [path for path in saved_files | self.files if saved_files.get(path) != self.files.get(path)]
        if changed:
            raise RunError(
                "changed-file", f"{out}: {changed[0]} has changed since this run began; choose another --out"
            )

    def to_json(self) -> bytes:
        """Return the content of `inputs.json`."""
        return (json.dumps(self.files, indent=2) + "\n").encode()


def make_paths_absolute(config: FinetuneConfig) -> FinetuneConfig:
    """Return the configuration with absolute paths, so that it does not depend on the working directory."""

    def make_absolute(source: str | None) -> str | None:
        return str(Path(source).absolute()) if source and Path(source).exists() else source

    return replace(
        config,
        model=make_absolute(config.model) or "",
        data=make_absolute(config.data),
        train=make_absolute(config.train),
        dev=make_absolute(config.dev),
        test=make_absolute(config.test),
    )


def summarize(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Summarize the results of several seeds; `metrics` has for each split and metric median, mean, std and values.

    Raises:
        RunError: the seeds have different metrics.
    """
    names = [{split: set(metrics) for split, metrics in result["metrics"].items()} for result in results]
    for result, found in zip(results, names, strict=True):
        if found != names[0]:
            seeds = f"{results[0]['seed']} and {result['seed']}"
            raise RunError("other-metrics", f"the results of seeds {seeds} have other metrics; choose another --out")
    spread: dict[str, Any] = {}
    for split, metrics in results[0]["metrics"].items():
        for name in metrics:
            values = [result["metrics"][split][name] for result in results]
            spread.setdefault(split, {})[name] = {
                "median": statistics.median(values),
                "mean": statistics.fmean(values),
                "std": statistics.stdev(values) if len(values) > 1 else None,
                "values": values,
            }
    shared = {
        key: results[0][key]
        for key in ("task", "start", "main_metric", "baselines", "hyperparameters", "data", "hardware", "versions")
    }
    by_seed = {"seeds": [result["seed"] for result in results], "selected": [result["selected"] for result in results]}
    return {**shared, **by_seed, "metrics": spread}


def get_medians(summary: dict[str, Any]) -> dict[str, float]:
    """Return the medians over seeds of the metrics of the first scored split."""
    return {name: each["median"] for name, each in next(iter(summary["metrics"].values())).items()}
