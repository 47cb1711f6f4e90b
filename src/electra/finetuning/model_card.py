"""The model card of a fine-tuned model."""

import json
from pathlib import Path, PurePath
from typing import Any

from electra.finetuning.model import FinetunedModel
from electra.model.model_card import ModelCard


def build_model_card(results: dict[str, Any], directory: Path, model: FinetunedModel) -> ModelCard:
    """The card of the model in `directory`, from what `results.json` will hold."""
    [architecture] = json.loads((directory / "config.json").read_text())["architectures"]
    encoder, protocol = model.encoder.config, results["protocol"]
    examples = ", ".join(f"{split} {data['examples']:,}" for split, data in results["data"].items())
    minutes, seconds = divmod(round(results["seconds"]), 60)
    start = results["start"]
    return ModelCard(
        title=f"ELECTRA, fine-tuned: {results['task']}",
        description=f"A text encoder fine-tuned on the task {results['task']}. `electra predict` reads this directory.",
        architecture=architecture,
        facts={
            "initialized from": PurePath(start).name if PurePath(start).is_absolute() else start,
            "examples": examples,
            "encoder": f"{encoder.num_layers} layers, width {encoder.hidden_size:,}, {encoder.num_heads} heads, "
            f"feed-forward {encoder.ffn_size:,}, {encoder.vocab_size:,} tokens",
            "parameters": f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.2f} M",
            "budget": f"{protocol['epochs']:g} epochs, {results['steps']:,} steps, {minutes} min {seconds} s",
            "peak learning rate": f"{protocol['learning_rate']:g}",
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
        pipeline_tag=PIPELINES.get(architecture),
    )


PIPELINES = {
    "ElectraForSequenceClassification": "text-classification",
    "ElectraForTokenClassification": "token-classification",
    "ElectraForQuestionAnswering": "question-answering",
}
