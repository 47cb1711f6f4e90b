"""Reversible tables of the weight names of Hugging Face's ELECTRA; reading and writing of Hugging Face directories."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from electra.errors import ModelError
from electra.model.architecture import ARCHITECTURES, HuggingFaceClass
from electra.model.encoder import EncoderConfig
from electra.model.hf_config import (
    COMMON_VALUES,
    CONFIG_BYTES,
    HuggingFaceConfig,
    count_layers,
    get_encoder_shapes,
    load_config,
)
from electra.model.weights_file import check_finite, convert_read_errors, find_weights_file, load_tensors
from electra.schema import read_json
from electra.storage import write_tensors

# Our key in config.json; transformers keeps it.
PRETRAINED_LENGTH = "pretrained_length"
PRETRAINING_HEADS = ("replaced-token", "masked-lm")
"""Kinds of heads, keys of `Architecture.classes`, of the objectives of this package."""


def map_hf_names(config: EncoderConfig, head: str) -> dict[str, tuple[str, ...]]:
    """Map each parameter of our network to its Hugging Face name, or to the names that it is the concatenation of."""
    architecture = ARCHITECTURES[config.architecture]
    prefix = architecture.model_type
    table = {
        f"encoder.{ours}": tuple(f"{prefix}.{name}" for name in hf) for ours, hf in architecture.encoder_weights.items()
    }
    if config.embedding_size == config.hidden_size:
        table.pop("encoder.project", None)
    names: dict[str, tuple[str, ...]] = {}
    for ours, theirs in (table | dict(architecture.classes[head].weights)).items():
        endings = ("",) if ours.endswith((".weight", ".bias")) else (".weight", ".bias")
        layers = range(config.num_layers) if "{i}" in ours else range(1)
        for i in layers:
            for ending in endings:
                names[ours.format(i=i) + ending] = tuple(name.format(i=i) + ending for name in theirs)
    return names


def to_hf(state: Mapping[str, Tensor], config: EncoderConfig, head: str) -> dict[str, Tensor]:
    """Convert the parameters of our network (`encoder.…`, `head.…`) to Hugging Face's names.

    Raises:
        ValueError: the architecture has no name for a parameter of the encoder, so that a directory would lack it.
    """
    weights, names = {}, map_hf_names(config, head)
    if unnamed := [name for name in state if name.startswith("encoder.") and name not in names]:
        raise ValueError(f"Architecture.encoder_weights of {config.architecture} lacks {', '.join(unnamed)}")
    for ours, theirs in names.items():
        for name, part in zip(theirs, state[ours].detach().cpu().chunk(len(theirs)), strict=True):
            weights[name] = part.contiguous()
    return weights


def from_hf(weights: Mapping[str, Tensor], config: EncoderConfig, head: str) -> dict[str, Tensor]:
    """Invert `to_hf`.

    Raises:
        KeyError: a weight is missing; the argument is its Hugging Face name.
    """
    names = map_hf_names(config, head)
    return {
        ours: weights[theirs[0]] if len(theirs) == 1 else torch.cat([weights[name] for name in theirs])
        for ours, theirs in names.items()
    }


def save_pretrained(
    directory: Path,
    state: Mapping[str, Tensor],
    config: EncoderConfig,
    head: str,
    pad_id: int,
    more: Mapping[str, Any] | None = None,
    other_heads: Mapping[str, Mapping[str, Tensor]] | None = None,
) -> None:
    """Write `config.json`, with the entries of `more`, and `model.safetensors` for Hugging Face's `from_pretrained`.

    `other_heads` (kind of head -> state of a network with the same encoder) are saved too: classes with these heads can load
    the directory.
    """
    architecture = ARCHITECTURES[config.architecture]
    names = architecture.config_names
    hf_config = {
        "architectures": [architecture.classes[head].name],
        "model_type": architecture.model_type,
        "hidden_act": COMMON_VALUES["hidden_act"],
        "pad_token_id": pad_id,
        "tie_word_embeddings": True,
        **architecture.config_values,
        **{theirs: size for ours, theirs in names.items() if (size := getattr(config, ours)) is not None},
        **(more or {}),
    }
    directory.mkdir(parents=True, exist_ok=True)
    weights = to_hf(state, config, head)
    for kind, other in (other_heads or {}).items():
        weights |= to_hf(other, config, kind)
    write_tensors(directory / "model.safetensors", weights, {"format": "pt"})
    (directory / "config.json").write_text(json.dumps(hf_config, indent=2, sort_keys=True) + "\n")


@dataclass(frozen=True)
class Pretrained:
    """Sizes and weights of a Hugging Face directory, under Hugging Face's names."""

    directory: Path
    config: EncoderConfig
    weights: dict[str, Tensor]

    def find_class(self, head: str) -> str:
        """Return the name of the Hugging Face class with a kind of head."""
        return ARCHITECTURES[self.config.architecture].classes[head].name

    def state(self, head: str) -> dict[str, Tensor]:
        """Return the weights under our names, for a network with a kind of head.

        Raises:
            ModelError: a weight is missing (most often the wrong kind of model) or not floating point, or output embeddings
                are other than the token embeddings.
        """
        try:
            state = from_hf(self.weights, self.config, head)
        except KeyError as missing:
            raise ModelError(
                "missing-weight", f"{self.directory}: no weight {missing}, which {self.find_class(head)} needs"
            ) from None
        output = self.weights.get(ARCHITECTURES[self.config.architecture].output_embeddings)
        if head == "masked-lm" and output is not None and not output.equal(state["encoder.embeddings.word.weight"]):
            raise ModelError(
                "untied-embeddings", f"{self.directory}: its output embeddings differ from its token embeddings"
            )
        for name, tensor in state.items():
            if not tensor.is_floating_point():
                raise ModelError(
                    "wrong-type", f"{self.directory}: {name} has the type {tensor.dtype}, expected floating point"
                )
        return state


