"""A fine-tuned model as a Hugging Face directory, with what `electra predict` needs to know of its task."""

import json
import logging
from pathlib import Path
from typing import Any

from torch import nn

from electra.finetuning.classification.heads import SentenceHead, as_hugging_face_classifier
from electra.finetuning.classification.wnli import WnliHead
from electra.finetuning.model import FinetunedModel
from electra.finetuning.qa.heads import PlainSpanHead
from electra.finetuning.tagging.task import TaggingHead
from electra.finetuning.task import Task
from electra.model.checkpoints import save_pretrained
from electra.storage import write_atomically, write_tensors
from electra.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


HEAD_FILE = "head.safetensors"
PROBLEMS = {
    "classification": "single_label_classification",
    "multilabel": "multi_label_classification",
    "regression": "regression",
}


def save_finetuned(directory: Path, model: FinetunedModel, task: Task, tokenizer: Tokenizer) -> None:
    """Write weights, tokenizer and `task.json`.

    The stock class of Hugging Face reads the model and gives the same logits, unless the head has no place there.
    """
    encoder = {f"encoder.{name}": tensor for name, tensor in model.encoder.state_dict().items()}
    architecture, head, more = stock_head(model.head, task)
    save_pretrained(directory, encoder | head, model.encoder.config, architecture, tokenizer.pad_id, more)
    if architecture == "ElectraModel":
        write_tensors(directory / HEAD_FILE, {name: tensor.cpu() for name, tensor in model.head.state_dict().items()})
        architecture += f", its head in {HEAD_FILE}: no class of Hugging Face has it"
    tokenizer.save(directory, model.encoder.config.max_positions)
    settings = {"task": task.name, **task.settings()}
    write_atomically(directory / "task.json", (json.dumps(settings, indent=2) + "\n").encode())
    log.info(f"model saved in {directory} ({architecture})")


def stock_head(head: nn.Module, task: Task) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The stock class for a head, its weights under our names, and what its config.json says beside the sizes."""
    if isinstance(head, SentenceHead):
        folded = as_hugging_face_classifier(*head.unscaled())
        if folded is None:
            return "ElectraModel", {}, {}
        labels = list(task.settings()["labels"]) or ["value"]
        return (
            "ElectraForSequenceClassification",
            {f"head.{name}": tensor for name, tensor in folded.items()},
            {**label_names(labels), "problem_type": PROBLEMS[head.kind]},
        )
    own = {f"head.{name}": tensor for name, tensor in head.state_dict().items()}
    if isinstance(head, TaggingHead):
        return "ElectraForTokenClassification", own, label_names(list(task.settings()["labels"]))
    if isinstance(head, WnliHead):
        return "ElectraForPreTraining", own, {}
    if isinstance(head, PlainSpanHead):
        return "ElectraForQuestionAnswering", own, {}
    return "ElectraModel", {}, {}


def label_names(labels: list[str]) -> dict[str, Any]:
    """Names of the logits as config.json has them."""
    return {
        "id2label": {str(i): label for i, label in enumerate(labels)},
        "label2id": {label: i for i, label in enumerate(labels)},
    }
