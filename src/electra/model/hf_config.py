"""Sizes in Hugging Face's `config.json`: validation by a schema, and the shapes of weights that they imply."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated, Any, cast

import torch
from pydantic import Field
from torch import Tensor
from torch.overrides import TorchFunctionMode
from typing_extensions import TypedDict

from electra.config.checks import join_choices
from electra.errors import ModelError, UsageError
from electra.model.architecture import ARCHITECTURES, Architecture
from electra.model.encoder import Encoder, EncoderConfig
from electra.schema import read_json, validate

CONFIG_BYTES = 16 << 20
"""Maximum size; a configuration with 100,000 label names has about 5 MB."""

# The upper limit keeps products of sizes within 64 bits; the sizes are then compared with those of the weights.
Size = Annotated[int, Field(ge=1, le=10**7)] | None
Share = Annotated[float, Field(ge=0, lt=1)] | None
Deviation = Annotated[float, Field(gt=0, le=1000)] | None


class HuggingFaceConfig(TypedDict, total=False):
    """Keys of `config.json` that are read for every architecture; a null one is a missing one."""

    model_type: str | None
    hidden_act: str | None
    position_embedding_type: str | None
    pretrained_length: Size
    """Written by this package only."""


FIELD_TYPES = {
    **dict.fromkeys(("vocab_size", "embedding_size", "hidden_size", "num_layers", "num_heads", "ffn_size"), Size),
    **dict.fromkeys(("max_positions", "type_vocab_size"), Size),
    **dict.fromkeys(("dropout", "attention_dropout"), Share),
    "layer_norm_eps": Annotated[float, Field(ge=0, lt=1)] | None,
    **dict.fromkeys(("initializer_range", "embedding_initializer_range"), Deviation),
}
"""Fields of `EncoderConfig` that `Architecture.config_names` can have -> type of the value in `config.json`. A field has its
default if the key is missing or null."""

COMMON_VALUES: dict[str, str | int | float] = {"hidden_act": "gelu", "position_embedding_type": "absolute"}
"""Keys of `config.json` -> the value of every architecture whose `config_values` have no other."""


@cache
def build_schema(names: tuple[tuple[str, str], ...]) -> Any:
    """Build the schema of the keys on the right of `Architecture.config_names`."""
    # typing does not know a TypedDict with computed keys.
    return TypedDict("EncoderKeys", {theirs: FIELD_TYPES[ours] for ours, theirs in names}, total=False)  # type: ignore


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
    found = cast("dict[str, Any]", read_json(file, HuggingFaceConfig, ModelError, CONFIG_BYTES))
    name = find_architecture(file, found)
    architecture = ARCHITECTURES[name]
    names = architecture.config_names
    values = validate(found, build_schema(tuple(names.items())), str(file), ModelError)
    known = {ours: value for ours, theirs in names.items() if (value := values.get(theirs)) is not None}
    if found["model_type"] in architecture.readable_types:
        known.setdefault("embedding_size", known.get("hidden_size", EncoderConfig.hidden_size))
    try:
        return EncoderConfig(**known, architecture=name)
    except UsageError as error:
        raise ModelError(error.code, f"{file}: {error}") from None


def find_architecture(file: Path, found: Mapping[str, Any]) -> str:
    """Find the architecture that reads a directory: the first one of its type whose values in `config.json` it has.

    Raises:
        ModelError: there is none; the message names the type or the value.
    """
    types = [
        (model_type, name)
        for name, each in ARCHITECTURES.items()
        for model_type in (each.model_type, *each.readable_types)
    ]
    names = [name for model_type, name in types if model_type == found.get("model_type")]
    if not names:
        known_types = join_choices(dict.fromkeys(repr(model_type) for model_type, _ in types))
        raise ModelError(
            "unknown-model-type", f"{file}: model_type is {found.get('model_type')!r}, expected {known_types}"
        )
    wrong = {name: find_other_values(found, ARCHITECTURES[name]) for name in names}
    if matching := [name for name in names if not wrong[name]]:
        return matching[0]
    key, expected = next(iter(wrong[names[0]].items()))
    raise ModelError(
        {"hidden_act": "unknown-activation", "position_embedding_type": "unknown-positions"}.get(key, "other-value"),
        f"{file}: {key} is {found[key]!r}; only {expected!r} is supported",
    )


def find_other_values(found: Mapping[str, Any], architecture: Architecture) -> dict[str, str | int | float]:
    """Find the keys whose value is not the architecture's, with the architecture's; missing and null ones are correct."""
    values = COMMON_VALUES | dict(architecture.config_values)
    return {key: value for key, value in values.items() if found.get(key) not in (value, None)}


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
