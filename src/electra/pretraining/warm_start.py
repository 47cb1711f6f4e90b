"""Initial weights out of Hugging Face directories: domain adaptation, and going on where others stopped."""

import logging
from pathlib import Path
from typing import Any

import torch
from torch import nn

from electra.data.manifest import Manifest
from electra.errors import ModelError
from electra.model.checkpoints import Pretrained, find_pretraining_heads, load_pretrained, read_pretrained_length
from electra.model.encoder import EncoderConfig
from electra.model.hf_config import load_config
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.objectives.networks import generator_sizes
from electra.pretraining.objectives.spec import OBJECTIVES
from electra.text.tokenizer import load_tokenizer

log = logging.getLogger(__name__)


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
MULTIPLIERS = {
    "hidden_size": "--generator.size",
    "num_layers": "--generator.depth",
    "num_heads": "--generator.heads",
    "ffn_size": "--generator.ffn",
}


def discriminator_directory(init: Path) -> Path:
    """The main network's directory: `init` itself, or the one in it."""
    for name in ("discriminator", "masked_lm"):
        if (init / name / "config.json").exists():
            return init / name
    return init


def generator_directory(init: Path) -> Path | None:
    """The generator's directory, if `init` holds one beside the discriminator."""
    return init / "generator" if (init / "generator" / "config.json").exists() else None


def check_exists(model: Path) -> None:
    """Raise a `ModelError` that says where models come from, if there is nothing of this name."""
    if not model.exists():
        raise ModelError(
            f"{model}: not a model directory, there is nothing of this name; a model of the Hugging Face hub has to be "
            "downloaded first: hf download OWNER/NAME --local-dir FOLDER"
        )


def read_initial_sizes(init: Path) -> dict[str, Any]:
    """The options of the sizes that `init` has, by their dotted names: those of its main network and of its generator.

    Raises:
        ModelError: not a model directory.
    """
    main = load_config(discriminator_directory(init))
    sizes: dict[str, Any] = {f"model.{name}": getattr(main, name) for name in SIZES}
    if (directory := generator_directory(init)) is None:
        return sizes
    generator = load_config(directory)
    size = generator.hidden_size / main.hidden_size
    sizes |= {"generator.size": size, "generator.depth": generator.num_layers / main.num_layers}
    if generator.num_heads != max(1, round(main.num_heads * size)):
        sizes["generator.heads"] = generator.num_heads / main.num_heads
    if generator.ffn_size != max(1, round(main.ffn_size * size)):
        sizes["generator.ffn"] = generator.ffn_size / main.ffn_size
    if generator.embedding_size != main.embedding_size:  # shared ones have one size
        sizes["generator.tying"] = "none"
    return sizes


def check_init(init: Path, config: PretrainConfig) -> None:
    """See early, before text is prepared, that the weights are there, of the right network, its sizes and its tokenizer.

    Raises:
        ModelError: not a model directory, another network or tokenizer, other sizes (every one that differs is named), or
            damaged weights.
        TokenizerError, DataError: the tokenizer or the data given cannot be read.
    """
    check_exists(init)
    directory = discriminator_directory(init)
    sizes = load_config(directory)
    check_network(directory, OBJECTIVES[config.objective].discriminates)
    compare(directory, sizes, config.model)
    check_tokenizer(directory, config)
    load_pretrained(directory)  # damaged weights are seen now, and not after hours of preparing text
    generator = generator_directory(init)
    with_network = OBJECTIVES[config.objective].has_generator and config.generator.kind == "masked-lm"
    if generator is not None and with_network:
        compare(generator, load_config(generator), generator_sizes(config.model, config.generator), beside=sizes)
        load_pretrained(generator)


def check_network(directory: Path, discriminator: bool) -> None:
    """Raise a `ModelError` that says what a directory holds, if it is not the main network that an objective needs."""
    held = find_pretraining_heads(directory)
    if ("ElectraForPreTraining" if discriminator else "ElectraForMaskedLM") in held:
        return
    if not held:
        raise ModelError(
            f"{directory}: has no head of pre-training; it is an encoder alone, or a fine-tuned model. Name the "
            "pre-trained model"
        )
    if not discriminator:
        raise ModelError(
            f"{directory}: a discriminator, and this objective continues a masked language model; "
            "leave --objective out, or name a masked language model"
        )
    if directory.name == "generator" and discriminator_directory(directory.parent) != directory.parent:
        raise ModelError(f"{directory}: a generator; name {directory.parent}, which holds the discriminator too")
    raise ModelError(
        f"{directory}: a masked language model, not a discriminator; continue it with --objective mlm, "
        "or name an ELECTRA discriminator"
    )


