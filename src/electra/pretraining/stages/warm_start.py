"""Initial weights from Hugging Face directories, for domain adaptation and continued pre-training."""

import logging
from pathlib import Path

from torch import nn

from electra.config.checks import join_choices
from electra.data.manifest import Manifest
from electra.errors import ModelError
from electra.model.checkpoints import (
    PRETRAINING_HEADS,
    Pretrained,
    find_pretraining_heads,
    load_pretrained,
    read_pretrained_length,
)
from electra.model.hf_config import load_config
from electra.pretraining.build import build_meta_model
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.catalog import has_generator_network
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.objectives.networks import compute_generator_sizes
from electra.pretraining.objectives.tying import TYINGS, DisentangledEmbedding
from electra.pretraining.stages.initial_sizes import (
    check_exists,
    check_sizes,
    find_generator_directory,
    find_main_directory,
    find_other_sizes,
)
from electra.pretraining.stages.procedures import Procedure
from electra.text.tokenizer import load_tokenizer

log = logging.getLogger(__name__)


def check_init(init: Path, config: PretrainConfig) -> None:
    """Check network type, sizes, tokenizer and weights of `init` before text is prepared.

    Raises:
        ModelError: not a model directory, another network or tokenizer, other sizes (the message names all of them), or
            damaged weights.
        TokenizerError, DataError: the given tokenizer or data cannot be read.
    """
    check_exists(init)
    directory = find_main_directory(init)
    sizes = load_config(directory)
    head = find_head(directory, build_meta_model(config).target.head)
    check_sizes(directory, sizes, config.model)
    check_tokenizer(directory, config)
    load_pretrained(directory).state(head)  # detects damaged weights now, not after hours of text preparation
    generator = find_generator_directory(init)
    if generator is not None and has_generator_network(config.objective, config.generator):
        check_sizes(
            generator,
            load_config(generator),
            compute_generator_sizes(config.model, config.generator),
            relative_to=sizes,
        )
        load_pretrained(generator)


def find_head(directory: Path, head: str) -> str:
    """Return the kind of head of a directory that an objective with this head continues from.

    A discriminator also starts from a masked language model, whose head it does not use.

    Raises:
        ModelError: the directory has none; the message has a directory or an objective to use instead.
    """
    heads = find_pretraining_heads(directory, {*PRETRAINING_HEADS, head})
    is_generator = directory.name == "generator" and find_main_directory(directory.parent) != directory.parent
    if head in heads:
        return head
    if head in ("replaced-token", "energy") and "masked-lm" in heads and not is_generator:
        return "masked-lm"
    if not heads:
        raise ModelError(
            "no-head",
            f"{directory}: has no pre-training head; it is an encoder without a head, or a fine-tuned model; name the "
            "pre-trained model",
        )
    if head not in PRETRAINING_HEADS:
        raise ModelError(
            "other-head",
            f"{directory}: has heads of the kind {join_choices(sorted(heads))}, and this objective needs {head}; name a model "
            "of this objective",
        )
    if head == "masked-lm":
        raise ModelError(
            "not-masked-lm",
            f"{directory}: a discriminator, and this objective needs a masked language model; "
            "leave --objective out, or name a masked language model",
        )
    raise ModelError(
        "not-discriminator",
        f"{directory}: a generator; name {directory.parent}, which contains the discriminator too",
    )


def check_tokenizer(directory: Path, config: PretrainConfig) -> None:
    """Raise a `ModelError` if a model directory has a tokenizer that differs from --tokenizer or from that of --data."""
    if not any((directory / name).exists() for name in ("tokenizer.json", "vocab.txt")):
        return
    expected = load_tokenizer(directory).fingerprint
    if config.tokenizer is not None and load_tokenizer(config.tokenizer).fingerprint != expected:
        raise ModelError(
            "other-tokenizer",
            f"{directory}: its tokenizer differs from {config.tokenizer}, so its embeddings would belong to other tokens; "
            "leave --tokenizer out to use the checkpoint's tokenizer",
        )
    if config.data is not None and Manifest.load(Path(config.data)).settings.tokenizer != expected:
        raise ModelError(
            "other-tokenizer",
            f"{directory}: its tokenizer differs from that of the data, so its embeddings would belong to other tokens; "
            f"prepare the text with the checkpoint's tokenizer: electra prepare TEXT --tokenizer {directory} --out DATA",
        )


