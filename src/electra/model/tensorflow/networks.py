"""The networks in a checkpoint of the original code: tables of their variables, sizes from the shapes, weights."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from electra.errors import ModelError, UsageError
from electra.model.checkpoints import Pretrained, to_hf
from electra.model.encoder import EncoderConfig
from electra.model.heads import MaskedLMHead, ReplacedTokenHead
from electra.model.hf_config import get_encoder_shapes, use_meta_device
from electra.model.tensorflow.bundle import Bundle
from electra.model.weights_file import check_finite

HEAD_SIZE = 64
"""Width of an attention head in every published ELECTRA; the variables do not depend on it."""
MAIN, GENERATOR = "electra", "generator"
"""Scopes of the encoders. The generator's has no embeddings of its own where it shares those of the main one."""

ENCODER_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "embeddings.word.weight": ("embeddings/word_embeddings",),
    "embeddings.position.weight": ("embeddings/position_embeddings",),
    "embeddings.token_type.weight": ("embeddings/token_type_embeddings",),
    "embeddings.norm": ("embeddings/LayerNorm",),
    "project": ("embeddings_project",),
    "layers.{i}.attention.qkv": (
        "encoder/layer_{i}/attention/self/query",
        "encoder/layer_{i}/attention/self/key",
        "encoder/layer_{i}/attention/self/value",
    ),
    "layers.{i}.attention.output": ("encoder/layer_{i}/attention/output/dense",),
    "layers.{i}.attention_norm": ("encoder/layer_{i}/attention/output/LayerNorm",),
    "layers.{i}.ffn.up": ("encoder/layer_{i}/intermediate/dense",),
    "layers.{i}.ffn.down": ("encoder/layer_{i}/output/dense",),
    "layers.{i}.ffn_norm": ("encoder/layer_{i}/output/LayerNorm",),
}
"""Our names of the encoder's parameters or modules -> names in a scope. Several mean that ours is their concatenation."""


@dataclass(frozen=True)
class Head:
    """A head of the original code."""

    build: Callable[[EncoderConfig], nn.Module]
    variables: Mapping[str, str]
    """Our names of its parameters or modules -> names of variables."""


HEADS: dict[str, Head] = {
    "none": Head(lambda config: nn.Module(), {}),
    "replaced-token": Head(
        lambda config: ReplacedTokenHead(config.hidden_size),
        {"head.dense": "discriminator_predictions/dense", "head.score": "discriminator_predictions/dense_1"},
    ),
    "masked-lm": Head(
        lambda config: MaskedLMHead(
            config.hidden_size, config.embedding_size, config.vocab_size, config.layer_norm_eps
        ),
        {
            "head.dense": "generator_predictions/dense",
            "head.norm": "generator_predictions/LayerNorm",
            "head.bias": "generator_predictions/output_bias",
        },
    ),
}
"""By kind, as in `Architecture.classes`."""
PARAMETERS = {"weight": ("gamma", "kernel"), "bias": ("beta", "bias")}
"""Our names of parameters -> those of a LayerNorm and of a linear layer, whose kernel is transposed: [in, out]."""


