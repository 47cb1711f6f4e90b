"""A fine-tuned directory read back: ours, or anybody's of Hugging Face's ELECTRA classes."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import nn

from electra.errors import ModelError
from electra.finetuning.checks import OTHER_MODEL
from electra.finetuning.export import HEAD_FILE, PROBLEMS
from electra.finetuning.heads import HiddenLayerHead, SentenceHead
from electra.finetuning.hub import model_directory
from electra.finetuning.model import FinetunedModel
from electra.finetuning.squad_config import SpanConfig
from electra.finetuning.squad_heads import JointSpanHead, PlainSpanHead
from electra.finetuning.tagging import TaggingHead
from electra.model.encoder import Encoder, EncoderConfig
from electra.model.weights import Pretrained, check_finite, load_pretrained
from electra.text.coverage import CoverageMonitor
from electra.text.tokenizer import Tokenizer, load_tokenizer

KINDS = {
    "ElectraForSequenceClassification": "sentences",
    "ElectraForTokenClassification": "tagging",
    "ElectraForQuestionAnswering": "spans",
}


@dataclass(frozen=True)
class Finetuned:
    """A model that can predict."""

    model: FinetunedModel
    tokenizer: Tokenizer
    settings: dict[str, Any]
    """What the task said of itself (`Task.settings`), or what can be known of another's model."""
    coverage: CoverageMonitor
    """How well the vocabulary spells what the model reads."""


def load_finetuned(model: str) -> Finetuned:
    """Read a fine-tuned directory, `model/` in the directory of a run, or a hub model.

    Raises:
        ModelError: not fine-tuned, of another architecture, or with weights that are not finite.
    """
    directory = model_directory(model)
    pretrained = load_pretrained(directory)
    hf_config = json.loads((directory / "config.json").read_text())
    architecture = (hf_config.get("architectures") or ["none"])[0]
    settings = read_settings(directory, hf_config, architecture)
    if settings["task"] == "wnli" and "kind" not in settings:
        raise ModelError(f"{directory}: a model of WNLI's candidates predicts its test file while it is fine-tuned")
    sizes = replace(pretrained.config, dropout=0.0, attention_dropout=0.0)
    if (directory / HEAD_FILE).exists():
        weights = load_file(directory / HEAD_FILE)
        check_finite(directory / HEAD_FILE, weights)
        state = pretrained.state("ElectraModel") | {f"head.{name}": tensor for name, tensor in weights.items()}
        head = own_head(settings, sizes)
    else:
        state = pretrained.state(architecture)
        head = stock_head(architecture, pretrained)
    whole = FinetunedModel(Encoder(sizes), head)
    whole.load_state_dict(state)
    tokenizer = load_tokenizer(directory)
    return Finetuned(whole.eval(), tokenizer, settings, CoverageMonitor(tokenizer, "input", OTHER_MODEL))


def read_settings(directory: Path, hf_config: dict[str, Any], architecture: str) -> dict[str, Any]:
    """What is known of the task: from `task.json`, or from Hugging Face's configuration."""
    if (directory / "task.json").exists():
        return json.loads((directory / "task.json").read_text())
    if architecture not in KINDS:
        raise ModelError(f"{directory}: {architecture}, not a fine-tuned model; fine-tune it with electra finetune")
    # Two labels of no name are Hugging Face's default, which its configurations leave out.
    names = hf_config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    labels = [names[i] for i in sorted(names, key=int)]
    limit = hf_config["max_position_embeddings"]
    if KINDS[architecture] == "sentences":
        kinds = {problem: kind for kind, problem in PROBLEMS.items()}
        given = hf_config.get("problem_type")
        kind = kinds[given] if given else "regression" if len(labels) == 1 else "classification"
        return {"task": "sentences", "kind": kind, "labels": labels, "max_length": min(128, limit)}
    if KINDS[architecture] == "tagging":
        return {"task": "tagging", "labels": labels, "max_length": min(256, limit)}
    return {"task": "squad2", "span": {"head": "plain", "max_length": min(512, limit)}}


def stock_head(architecture: str, pretrained: Pretrained) -> nn.Module:
    """The head of one of Hugging Face's classes, of the size of its weights."""
    hidden, weights = pretrained.config.hidden_size, pretrained.weights
    if architecture == "ElectraForSequenceClassification":
        return HiddenLayerHead(hidden, len(weights["classifier.out_proj.bias"]))
    if architecture == "ElectraForTokenClassification":
        return TaggingHead(hidden, len(weights["classifier.bias"]))
    return PlainSpanHead(hidden)


def own_head(settings: dict[str, Any], sizes: EncoderConfig) -> nn.Module:
    """A head that no class of Hugging Face has."""
    if "span" in settings:
        return JointSpanHead(sizes.hidden_size, SpanConfig(**settings["span"]))
    return SentenceHead(settings["kind"], sizes.hidden_size, len(settings["labels"]), 0.0)
