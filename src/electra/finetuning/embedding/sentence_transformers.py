"""Directories of the library sentence-transformers: encoder, pooling, normalization.

Written in the layout of its versions 2 to 5, which later ones read; read also in that of version 6.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

from pydantic import Field, RootModel
from typing_extensions import TypedDict

from electra.errors import ModelError
from electra.finetuning.config import MIN_LENGTH
from electra.model.encoder import EncoderConfig
from electra.schema import read_json
from electra.storage import write_atomically

POOLING_MODES = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens"}
"""Keys of `classification.pooling.POOLINGS` without weights -> keys of 1_Pooling/config.json."""
MODULES = "modules.json"
Length = Annotated[int | float, Field(ge=MIN_LENGTH)] | None


@dataclass(frozen=True)
class Module:
    """An entry of modules.json."""

    type: str
    path: str

    @property
    def name(self) -> str:
        """Name of the class, without that of its module, which differs between versions."""
        return self.type.rpartition(".")[2]


class Modules(RootModel[list[Module]]):
    """Content of modules.json."""


class PoolingConfig(TypedDict, total=False):
    """Keys of 1_Pooling/config.json; the other keys are `pooling_mode_NAME`, whether a mode is used."""

    pooling_mode: str
    """Version 6."""


class TransformerConfig(TypedDict, total=False):
    """Keys of sentence_bert_config.json."""

    max_seq_length: Length
    do_lower_case: Literal[False] | None
    """Whether texts are lowercased before the tokenizer, which has an option of its own."""


class TokenizerConfig(TypedDict, total=False):
    """Keys of tokenizer_config.json."""

    model_max_length: Length


class ModelConfig(TypedDict, total=False):
    """Keys of config_sentence_transformers.json."""

    default_prompt_name: None


CONFIGS: dict[str, Any] = {
    "sentence_bert_config.json": TransformerConfig,
    "tokenizer_config.json": TokenizerConfig,
    "config_sentence_transformers.json": ModelConfig,
}
"""Files that may be missing, with their schemas."""


class VectorSettings(NamedTuple):
    """How vectors are computed from the hidden states of an encoder, apart from their normalization."""

    pooling: str
    """A key of `POOLING_MODES`."""
    max_length: int | None
    """Maximum tokens of a text; None: unknown."""


def write_modules(directory: Path, encoder: EncoderConfig, settings: Mapping[str, Any]) -> None:
    """Write the files that sentence-transformers needs beside a Hugging Face model, from the fields of `SavedEmbedding`."""
    names = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (name, path) in enumerate(names.items())
    ]
    modes = {key: settings["pooling"] == pooling for pooling, key in POOLING_MODES.items()}
    files: dict[str, Any] = {
        "1_Pooling/config.json": {"word_embedding_dimension": encoder.hidden_size, **modes},
        "2_Normalize/config.json": {},
        "sentence_bert_config.json": {"max_seq_length": settings["max_length"], "do_lower_case": False},
        "config_sentence_transformers.json": {
            "prompts": {},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
        MODULES: modules,
    }
    for name, content in files.items():
        write_atomically(directory / name, (json.dumps(content, indent=2) + "\n").encode())


def read_modules(directory: Path) -> VectorSettings:
    """Read the files that `write_modules` writes, or that the library wrote for the same modules.

    Raises:
        ModelError: a file is missing or malformed, or has a module or an option that this package does not have.
    """
    file = directory / MODULES
    modules = read_json(file, Modules, ModelError).root
    names = [module.name for module in modules]
    if names not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]) or modules[0].path:
        raise ModelError(
            "unknown-modules",
            f"{file}: has the modules {', '.join(names) or 'none'}; expected Transformer, Pooling, Normalize",
        )
    found: dict[str, Any] = {}
    for name, schema in CONFIGS.items():
        if (directory / name).exists():
            found |= cast("dict[str, Any]", read_json(directory / name, schema, ModelError))
    limits = (found.get(key) for key in ("max_seq_length", "model_max_length"))
    lengths = [int(limit) for limit in limits if limit is not None and limit <= 10**7]  # unknown is written as 10^30
    return VectorSettings(read_pooling(directory / "1_Pooling" / "config.json"), min(lengths, default=None))


def read_pooling(file: Path) -> str:
    """Read the kind of pooling.

    Raises:
        ModelError: the file is missing or malformed, or the pooling is another one than those of `POOLING_MODES`.
    """
    found: Mapping[str, Any] = read_json(file, PoolingConfig, ModelError)
    used = {key for key, value in found.items() if key.startswith("pooling_mode_") and value is True}
    used |= {f"pooling_mode_{found['pooling_mode']}"} if "pooling_mode" in found else set()
    for pooling, key in POOLING_MODES.items():
        if used in ({key}, {f"pooling_mode_{pooling}"}):
            return pooling
    shown = ", ".join(sorted(name.removeprefix("pooling_mode_") for name in used)) or "none"
    raise ModelError("unknown-pooling", f"{file}: the pooling is {shown}, expected one of {', '.join(POOLING_MODES)}")
