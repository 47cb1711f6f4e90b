"""Initial weights out of Hugging Face directories: domain adaptation, and going on where others stopped."""

from pathlib import Path

import torch
from torch import nn

from electra.console import decided, warned
from electra.errors import ModelError
from electra.model.encoder import EncoderConfig
from electra.model.weights import Pretrained, load_config, load_pretrained
from electra.pretraining.config import PretrainConfig
from electra.pretraining.networks import generator_sizes
from electra.pretraining.objectives import OBJECTIVES, PretrainingModel
from electra.text.tokenizer import Tokenizer, load_tokenizer

# Sizes that weights have; vocab_size is the tokenizer's affair, and dropout and epsilon are not sizes.
SIZES = (
    "embedding_size",
    "hidden_size",
    "num_layers",
    "num_heads",
    "ffn_size",
    "max_positions",
    "type_vocab_size",
)
OPTIONS = {name: f"--model.{name.replace('_', '-')}" for name in SIZES}


def discriminator_directory(init: Path) -> Path:
    """The main network's directory: `init` itself, or the one in it."""
    for name in ("discriminator", "masked_lm"):
        if (init / name / "config.json").exists():
            return init / name
    return init


def generator_directory(init: Path) -> Path | None:
    """The generator's directory, if `init` holds one beside the discriminator."""
    return init / "generator" if (init / "generator" / "config.json").exists() else None


def check_init(init: Path, config: PretrainConfig) -> None:
    """See early, before text is prepared, that the weights are there and have the sizes of the model.

    Raises:
        ModelError: not a model directory, or other sizes; every one that differs is named.
    """
    directory = discriminator_directory(init)
    compare(directory, load_config(directory), config.model, OPTIONS)
    generator = generator_directory(init)
    if generator is not None and OBJECTIVES[config.objective].corruption == "generator":
        compare(generator, load_config(generator), generator_sizes(config.model, config.generator), {})


def compare(directory: Path, theirs: EncoderConfig, ours: EncoderConfig, options: dict[str, str]) -> None:
    """Raise a `ModelError` that names the sizes in which a checkpoint differs from the model."""
    wrong = [name for name in SIZES if getattr(theirs, name) != getattr(ours, name)]
    if wrong:
        found = ", ".join(f"{name} {getattr(theirs, name)} (the model has {getattr(ours, name)})" for name in wrong)
        advice = " ".join(f"{options[name]} {getattr(theirs, name)}" for name in wrong if name in options)
        raise ModelError(f"{directory}: other sizes: {found}; try {advice or '--generator.size'}")


def continue_from(init: Path, model: PretrainingModel, tokenizer: Tokenizer) -> None:
    """Put the weights of `init` into the model: the main network's, and the generator's if they are there.

    Raises:
        ModelError: weights are missing or of other sizes, or the vocabulary is another.
    """
    main = load_pretrained(discriminator_directory(init))
    compare(main.directory, main.config, model.setting.main, OPTIONS)
    has_tokenizer = any((main.directory / name).exists() for name in ("tokenizer.json", "vocab.txt"))
    if has_tokenizer and load_tokenizer(main.directory).fingerprint != tokenizer.fingerprint:
        raise ModelError(
            f"{main.directory}: its tokenizer is not the one of the data, so its embeddings would mean other words; "
            "prepare the text with the checkpoint's own tokenizer"
        )
    load_into(model.prediction.network, main, model.prediction.architecture)
    decided(f"weights of {main.directory}")
    if model.generator is None:
        return
    directory = generator_directory(init)
    if directory is None:
        warned(f"{init} has no generator/: it starts from random weights and the discriminator's embeddings")
        return
    generator = load_pretrained(directory)
    compare(directory, generator.config, model.generator.config, {})
    load_into(model.generator, generator, "ElectraForMaskedLM")
    decided(f"generator weights of {directory}")


def load_into(network: nn.Module, pretrained: Pretrained, architecture: str) -> None:
    """Copy weights into a network; a vocabulary padded beyond the tokenizer's entries is cut."""
    state = pretrained.state(architecture)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            weight = state[name]
            if name in ("encoder.embeddings.word.weight", "head.bias") and len(weight) > len(parameter):
                weight = weight[: len(parameter)]
            if weight.shape != parameter.shape:
                raise ModelError(
                    f"{pretrained.directory}: {name} is {tuple(weight.shape)}, the model needs {tuple(parameter.shape)}"
                    "; is the tokenizer that of the checkpoint?"
                )
            parameter.copy_(weight)
