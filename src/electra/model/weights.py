"""Names of weights in Hugging Face's ELECTRA, as reversible tables, and Hugging Face directories."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from electra.errors import ModelError
from electra.model.encoder import EncoderConfig
from electra.storage import write_tensors

# Ours -> Hugging Face's; {i} is the layer. A row with several names on the right is their concatenation.
ENCODER_NAMES: dict[str, tuple[str, ...]] = {
    "embeddings.word.weight": ("embeddings.word_embeddings.weight",),
    "embeddings.position.weight": ("embeddings.position_embeddings.weight",),
    "embeddings.token_type.weight": ("embeddings.token_type_embeddings.weight",),
    "embeddings.norm": ("embeddings.LayerNorm",),
    "project": ("embeddings_project",),
    "layers.{i}.attention.qkv": (
        "encoder.layer.{i}.attention.self.query",
        "encoder.layer.{i}.attention.self.key",
        "encoder.layer.{i}.attention.self.value",
    ),
    "layers.{i}.attention.output": ("encoder.layer.{i}.attention.output.dense",),
    "layers.{i}.attention_norm": ("encoder.layer.{i}.attention.output.LayerNorm",),
    "layers.{i}.ffn.up": ("encoder.layer.{i}.intermediate.dense",),
    "layers.{i}.ffn.down": ("encoder.layer.{i}.output.dense",),
    "layers.{i}.ffn_norm": ("encoder.layer.{i}.output.LayerNorm",),
}
HEAD_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    "ElectraForPreTraining": {
        "head.dense": ("discriminator_predictions.dense",),
        "head.score": ("discriminator_predictions.dense_prediction",),
    },
    "ElectraForMaskedLM": {
        "head.dense": ("generator_predictions.dense",),
        "head.norm": ("generator_predictions.LayerNorm",),
        "head.bias": ("generator_lm_head.bias",),
    },
    "ElectraModel": {},
    "ElectraForSequenceClassification": {
        "head.dense": ("classifier.dense",),
        "head.project": ("classifier.out_proj",),
    },
    "ElectraForTokenClassification": {"head.output": ("classifier",)},
    "ElectraForQuestionAnswering": {"head.output": ("qa_outputs",)},
}
# A key of ours in config.json, which Hugging Face keeps.
PRETRAINED_LENGTH = "pretrained_length"
# EncoderConfig -> Hugging Face's config.json, which keeps names that it does not know.
CONFIG_NAMES = {
    "initializer_range": "initializer_range",
    "embedding_initializer_range": "embedding_initializer_range",
    "vocab_size": "vocab_size",
    "embedding_size": "embedding_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "ffn_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "layer_norm_eps": "layer_norm_eps",
}


def hf_names(config: EncoderConfig, architecture: str) -> dict[str, tuple[str, ...]]:
    """Every parameter of a network of ours -> its name, or the names it is the concatenation of, in Hugging Face's."""
    table = {f"encoder.{ours}": tuple(f"electra.{name}" for name in hf) for ours, hf in ENCODER_NAMES.items()}
    if config.embedding_size == config.hidden_size:
        del table["encoder.project"]
    names: dict[str, tuple[str, ...]] = {}
    for ours, theirs in (table | HEAD_NAMES[architecture]).items():
        endings = ("",) if ours.endswith((".weight", ".bias")) else (".weight", ".bias")
        layers = range(config.num_layers) if "{i}" in ours else range(1)
        for i in layers:
            for ending in endings:
                names[ours.format(i=i) + ending] = tuple(name.format(i=i) + ending for name in theirs)
    return names


def to_hf(state: Mapping[str, Tensor], config: EncoderConfig, architecture: str) -> dict[str, Tensor]:
    """Parameters of a network of ours (`encoder.…`, `head.…`) under Hugging Face's names."""
    weights = {}
    for ours, theirs in hf_names(config, architecture).items():
        for name, part in zip(theirs, state[ours].detach().cpu().chunk(len(theirs)), strict=True):
            weights[name] = part.contiguous()
    return weights


def from_hf(weights: Mapping[str, Tensor], config: EncoderConfig, architecture: str) -> dict[str, Tensor]:
    """The inverse of `to_hf`.

    Raises:
        KeyError: a weight is missing; the argument is its Hugging Face name.
    """
    return {
        ours: torch.cat([weights[name] for name in theirs]) for ours, theirs in hf_names(config, architecture).items()
    }


