"""Sizes in Hugging Face's `config.json`: validation by a schema, and the shapes of weights that they imply."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor
from torch.overrides import TorchFunctionMode

from electra.config.checks import join_choices
from electra.errors import ModelError, UsageError
from electra.model.architecture import ARCHITECTURES, Architecture
from electra.model.encoder import Encoder, EncoderConfig
from electra.schema import read_json

CONFIG_BYTES = 16 << 20
"""Maximum size; a configuration with 100,000 label names has about 5 MB."""

# The upper limit keeps products of sizes within 64 bits; the sizes are then compared with those of the weights.
Size = Annotated[int, Field(ge=1, le=10**7)] | None
Share = Annotated[float, Field(ge=0, lt=1)] | None
Deviation = Annotated[float, Field(gt=0, le=1000)] | None


@dataclass(frozen=True)
class HuggingFaceConfig:
    """Keys of `config.json` that are read; missing or null ones have the default of `EncoderConfig`."""

    model_type: str | None = None
    hidden_act: str | None = None
    position_embedding_type: str | None = None
    vocab_size: Size = None
    embedding_size: Size = None
    hidden_size: Size = None
    num_hidden_layers: Size = None
    num_attention_heads: Size = None
    intermediate_size: Size = None
    max_position_embeddings: Size = None
    type_vocab_size: Size = None
    hidden_dropout_prob: Share = None
    attention_probs_dropout_prob: Share = None
    layer_norm_eps: Annotated[float, Field(ge=0, lt=1)] | None = None
    initializer_range: Deviation = None
    embedding_initializer_range: Deviation = None
    pretrained_length: Size = None
    """Written by this package only."""


def load_config(directory: Path) -> EncoderConfig:
    """Load the sizes in the `config.json` of a Hugging Face directory.

    Raises:
        ModelError: there is no such file, it does not match the schema, or it is of another architecture.
    """
    file = directory / "config.json"
    if not file.exists():
        raise ModelError(
            "not-model",
            f"{directory}: not a model directory, it has no config.json; name a run of electra or a Hugging Face model",
        )
    found = read_json(file, HuggingFaceConfig, ModelError, CONFIG_BYTES)
    types = {
        model_type: name
        for name, each in reversed(ARCHITECTURES.items())
        for model_type in (*each.readable_types, each.model_type)
    }
    name = types.get(found.model_type or "")
    if name is None:
        known_types = join_choices(sorted(map(repr, types), reverse=True))
        raise ModelError("unknown-model-type", f"{file}: model_type is {found.model_type!r}, expected {known_types}")
    if found.hidden_act not in ("gelu", None):
        raise ModelError(
            "unknown-activation", f"{file}: hidden_act is {found.hidden_act!r}; only the exact 'gelu' is supported"
        )
    if found.position_embedding_type not in ("absolute", None):
        raise ModelError(
            "unknown-positions",
            f"{file}: position_embedding_type is {found.position_embedding_type!r}; only 'absolute' is supported",
        )
    names = ARCHITECTURES[name].config_names
    known = {ours: value for ours, theirs in names.items() if (value := getattr(found, theirs)) is not None}
    default = EncoderConfig(architecture=name)
    if found.model_type in ARCHITECTURES[name].readable_types:
        default = replace(default, embedding_size=found.hidden_size or default.hidden_size)
    try:
        return replace(default, **known)
    except UsageError as error:
        raise ModelError(error.code, f"{file}: {error}") from None


def count_layers(names: Mapping[str, Tensor], architecture: Architecture) -> int:
    """Count the encoder layers in these weight names."""
    starts = {
        name.partition("{i}")[0] for names in architecture.encoder_weights.values() for name in names if "{i}" in name
    }
    pattern = rf"{architecture.model_type}\.(?:{'|'.join(map(re.escape, starts))})(\d{{1,9}})\."
    numbers = (re.match(pattern, name) for name in names)
    return max((int(number[1]) + 1 for number in numbers if number), default=0)


class SkipInitialization(TorchFunctionMode):
    """Skip the initialization of parameters: on the meta device it imports 800 modules."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call `func` unless it is from `torch.nn.init`."""
        given = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return given["tensor"] if "tensor" in given else args[0]
        return func(*args, **given)


@contextmanager
def use_meta_device() -> Iterator[None]:
    """Build modules in the block with parameters that have shapes but no memory."""
    with torch.device("meta"), SkipInitialization():
        yield


def get_encoder_shapes(config: EncoderConfig) -> dict[str, torch.Size]:
    """Return the shape of every parameter of an encoder: name in `Encoder` -> shape. This allocates no parameters."""
    with use_meta_device():
        return {name: parameter.shape for name, parameter in Encoder(config).named_parameters()}