def load_pretrained(directory: Path) -> Pretrained:
    """Read a Hugging Face directory of ELECTRA or BERT: `model.safetensors`, or the tensors in `pytorch_model.bin`.

    Raises:
        ModelError: no such directory, missing or broken config.json, another architecture, missing or broken weights,
            weights that are not finite, or sizes other than in config.json. It is raised before these sizes are allocated.
    """
    pretrained = Pretrained(directory, config := load_config(directory), load_weights(directory, config))
    check_shapes(pretrained)
    return pretrained


def check_shapes(pretrained: Pretrained) -> None:
    """Raise a `ModelError` if weights of the encoder are missing or do not have the sizes in `config.json`."""
    directory, config, weights = pretrained.directory, pretrained.config, pretrained.weights
    if config.num_layers > (layers := count_layers(weights, ARCHITECTURES[config.architecture])):
        raise ModelError(
            "wrong-layers",
            f"{directory / 'config.json'}: num_hidden_layers is {config.num_layers:,}, but the weights have {layers:,} layers",
        )
    names = map_hf_names(config, "none")
    for ours, shape in get_encoder_shapes(config).items():
        theirs = names[f"encoder.{ours}"]
        expected = (shape[0] // len(theirs), *shape[1:])
        for name in theirs:
            if name not in weights:
                raise ModelError(
                    "missing-weight", f"{directory}: no weight {name!r}, which {pretrained.find_class('none')} needs"
                )
            if (found := tuple(weights[name].shape)) != expected:
                raise ModelError(
                    "wrong-shape", f"{directory}: {name} has the shape {found}, expected {expected} from config.json"
                )
            if not weights[name].is_floating_point():
                raise ModelError(
                    "wrong-type", f"{directory}: {name} has the type {weights[name].dtype}, expected floating point"
                )


def read_pretrained_length(directory: Path) -> int | None:
    """Read the maximum sequence length of pre-training from `config.json`; None for models of other projects.

    Position embeddings beyond it were never trained.
    """
    return read_json(directory / "config.json", HuggingFaceConfig, ModelError, CONFIG_BYTES).get("pretrained_length")


def find_pretraining_heads(directory: Path, kinds: Collection[str] = PRETRAINING_HEADS) -> set[str]:
    """Return the kinds of heads, of those given, that a directory has; reads only weight names if the format allows it.

    Raises:
        ModelError: missing or broken weights.
    """
    file = find_weights_file(directory)
    if file.suffix == ".safetensors":
        with convert_read_errors(file), safe_open(file, "pt") as tensors:
            names = set(tensors.keys())
    else:
        names = set(load_weights(directory, load_config(directory)))
    architecture = ARCHITECTURES[load_config(directory).architecture]
    return {
        head
        for head in kinds & architecture.classes.keys()
        if any(
            architecture.rename_weight(name).startswith(get_head_prefix(architecture.classes[head])) for name in names
        )
    }


def get_head_prefix(hf_class: HuggingFaceClass) -> str:
    """Return the common start of the names of a head's weights."""
    first = next(iter(hf_class.weights.values()))[0]
    return first.partition(".")[0] + "."


def load_weights(directory: Path, config: EncoderConfig) -> dict[str, Tensor]:
    """Load the tensors of a Hugging Face directory on the CPU; floating point ones as float32.

    Raises:
        ModelError: there are none, they are damaged, or one is not finite.
    """
    file = find_weights_file(directory)
    weights = {
        name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in load_tensors(file).items()
    }
    check_finite(file, weights)
    architecture = ARCHITECTURES[config.architecture]
    is_bare = architecture.encoder_weights["embeddings.word.weight"][0] in weights  # an encoder without a head
    prefix = f"{architecture.model_type}." if is_bare else ""
    return {prefix + architecture.rename_weight(name): tensor for name, tensor in weights.items()}
