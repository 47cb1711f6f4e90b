"""A fine-tuned model as a Hugging Face directory, with `task.json` for inference."""

import json
import logging
from pathlib import Path
from typing import Any

from electra.finetuning.model import FinetunedModel
from electra.finetuning.task import Task, TaskSpec
from electra.model.checkpoints import save_pretrained
from electra.storage import write_atomically, write_tensors
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

HEAD_FILE = "head.safetensors"
"""The weights of a head that no class of Hugging Face has."""


def save_finetuned(directory: Path, model: FinetunedModel, task: Task, spec: TaskSpec, tokenizer: Tokenizer) -> None:
    """Write weights, tokenizer and `task.json`.

    The class of Hugging Face reads the model and computes the same logits, if there is one (see `TaskSpec.export`).
    """
    settings = dict(task.settings())
    exported = spec.export(model.head, settings)
    architecture, config = ("ElectraModel", {}) if exported is None else (exported.architecture, exported.config)
    state: dict[str, Any] = {f"encoder.{name}": tensor for name, tensor in model.encoder.state_dict().items()}
    state |= {} if exported is None else {f"head.{name}": tensor for name, tensor in exported.weights.items()}
    save_pretrained(directory, state, model.encoder.config, architecture, tokenizer.pad_id, dict(config))
    if exported is None:
        write_tensors(directory / HEAD_FILE, {name: tensor.cpu() for name, tensor in model.head.state_dict().items()})
        architecture += f", its head in {HEAD_FILE}: no class of Hugging Face has it"
    tokenizer.save(directory, model.encoder.config.max_positions)
    write_atomically(directory / "task.json", (json.dumps(settings, indent=2) + "\n").encode())
    log.info(f"model saved in {directory} ({architecture})")
