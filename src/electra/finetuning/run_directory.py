"""The directory of a fine-tuning run, its configuration and the checksums of its inputs.

OUT/results.json            scores over the seeds
OUT/seed-N/config.yaml      the configuration; inputs.json: checksums of the files that were read
OUT/seed-N/checkpoints/     until the run is finished; see train.checkpoint
OUT/seed-N/metrics.jsonl    losses; events/: the same for TensorBoard
OUT/seed-N/predictions-SPLIT.jsonl, logits-SPLIT.npy
OUT/seed-N/model/           the fine-tuned model
OUT/seed-N/results.json     written last, when the run is finished
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field
from typing_extensions import TypedDict

from electra.config.files import describe_difference
from electra.errors import RunError
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.registry import find_task
from electra.schema import JsonObject, read_json, read_object
from electra.storage import holds_files
from electra.train.checkpoint import checksum


class RunResults(TypedDict):
    """`results.json` of a run; that of several seeds is never read."""

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


def read_results(out: Path) -> dict[str, Any]:
    """The results of the finished run in `out`.

    Raises:
        RunError: `results.json` is damaged, or that of another run.
    """
    file = out / "results.json"
    results = read_json(file, RunResults, RunError)
    split, metrics = next(iter(results["metrics"].items()))
    if results["main_metric"] not in metrics:
        raise RunError(
            "missing-metric", f"{file}: metrics.{split} has no {results['main_metric']!r}, which main_metric names"
        )
    if out.name != f"seed-{results['seed']}":
        raise RunError("other-seed", f"{file}: is that of seed {results['seed']}")
    return cast("dict[str, Any]", results)


@dataclass(frozen=True)
class RunInputs:
    """The inputs of a run: SHA-256 by file."""

    files: dict[str, str]

    @classmethod
    def from_config(cls, config: FinetuneConfig, model: Path) -> "RunInputs":
        """The weights in `model`, and the local files of the task."""
        paths = [model / name for name in ("config.json", "model.safetensors", "pytorch_model.bin", "vocab.txt")]
        paths += [Path(name) for name in (config.train, config.dev, config.test) if name is not None]
        if config.data is not None and Path(config.data).is_dir():
            folders = find_task(config.task).data_folders(Path(config.data))
            paths += [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())]
        return cls({str(path): checksum(path) for path in paths if path.is_file()})

    def check(self, out: Path, config: FinetuneConfig) -> None:
        """Check that a directory is new, or a run of the same configuration from the same files.

        Raises:
            RunError: it is another run, or has other files.
        """
        saved = out / "config.yaml"
        if not saved.exists():
            # inputs.json is written before config.yaml: a run that was killed between the two has done nothing yet.
            if out.is_file() or (holds_files(out) and {path.name for path in out.glob("[!.]*")} != {"inputs.json"}):
                raise RunError("not-run", f"{out}: not empty and not a run; choose another --out")
            return
        if (difference := describe_difference(saved, config, ("runtime.", "log_to"))) is not None:
            raise RunError(
                "other-configuration", f"{out}: a run of another configuration: {difference}; choose another --out"
            )
        before = read_object(out / "inputs.json", RunError)
        changed = [path for path in before | self.files if before.get(path) != self.files.get(path)]
        if changed:
            raise RunError(
                "changed-file", f"{out}: {changed[0]} has changed since this run began; choose another --out"
            )

    def to_json(self) -> bytes:
        """The content of `inputs.json`."""
        return (json.dumps(self.files, indent=2) + "\n").encode()


def with_absolute_paths(config: FinetuneConfig) -> FinetuneConfig:
    """The configuration with absolute paths, which is valid in any working directory."""

    def absolute(source: str | None) -> str | None:
        return str(Path(source).absolute()) if source and Path(source).exists() else source

    return replace(
        config,
        model=absolute(config.model) or "",
        data=absolute(config.data),
        train=absolute(config.train),
        dev=absolute(config.dev),
        test=absolute(config.test),
    )
