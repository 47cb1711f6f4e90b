"""Export of a fine-tuned model as a Hugging Face directory, with `task.json` for inference and a model card."""

import json
import logging
from pathlib import Path, PurePath
from typing import Any

from electra.finetuning.model import FinetunedModel
from electra.finetuning.task import Task, TaskSpec
from electra.model.architecture import ARCHITECTURES
from electra.model.checkpoints import save_pretrained
from electra.model.model_card import ModelCard
from electra.storage import write_atomically, write_tensors
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

HEAD_FILE = "head.safetensors"
"""Weights of a head that no Hugging Face class has."""


def save_finetuned(directory: Path, model: FinetunedModel, task: Task, spec: TaskSpec, tokenizer: Tokenizer) -> None:
    """Write config.json, weights, tokenizer and `task.json`.

    If a Hugging Face class has the head (see `TaskSpec.export`), it reads the directory and computes the same logits; else the
    head is written to `head.safetensors`.
    """
    settings = dict(task.get_settings())
    exported = spec.export(model.head, settings)
    head, config = ("none", {}) if exported is None else (exported.kind, exported.config)
    state: dict[str, Any] = {f"encoder.{name}": tensor for name, tensor in model.encoder.state_dict().items()}
    state |= {} if exported is None else {f"head.{name}": tensor for name, tensor in exported.weights.items()}
    class_name = ARCHITECTURES[model.encoder.config.architecture].classes[head].name
    save_pretrained(directory, state, model.encoder.config, head, tokenizer.pad_id, dict(config))
    if exported is None:
        write_tensors(directory / HEAD_FILE, {name: tensor.cpu() for name, tensor in model.head.state_dict().items()})
        class_name += f", its head in {HEAD_FILE}: no class of Hugging Face has it"
    tokenizer.save(directory, model.encoder.config.max_positions)
    write_atomically(directory / "task.json", (json.dumps(settings, indent=2) + "\n").encode())
    spec.write_more(directory, model.encoder.config, settings)
    log.info(f"model saved in {directory} ({class_name})", extra={"code": "saved"})


def build_model_card(results: dict[str, Any], directory: Path, model: FinetunedModel) -> ModelCard:
    """Build the card of the model in `directory` from the content of `results.json`."""
    [class_name] = json.loads((directory / "config.json").read_text())["architectures"]
    encoder, hyperparameters = model.encoder.config, results["hyperparameters"]
    examples = ", ".join(f"{split} {data['examples']:,}" for split, data in results["data"].items())
    minutes, seconds = divmod(round(results["seconds"]), 60)
    start = results["start"]
    return ModelCard(
        title=f"ELECTRA, fine-tuned: {results['task']}",
        description=f"A text encoder fine-tuned on the task {results['task']}. `electra predict` reads this directory.",
        architecture=class_name,
        facts={
            "initialized from": PurePath(start).name if PurePath(start).is_absolute() else start,
            "examples": examples,
            "encoder": f"{encoder.num_layers} layers, width {encoder.hidden_size:,}, {encoder.num_heads} heads, "
            f"feed-forward {encoder.ffn_size:,}, {encoder.vocab_size:,} tokens",
            "parameters": f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.2f} M",
            "budget": f"{hyperparameters['epochs']:g} epochs, {results['steps']:,} steps, {minutes} min {seconds} s",
            "peak learning rate": f"{hyperparameters['learning_rate']:g}",
            "seed": str(results["seed"]),
            "selected": results["selected"],
            "hardware": results["hardware"],
        },
        metrics={
            f"{split}: {name}": f"{value:.2f}"
            for split, metrics in results["metrics"].items()
            for name, value in metrics.items()
        },
        metrics_title="Scores",
        pipeline_tag=PIPELINES.get(ARCHITECTURES[encoder.architecture].find_head(class_name) or ""),
    )


PIPELINES = {
    "sequence-classification": "text-classification",
    "token-classification": "token-classification",
    "question-answering": "question-answering",
}
"""Kind of head -> name of the transformers pipeline."""
