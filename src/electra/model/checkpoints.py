"""Reversible tables of the weight names of Hugging Face's ELECTRA; reading and writing of Hugging Face directories."""

import json
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from electra.errors import ModelError
from electra.external import one_line
from electra.model.architecture import ARCHITECTURES, HuggingFaceClass
from electra.model.encoder import EncoderConfig
from electra.model.hf_config import (
    CONFIG_BYTES,
    HuggingFaceConfig,
    count_layers,
    get_encoder_shapes,
    load_config,
)
from electra.schema import check_file, read_json, read_tensors
from electra.storage import write_tensors

# Our key in config.json; transformers keeps it.
PRETRAINED_LENGTH = "pretrained_length"


def map_hf_names(config: EncoderConfig, head: str) -> dict[str, tuple[str, ...]]:
    """Map each parameter of our network to its Hugging Face name, or to the names that it is the concatenation of."""
    architecture = ARCHITECTURES[config.architecture]
    prefix = architecture.model_type
    table = {
        f"encoder.{ours}": tuple(f"{prefix}.{name}" for name in hf) for ours, hf in architecture.encoder_weights.items()
    }
    if config.embedding_size == config.hidden_size:
        del table["encoder.project"]
    names: dict[str, tuple[str, ...]] = {}
    for ours, theirs in (table | dict(architecture.classes[head].weights)).items():
        endings = ("",) if ours.endswith((".weight", ".bias")) else (".weight", ".bias")
        layers = range(config.num_layers) if "{i}" in ours else range(1)
        for i in layers:
            for ending in endings:
                names[ours.format(i=i) + ending] = tuple(name.format(i=i) + ending for name in theirs)
    return names


def to_hf(state: Mapping[str, Tensor], config: EncoderConfig, head: str) -> dict[str, Tensor]:
    """Convert the parameters of our network (`encoder.…`, `head.…`) to Hugging Face's names."""
    weights = {}
    for ours, theirs in map_hf_names(config, head).items():
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
) -> None:
    """Write `config.json`, with the entries of `more`, and `model.safetensors` for Hugging Face's `from_pretrained`."""
    architecture = ARCHITECTURES[config.architecture]
    names = architecture.config_names
    hf_config = {
        "architectures": [architecture.classes[head].name],
        "model_type": architecture.model_type,
        "hidden_act": "gelu",
        "pad_token_id": pad_id,
        "tie_word_embeddings": True,
        **{theirs: size for ours, theirs in names.items() if (size := getattr(config, ours)) is not None},
        **(more or {}),
    }
    directory.mkdir(parents=True, exist_ok=True)
    write_tensors(directory / "model.safetensors", to_hf(state, config, head), {"format": "pt"})
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
            ModelError: a weight is missing (most often the wrong kind of model) or not floating point.
        """
        try:
            state = from_hf(self.weights, self.config, head)
        except KeyError as missing:
            raise ModelError(
                "missing-weight", f"{self.directory}: no weight {missing}, which {self.find_class(head)} needs"
            ) from None
        for name, tensor in state.items():
            if not tensor.is_floating_point():
                raise ModelError(
                    "wrong-type", f"{self.directory}: {name} has the type {tensor.dtype}, expected floating point"
                )
        return state


def load_pretrained(directory: Path) -> Pretrained:
    """Read a Hugging Face ELECTRA directory (`model.safetensors` or `pytorch_model.bin`, of which only tensors are unpickled).

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
    return read_json(directory / "config.json", HuggingFaceConfig, ModelError, CONFIG_BYTES).pretrained_length


def find_pretraining_heads(directory: Path) -> set[str]:
    """Return the kinds of pre-training heads that a directory has; reads only weight names if the format allows it.

    Raises:
        ModelError: missing or broken weights.
    """
    file = find_weights_file(directory)
    if file.suffix == ".safetensors":
        with convert_read_errors(file), safe_open(file, "pt") as tensors:
            names = set(tensors.keys())
    else:
        names = set(load_weights(directory, load_config(directory)))
    classes = ARCHITECTURES[load_config(directory).architecture].classes
    return {
        head
        for head in ("replaced-token", "masked-lm")
        if any(n.startswith(get_head_prefix(classes[head])) for n in names)
    }


def get_head_prefix(hf_class: HuggingFaceClass) -> str:
    """Return the common start of the names of a head's weights."""
    first = next(iter(hf_class.weights.values()))[0]
    return first.partition(".")[0] + "."


def find_weights_file(directory: Path) -> Path:
    """Find the weights file of a Hugging Face directory.

    Raises:
        ModelError: there is none, or it is not a regular file.
    """
    names = ("model.safetensors", "pytorch_model.bin")
    file = next((directory / name for name in names if (directory / name).exists()), None)
    if file is None:
        raise ModelError("missing-weights", f"{directory}: no weights, neither model.safetensors nor pytorch_model.bin")
    check_file(file, ModelError)
    return file


@contextmanager
def convert_read_errors(file: Path) -> Iterator[None]:
    """Turn any error while a weights file is read into a `ModelError`."""
    try:
        yield
    except ModelError:
        raise
    except UnpicklingError:
        raise ModelError("foreign-objects", f"{file}: holds objects other than tensors, which are not loaded") from None
    except Exception as error:  # the unpickler of tensors can raise almost any type
        reason = one_line(error) or type(error).__name__
        raise ModelError("unreadable", f"{file}: cannot be read ({reason})") from None


def check_finite(file: Path, weights: Mapping[str, Tensor]) -> None:
    """Check that all weights are finite; a diverged training or a damaged file has others.

    Raises:
        ModelError: a tensor holds NaN or infinity; the message names the first one.
    """
    for name, tensor in weights.items():
        # A sum reads each value once and allocates nothing. If it is finite, all its terms are.
        if not tensor.sum().isfinite() and (wrong := int((~tensor.isfinite()).sum())):
            raise ModelError(
                "not-finite",
                f"{file}: {name}: {wrong:,} of {tensor.numel():,} values are NaN or infinite, expected finite numbers; "
                "the training diverged or the file is damaged: use an earlier checkpoint, or another copy",
            )


def load_tensors(file: Path) -> dict[str, Tensor]:
    """Load the tensors of a file on the CPU: name -> tensor. No code in the file is executed.

    Raises:
        ModelError: the file is damaged, holds anything other than named tensors, or expands to more than its size.
    """
    if file.suffix == ".safetensors":
        return read_tensors(file, ModelError)
    check_file(file, ModelError)
    with convert_read_errors(file):
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                    raise ModelError("compressed", f"{file}: compressed; torch saves weights uncompressed")
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Detected pickle protocol")  # torch raises an error if it cannot read one
            tensors = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(tensors, dict) or not all(isinstance(name, str) for name in tensors):
        raise ModelError("wrong-type", f"{file}: holds a {type(tensors).__name__}, expected a dictionary of tensors")
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise ModelError("wrong-type", f"{file}: {name} is a {type(tensor).__name__}, expected a tensor")
        # An expanded view can repeat a single number any number of times.
        if tensor.layout != torch.strided or tensor.untyped_storage().nbytes() < tensor.nbytes:
            raise ModelError("wrong-type", f"{file}: {name} is sparse or an expanded view, expected a dense tensor")
    return tensors


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
    # Old TensorFlow conversions name LayerNorm's two vectors gamma and beta; an encoder without a head has no prefix.
    architecture = ARCHITECTURES[config.architecture]
    is_bare = architecture.encoder_weights["embeddings.word.weight"][0] in weights
    prefix = f"{architecture.model_type}." if is_bare else ""
    return {
        prefix + name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): tensor
        for name, tensor in weights.items()
    }