def load_initial_weights(init: Path, model: PretrainingModel) -> None:
    """Load the weights of `init`, checked by `check_init`, into the model and its generator.

    Raises:
        ModelError: weights are missing or of other sizes.
    """
    main = load_pretrained(find_main_directory(init))
    check_sizes(main.directory, main.config, model.spec.main)
    head = find_head(main.directory, model.target.head)
    load_initial_generator(init, model, main, head)
    # Last, so that shared weights are the discriminator's.
    if head == model.target.head:
        load_into(model.target.network, main, head)
        log.info(f"weights of {main.directory}", extra={"code": "warm-start"})
    else:
        load_into(nn.ModuleDict({"encoder": model.target.network.encoder}), main, "none")
        log.info(
            f"encoder of {main.directory}, a masked language model; the discriminator's head is new",
            extra={"code": "warm-start"},
        )


def load_initial_generator(init: Path, model: PretrainingModel, main: Pretrained, head: str) -> None:
    """Load the generator's weights from generator/ in `init`, or from `main` if it is a masked language model of its size."""
    if (generator := model.generator) is None:
        return
    directory = find_generator_directory(init)
    if directory is None and head == "masked-lm" and not find_other_sizes(main.config, generator.config):
        directory = main.directory
    shares = TYINGS[model.spec.generator.tying].shares
    if directory is not None:
        pretrained = load_pretrained(directory)
        check_sizes(directory, pretrained.config, generator.config, relative_to=model.spec.main)
        load_into(generator, pretrained, "masked-lm")
        log.info(
            f"generator weights of {directory}" + f", except {shares}, which it shares" * bool(shares),
            extra={"code": "warm-start"},
        )
        return
    word = model.target.network.encoder.embeddings.word
    if isinstance(word, DisentangledEmbedding):  # then the discriminator's difference from them is zero
        load_into(nn.ModuleDict({"encoder": nn.ModuleDict({"embeddings": generator.encoder.embeddings})}), main, "none")
    fits = head == "masked-lm"  # but for its size
    found = f"{init} has {'other sizes' if fits else 'no generator/'}"
    log.log(
        logging.INFO if fits else logging.WARNING,
        f"{found}: the generator starts from random weights" + f" and {shares}" * bool(shares),
        extra={"code": "no-generator"},
    )


def find_trained_length(config: PretrainConfig, seq_len: int) -> int | None:
    """Return the longest sequence length in a run's training and in that of its initial weights; None if not known."""
    if config.init is None:
        return seq_len
    before = read_pretrained_length(find_main_directory(Path(config.init)))
    return None if before is None else max(before, seq_len)


def load_stage_one(first_stage: Path, model: PretrainingModel, procedure: Procedure) -> None:
    """Load stage one's network into the networks that start from it."""
    if not procedure.freezes_generator:
        load_initial_weights(first_stage, model)
        return
    assert model.generator is not None
    load_into(model.generator, load_pretrained(find_main_directory(first_stage)), "masked-lm")
    if procedure.starts_discriminator:
        model.target.network.encoder.load_state_dict(model.generator.encoder.state_dict())
    log.info(
        f"generator of {first_stage}, frozen (the discriminator starts from "
        f"{'its weights' if procedure.starts_discriminator else 'scratch'})",
        extra={"code": "frozen-generator"},
    )


def load_into(network: nn.Module, pretrained: Pretrained, head: str) -> None:
    """Copy weights into a network; padding of the vocabulary beyond the tokenizer's is dropped."""
    state = pretrained.state(head)
    expected = network.state_dict()  # with the sum of disentangled embeddings, as in the directory
    for name, parameter in expected.items():
        if name in ("encoder.embeddings.word.weight", "head.bias") and len(state[name]) > len(parameter):
            state[name] = state[name][: len(parameter)]
        if state[name].shape != parameter.shape:
            raise ModelError(
                "wrong-shape",
                f"{pretrained.directory}: {name} is {tuple(state[name].shape)}, the model needs {tuple(parameter.shape)}"
                "; check that the tokenizer is the checkpoint's",
            )
    network.load_state_dict({name: state[name] for name in expected})
