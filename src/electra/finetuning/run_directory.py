"""The directory of a fine-tuning run: whose configuration it has, and from which files it was made.

OUT/results.json            scores over the seeds
OUT/seed-N/config.yaml      the configuration; inputs.json the checksums of the files that were read
OUT/seed-N/checkpoints/     until the run is finished; see train.checkpoint
OUT/seed-N/metrics.jsonl    losses; events/ holds the same for TensorBoard
OUT/seed-N/predictions-SPLIT.jsonl, logits-SPLIT.npy
OUT/seed-N/model/           the fine-tuned model
OUT/seed-N/results.json     written last: the run is finished
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import Field
from typing_extensions import TypedDict

from electra.config.files import difference_to
from electra.errors import RunError
from electra.finetuning.classification.glue import GLUE
from electra.finetuning.config import FinetuneConfig
from electra.schema import JsonObject, read_json, read_object
from electra.storage import holds_files
from electra.train.checkpoint import checksum


class RunResults(TypedDict):
    """`results.json` of a run; that of several seeds is only written."""

    task: str
    seed: int
    start: str
    main_metric: str
    metrics: Annotated[dict[str, dict[str, float]], Field(min_length=1)]
    protocol: JsonObject
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
        raise RunError(f"{file}: metrics.{split} has no {results['main_metric']!r}, which main_metric names")
    if out.name != f"seed-{results['seed']}":
        raise RunError(f"{file}: is that of seed {results['seed']}")
    return cast("dict[str, Any]", results)


@dataclass(frozen=True)
class RunInputs:
    """What a run reads: SHA-256 by file."""

    files: dict[str, str]

    @classmethod
    def of(cls, config: FinetuneConfig, model: Path) -> "RunInputs":
        """The weights in `model`, and the files of the task as far as they lie on this machine."""
        paths = [model / name for name in ("config.json", "model.safetensors", "pytorch_model.bin", "vocab.txt")]
        paths += [Path(name) for name in (config.train, config.dev, config.test) if name is not None]
        if config.data is not None and Path(config.data).is_dir():
            name = "mnli" if config.task == "ax" else config.task
            names = (
                (GLUE[name].folder, name, *(("AX", "diagnostic") if name == "mnli" else ())) if name in GLUE else (".",)
            )
            folders = [Path(config.data) / each for each in names]
            paths += [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())]
        return cls({str(path): checksum(path) for path in paths if path.is_file()})

    def check(self, out: Path, config: FinetuneConfig) -> None:
        """See that a directory is new, or holds a run of the same configuration from the same files.

        Raises:
            RunError: it is another run, or holds other things.
        """
        saved = out / "config.yaml"
        if not saved.exists():
            # inputs.json is written before config.yaml: a run that was killed between the two has begun nothing.
            if out.is_file() or (holds_files(out) and {path.name for path in out.glob("[!.]*")} != {"inputs.json"}):
                raise RunError(f"{out}: not empty and not a run; choose another --out")
            return
        if (difference := difference_to(saved, config, ("runtime.",))) is not None:
            raise RunError(f"{out}: a run of another configuration: {difference}; choose another --out")
        before = read_object(out / "inputs.json", RunError)
        changed = [path for path in before | self.files if before.get(path) != self.files.get(path)]
        if changed:
            raise RunError(f"{out}: {changed[0]} has changed since this run began; choose another --out")

    def to_json(self) -> bytes:
        """As it is saved."""
        return (json.dumps(self.files, indent=2) + "\n").encode()


def with_absolute_paths(config: FinetuneConfig) -> FinetuneConfig:
    """The configuration as it is saved: it means the same files from any folder."""

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
