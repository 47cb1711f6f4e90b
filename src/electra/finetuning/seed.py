"""The run of one seed: its outputs and scores, and what it saves when it is trained."""

import json
import logging
import platform
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import electra
from electra.execution import describe_execution
from electra.finetuning.config import FinetuneConfig
from electra.finetuning.export import build_model_card, save_finetuned
from electra.finetuning.model import FinetunedModel
from electra.finetuning.preparation import PreparedInputs
from electra.model.model_card import write_model_card
from electra.runtime.setup import Runtime
from electra.storage import convert_os_errors, write_atomically

log = logging.getLogger(__name__)

EVAL_BATCH_SIZE = 64


@dataclass(frozen=True)
class Run:
    """The run of one seed."""

    config: FinetuneConfig
    out: Path
    """Run directory, `OUT/seed-N`."""
    prepared: PreparedInputs
    model: FinetunedModel
    runtime: Runtime

    def compute_outputs(self, split: str) -> list[dict[str, np.ndarray]]:
        """Compute the outputs of the head for the examples of a split with the current weights."""
        pad_id = self.prepared.tokenizer.pad_id
        return self.model.compute_outputs(self.prepared.examples[split], self.runtime, EVAL_BATCH_SIZE, pad_id)

    def score_dev(self) -> float:
        """Compute the task's main metric on dev, in percent, with the current weights."""
        task = self.prepared.task
        return task.score("dev", self.compute_outputs("dev"))[task.main_metric]


def score_and_save(run: Run, facts: dict[str, Any]) -> dict[str, Any]:
    """Score and predict the splits, save the model, and write the results last: then the run is finished."""
    config, prepared, task, out = run.config, run.prepared, run.prepared.task, run.out
    metrics, errors = {}, {}
    for split in (*task.scored_splits, *task.predicted_splits):
        outputs = run.compute_outputs(split)
        if split in task.scored_splits:
            metrics[split] = task.score(split, outputs)
        if split == task.scored_splits[0]:
            errors = prepared.spec.describe_errors(task, split, outputs)
        lines = "".join(
            json.dumps(prediction, ensure_ascii=False) + "\n" for prediction in task.format_predictions(split, outputs)
        )
        write_atomically(out / f"predictions-{split}.jsonl", lines.encode())
        if (logits := task.get_logits(split, outputs)) is not None:
            with convert_os_errors(out):
                np.save(out / f"logits-{split}.npy", logits)
    save_finetuned(out / "model", run.model, task, prepared.spec, prepared.tokenizer)
    results = {
        "task": config.task,
        "seed": config.seed,
        "start": "random weights" if config.from_scratch else config.model,
        "main_metric": task.main_metric,
        "metrics": metrics,
        "baselines": {} if config.baseline == "none" else prepared.baselines,
        "chance_loss": prepared.chance_loss,
        "hyperparameters": asdict(prepared.hyperparameters),
        "data": {split: {"examples": len(each), **each.counts} for split, each in prepared.examples.items()},
        **facts,
        **errors,
        "hardware": describe_execution(run.model, run.runtime),
        "versions": {"electra": electra.__version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    write_model_card(out / "model", build_model_card(results, out / "model", run.model))
    write_atomically(out / "results.json", (json.dumps(results, indent=2) + "\n").encode())
    remove_leftovers(out)
    shown = ", ".join(f"{name} {value:.1f}" for name, value in metrics[task.scored_splits[0]].items())
    log.info(
        f"{config.task} seed {config.seed}: {task.scored_splits[0]} {shown} ({facts['selected']})",
        extra={"code": "score"},
    )
    return results


def remove_leftovers(out: Path) -> None:
    """Remove the checkpoints of a finished run; a run that was killed right after it finished still has them."""
    for name in ("checkpoints", "best.safetensors"):
        path = out / name
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