def save_pretrained(
    directory: Path,
    state: Mapping[str, Tensor],
    config: EncoderConfig,
    architecture: str,
    pad_id: int,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write `config.json` and `model.safetensors` so that Hugging Face's `from_pretrained(directory)` reads them.

    `more` goes into `config.json` too.
    """
    hf_config = {
        "architectures": [architecture],
        "model_type": "electra",
        "hidden_act": "gelu",
        "pad_token_id": pad_id,
        "tie_word_embeddings": True,
        **{theirs: value for ours, theirs in CONFIG_NAMES.items() if (value := getattr(config, ours)) is not None},
        **(more or {}),
    }
    directory.mkdir(parents=True, exist_ok=True)
    write_tensors(directory / "model.safetensors", to_hf(state, config, architecture), {"format": "pt"})
    (directory / "config.json").write_text(json.dumps(hf_config, indent=2, sort_keys=True) + "\n")


@dataclass(frozen=True)
class Pretrained:
    """A Hugging Face directory read: its sizes and its weights, under Hugging Face's names."""

    directory: Path
    config: EncoderConfig
    weights: dict[str, Tensor]

    def state(self, architecture: str) -> dict[str, Tensor]:
        """The weights under our names, for a network with the heads of `architecture`.

        Raises:
            ModelError: a weight is missing (the wrong kind of model, most often).
        """
        try:
            return from_hf(self.weights, self.config, architecture)
        except KeyError as missing:
            raise ModelError(f"{self.directory}: no weight {missing}, which {architecture} needs") from None


def load_pretrained(directory: Path) -> Pretrained:
    """Read a Hugging Face ELECTRA directory (`model.safetensors` or `pytorch_model.bin`; nothing is unpickled freely).

    Raises:
        ModelError: no such directory, no or broken config.json, another architecture, no or broken weights, or weights that
            are not finite.
    """
    return Pretrained(directory, load_config(directory), load_weights(directory))


def load_config(directory: Path) -> EncoderConfig:
    """The sizes in a Hugging Face directory's `config.json`."""
    file = directory / "config.json"
    try:
        hf_config: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        raise ModelError(f"{directory}: not a model directory, it has no config.json") from None
    except (ValueError, OSError) as error:
        raise ModelError(f"{file}: cannot be read ({error})") from None
    if hf_config.get("model_type") != "electra":
        raise ModelError(f"{file}: model_type is {hf_config.get('model_type')!r}, expected 'electra'")
    if hf_config.get("hidden_act", "gelu") != "gelu":
        raise ModelError(f"{file}: hidden_act is {hf_config['hidden_act']!r}; only the exact 'gelu' is supported")
    known = {ours: hf_config[theirs] for ours, theirs in CONFIG_NAMES.items() if theirs in hf_config}
    return replace(EncoderConfig(), **known)


def read_pretrained_length(directory: Path) -> int | None:
    """Tokens of the longest sequences of pre-training, as our `config.json` has it; None of other people's models.

    Positions behind them have embeddings that were never trained.
    """
    length = json.loads((directory / "config.json").read_text()).get(PRETRAINED_LENGTH)
    return length if isinstance(length, int) else None


def pretraining_heads(directory: Path) -> set[str]:
    """Which of the pre-training architectures a directory has the head of; their names alone are read where that is enough.

    Raises:
        ModelError: no or broken weights.
    """
    file = directory / "model.safetensors"
    if file.exists():
        with readable(file), safe_open(file, "pt") as tensors:
            names = set(tensors.keys())
    else:
        names = set(load_weights(directory))
    prefixes = {"ElectraForPreTraining": "discriminator_predictions.", "ElectraForMaskedLM": "generator_predictions."}
    return {architecture for architecture, prefix in prefixes.items() if any(n.startswith(prefix) for n in names)}


@contextmanager
def readable(file: Path) -> Iterator[None]:
    """Turn what goes wrong when a file of weights is read into a `ModelError`."""
    try:
        yield
    except FileNotFoundError:
        raise ModelError(f"{file.parent}: neither model.safetensors nor pytorch_model.bin is there") from None
    except UnpicklingError:
        raise ModelError(f"{file}: holds more than tensors, and nothing else is loaded from it") from None
    except (SafetensorError, OSError, RuntimeError, ValueError, EOFError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(f"{file}: cannot be read ({reason})") from None


def check_finite(file: Path, weights: Mapping[str, Tensor]) -> None:
    """Refuse weights that a diverged training or a damaged file left.

    Raises:
        ModelError: a tensor of the file holds NaN or infinity; the first one is named.
    """
    for name, tensor in weights.items():
        # A sum reads each value once and needs no memory. Where it is finite, all its terms are.
        if not tensor.sum().isfinite() and (wrong := int((~tensor.isfinite()).sum())):
            raise ModelError(
                f"{file}: {name}: {wrong:,} of {tensor.numel():,} values are NaN or infinite, expected finite numbers; "
                "the training diverged or the file is damaged: take an earlier checkpoint, or another copy"
            )


def load_weights(directory: Path) -> dict[str, Tensor]:
    """The tensors of a Hugging Face directory, on the CPU, in float32. Raises ModelError where one of them is not finite."""
    file = directory / "model.safetensors"
    file = file if file.exists() else directory / "pytorch_model.bin"
    with readable(file):
        is_pickle = file.suffix == ".bin"
        weights = torch.load(file, map_location="cpu", weights_only=True) if is_pickle else load_file(file)
    weights = {name: tensor.float() for name, tensor in weights.items()}
    check_finite(file, weights)
    # Old TensorFlow conversions call LayerNorm's two vectors gamma and beta; a bare ElectraModel has no prefix.
    prefix = "electra." if "embeddings.word_embeddings.weight" in weights else ""
    return {
        prefix + name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): tensor
        for name, tensor in weights.items()
    }