@dataclass(frozen=True)
class TensorFlowNetwork:
    """An encoder of a checkpoint with its head."""

    bundle: Bundle
    config: EncoderConfig
    head: str
    """A key of `HEADS`."""
    variables: Mapping[str, tuple[str, ...]]
    """Our names of parameters -> variables."""

    def load_state(self) -> dict[str, Tensor]:
        """Load the weights under our names, `encoder.…` and `head.…`, in float32.

        Raises:
            ModelError: a weight is missing, damaged, not floating point, not finite, or of another size than the others imply.
        """
        with use_meta_device():
            head = {f"head.{name}": each.shape for name, each in HEADS[self.head].build(self.config).named_parameters()}
        shapes = {f"encoder.{name}": shape for name, shape in get_encoder_shapes(self.config).items()} | head
        for ours, theirs in self.variables.items():  # all of them before one is read
            expected = (shapes[ours][0] // len(theirs), *shapes[ours][1:])
            for name in theirs:
                found = self.bundle.find(name).shape
                if (found[::-1] if name.endswith("/kernel") else found) != expected:
                    raise ModelError(
                        "wrong-shape",
                        f"{self.bundle.prefix}: {name} has the shape {found}, which does not fit the other variables",
                    )
        return {ours: torch.cat([self.read_weight(name) for name in names]) for ours, names in self.variables.items()}

    def read_weight(self, name: str) -> Tensor:
        """Read a variable as a weight of torch."""
        tensor = self.bundle.read(name)
        if not tensor.is_floating_point():
            raise ModelError(
                "wrong-type", f"{self.bundle.prefix}: {name} has the type {tensor.dtype}, expected floating point"
            )
        check_finite(self.bundle.prefix, {name: (tensor := tensor.float())})
        return tensor.T if name.endswith("/kernel") else tensor

    def load(self) -> Pretrained:
        """Load the weights under Hugging Face's names."""
        return Pretrained(self.bundle.prefix, self.config, to_hf(self.load_state(), self.config, self.head))


def find_networks(prefix: Path, num_heads: int | None = None) -> dict[str, TensorFlowNetwork]:
    """Find the networks of a checkpoint by the name of their Hugging Face directory: discriminator, generator, masked_lm.

    State of the optimizer and other variables are ignored. A head of attention has 64 values unless `num_heads`, of the main
    network, is given; the generator's heads are as wide.

    Raises:
        ModelError: not a checkpoint of an ELECTRA, its index is damaged, or its sizes contradict each other.
        UsageError: the hidden size is not a multiple of the number of heads; or the extra `tf` is not installed.
    """
    bundle = Bundle(prefix)
    names = bundle.index.entries
    if f"{MAIN}/embeddings/word_embeddings" not in names:
        starts = ", ".join(sorted({name.partition("/")[0] for name in names})[:5])
        raise ModelError(
            "not-electra",
            f"{prefix}: has no variables of an ELECTRA, {MAIN}/…; its names begin with {starts or 'nothing'}",
        )
    has_head = {kind: all(is_in(names, each) for each in head.variables.values()) for kind, head in HEADS.items()}
    has_generator = any(name.startswith(f"{GENERATOR}/encoder/") for name in names)
    build = partial(build_network, bundle, num_heads=num_heads)
    found = {}
    if has_head["replaced-token"] or has_generator or not has_head["masked-lm"]:
        found["discriminator"] = build(MAIN, "replaced-token" if has_head["replaced-token"] else "none")
    if has_head["masked-lm"]:
        name = "generator" if found else "masked_lm"
        found[name] = build(GENERATOR if has_generator else MAIN, "masked-lm")
    return found


def is_in(names: Mapping[str, object], variable: str) -> bool:
    """Whether there is a variable of this name, or variables of a module of this name."""
    return variable in names or any(f"{variable}/{each}" in names for each in PARAMETERS["weight"])


def build_network(bundle: Bundle, scope: str, head: str, num_heads: int | None) -> TensorFlowNetwork:
    """Describe the network of a scope."""
    own = f"{GENERATOR}/embeddings/word_embeddings" in bundle.index.entries
    embeddings = scope if own else MAIN
    config = infer_sizes(bundle, scope, embeddings, num_heads)
    return TensorFlowNetwork(bundle, config, head, map_variables(config, scope, embeddings, head))


def infer_sizes(bundle: Bundle, scope: str, embeddings: str, num_heads: int | None) -> EncoderConfig:
    """Infer the sizes of an encoder from the shapes of its variables.

    Raises:
        ModelError: a variable is missing or its shape is none of an encoder.
        UsageError: the hidden size is not a multiple of the number of heads.
    """
    vocab_size, embedding_size = bundle.get_shape(f"{embeddings}/embeddings/word_embeddings", 2)
    max_positions, _ = bundle.get_shape(f"{embeddings}/embeddings/position_embeddings", 2)
    types, _ = bundle.get_shape(f"{embeddings}/embeddings/token_type_embeddings", 2)
    hidden_size, ffn_size = bundle.get_shape(f"{scope}/encoder/layer_0/intermediate/dense/kernel", 2)
    layers = [re.match(rf"{scope}/encoder/layer_(\d{{1,9}})/", name) for name in bundle.index.entries]
    num_layers = max(int(match[1]) + 1 for match in layers if match)
    main, _ = bundle.get_shape(f"{MAIN}/encoder/layer_0/intermediate/dense/kernel", 2)
    heads = main / HEAD_SIZE if num_heads is None else num_heads
    # Narrower networks than 64 have one head.
    own_heads = max(1, heads * hidden_size / max(1, main))
    if hidden_size % own_heads or own_heads % 1:
        raise UsageError(
            "unknown-heads",
            f"{bundle.prefix}: hidden sizes of {main:,} and {hidden_size:,} for {heads:g} heads; "
            "give the number of attention heads (convert --heads, pretrain --model.num-heads)",
        )
    try:
        return EncoderConfig(
            vocab_size=vocab_size,
            embedding_size=embedding_size,
            hidden_size=hidden_size,
            num_layers=num_layers,
            num_heads=int(own_heads),
            ffn_size=ffn_size,
            max_positions=max_positions,
            type_vocab_size=types,
        )
    except UsageError as error:
        raise ModelError(error.code, f"{bundle.prefix}: {error}") from None


def map_variables(config: EncoderConfig, scope: str, embeddings: str, head: str) -> dict[str, tuple[str, ...]]:
    """Map each of our parameters to its variable, or to the variables that it is the concatenation of."""
    table = {
        f"encoder.{ours}": tuple(f"{embeddings if name.startswith('embeddings/') else scope}/{name}" for name in theirs)
        for ours, theirs in ENCODER_VARIABLES.items()
        if ours != "project" or config.embedding_size != config.hidden_size
    }
    table |= {ours: (name,) for ours, name in HEADS[head].variables.items()}
    names: dict[str, tuple[str, ...]] = {}
    for ours, theirs in table.items():
        for i in range(config.num_layers if "{i}" in ours else 1):
            if ours.endswith((".weight", ".bias")):
                names[ours] = theirs
                continue
            for parameter, endings in PARAMETERS.items():
                ending = endings[0 if ours.endswith("norm") else 1]
                names[f"{ours.format(i=i)}.{parameter}"] = tuple(f"{name.format(i=i)}/{ending}" for name in theirs)
    return names