def check_tokenizer(directory: Path, config: PretrainConfig) -> None:
    """Raise a `ModelError` if a model brings a tokenizer and another one is asked for; where none is, its own is taken."""
    if not any((directory / name).exists() for name in ("tokenizer.json", "vocab.txt")):
        return
    theirs = load_tokenizer(directory).fingerprint
    if config.tokenizer is not None and load_tokenizer(config.tokenizer).fingerprint != theirs:
        raise ModelError(
            f"{directory}: its tokenizer is not {config.tokenizer}, so its embeddings would mean other words; "
            "leave --tokenizer out: the checkpoint's own is taken"
        )
    if config.data is not None and Manifest.load(Path(config.data)).settings.tokenizer != theirs:
        raise ModelError(
            f"{directory}: its tokenizer is not the one of the data, so its embeddings would mean other words; "
            f"prepare the text with the checkpoint's own: electra prepare TEXT --tokenizer {directory} --out DATA"
        )


def compare(directory: Path, theirs: EncoderConfig, ours: EncoderConfig, beside: EncoderConfig | None = None) -> None:
    """Raise a `ModelError` that names the sizes in which a checkpoint differs from the model, and options that would do.

    A generator's are multiples of the main network's, `beside`.
    """
    wrong = {name: getattr(theirs, name) for name in SIZES if getattr(theirs, name) != getattr(ours, name)}
    if not wrong:
        return
    found = ", ".join(f"{name} {value} (the model has {getattr(ours, name)})" for name, value in wrong.items())
    if beside is None:
        advice = [f"--model.{name.replace('_', '-')} {value}" for name, value in wrong.items()]
    else:
        multiples = {name: value / getattr(beside, name) for name, value in wrong.items() if name in MULTIPLIERS}
        advice = [f"{MULTIPLIERS[name]} {multiple:g}" for name, multiple in multiples.items()]
    hint = f"; try {' '.join(advice)}, or leave such options out: the checkpoint's sizes are taken" if advice else ""
    raise ModelError(f"{directory}: other sizes: {found}{hint}")


def continue_from(init: Path, model: PretrainingModel) -> None:
    """Put the weights of `init`, which `check_init` has seen, into the model: the main network's, and the generator's.

    Raises:
        ModelError: weights are missing or of other sizes.
    """
    directory = generator_directory(init)
    if model.generator is not None and directory is not None:
        generator = load_pretrained(directory)
        compare(directory, generator.config, model.generator.config, beside=model.spec.main)
        load_into(model.generator, generator, "ElectraForMaskedLM")
        tied = model.generator.encoder is model.target.network.encoder
        log.info(f"generator weights of {directory}" + " (its head alone: the encoder is the discriminator's)" * tied)
    elif model.generator is not None:
        log.warning(f"{init} has no generator/: it starts from random weights and the discriminator's embeddings")
    # Last, so that what both networks share is the discriminator's.
    main = load_pretrained(discriminator_directory(init))
    compare(main.directory, main.config, model.spec.main)
    load_into(model.target.network, main, model.target.architecture)
    log.info(f"weights of {main.directory}")


def longest_trained_length(config: PretrainConfig, seq_len: int) -> int | None:
    """Tokens of the longest sequences that a run of `seq_len` and what it continues were trained on; None if not known."""
    if config.init is None:
        return seq_len
    before = read_pretrained_length(discriminator_directory(Path(config.init)))
    return None if before is None else max(before, seq_len)


def load_stage_one(first_stage: Path, model: PretrainingModel, discriminator: bool) -> None:
    """Put a generator that was trained alone into the model, and its encoder's weights into the discriminator's too."""
    assert model.generator is not None
    load_into(model.generator, load_pretrained(first_stage / "masked_lm"), "ElectraForMaskedLM")
    if discriminator:
        model.target.network.encoder.load_state_dict(model.generator.encoder.state_dict())
    log.info(
        f"the generator of {first_stage}, which learns no more (the discriminator starts from "
        f"{'its weights' if discriminator else 'scratch'})"
    )


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
