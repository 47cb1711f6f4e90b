"""Initial weights from other models, for domain adaptation and continued pre-training."""

import logging
from pathlib import Path

import torch
from torch import nn

from electra.config.checks import join_choices
from electra.data.manifest import Manifest
from electra.errors import ModelError
from electra.model.checkpoints import (
    PRETRAINING_HEADS,
    Pretrained,
    load_pretrained,
)
from electra.model.encoder import EncoderConfig
from electra.pretraining.build import build_meta_model
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.catalog import has_generator_network
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.objectives.networks import compute_generator_sizes
from electra.pretraining.objectives.tying import TYINGS, DisentangledEmbedding
from electra.pretraining.stages.initial_model import InitialModel, InitialNetwork, find_initial_model
from electra.pretraining.stages.initial_sizes import (
    check_sizes,
    find_main_directory,
    find_other_sizes,
    list_sizes,
)
from electra.pretraining.stages.procedures import Procedure
from electra.text.tokenizer import load_named_tokenizer, load_tokenizer

log = logging.getLogger(__name__)


def find_run_model(config: PretrainConfig) -> InitialModel | None:
    """Find the networks that a run starts from; None without --init. Raises as `find_initial_model`."""
    if config.init is None:
        return None
    return find_initial_model(config.init, config.init_generator, config.model.num_heads)


def check_init(initial: InitialModel, config: PretrainConfig) -> None:
    """Check network type, sizes, tokenizer and weights of an initial model before text is prepared.

    Raises:
        ModelError: another network or tokenizer, other sizes (the message names all of them), or damaged weights.
        TokenizerError, DataError: the given tokenizer or data cannot be read.
    """
    main, generator = initial.main, initial.generator
    head = find_head(main, build_meta_model(config).target.head)
    check_sizes(main.place, main.config, config.model)
    check_tokenizer(main, config)
    weights = main.load()
    weights.state(head)  # detects damaged weights now, not after hours of text preparation
    if generator is not None and has_generator_network(config.objective, config.generator):
        sizes = compute_generator_sizes(config.model, config.generator)
        check_sizes(generator.place, generator.config, sizes, relative_to=main.config)
        if not initial.own_generator:
            generator.load()
            return
        find_head(generator, "masked-lm")
        check_vocabularies(main, generator)
        report_shared_embeddings(weights, generator.load(), config)


def check_vocabularies(main: InitialNetwork, generator: InitialNetwork) -> None:
    """Raise a `ModelError` unless the tokens of main network and generator have the same ids."""
    theirs, ours = (load_tokenizer(each.tokenizer).vocabulary for each in (generator, main))
    if theirs != ours:
        differing = next((number for number, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b), None)
        where = "" if differing is None else f"; token {differing:,} is {theirs[differing]!r} and {ours[differing]!r}"
        raise ModelError(
            "other-vocabulary",
            f"--init-generator {generator.place}: a vocabulary of {len(theirs):,} tokens, and {main.place} has another one of "
            f"{len(ours):,}{where}; a generator writes tokens that the discriminator reads, so name one with the same "
            "vocabulary, or leave --init-generator out",
        )


def report_shared_embeddings(main: Pretrained, generator: Pretrained, config: PretrainConfig) -> None:
    """Log a warning if a generator with embeddings of its own gets those of the discriminator by sharing them."""
    name = "encoder.embeddings.word.weight"
    shares = TYINGS[config.generator.tying].shares
    if shares and not torch.equal(main.state("none")[name], generator.state("none")[name]):
        log.warning(
            f"{generator.directory}: its embeddings differ from those of {main.directory}, and generator.tying "
            f"{config.generator.tying} replaces them by {shares}; --generator.tying none keeps them",
            extra={"code": "other-embeddings"},
        )


def find_head(network: InitialNetwork, head: str) -> str:
    """Return the kind of head of a network that an objective with this head continues from.

    A discriminator also starts from a masked language model, whose head it does not use.

    Raises:
        ModelError: the network has none; the message has a directory or an objective to use instead.
    """
    heads = network.find_heads({*PRETRAINING_HEADS, head})
    directory = network.place
    if head in heads:
        return head
    if head in ("replaced-token", "energy") and "masked-lm" in heads and not network.is_generator:
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


def check_tokenizer(network: InitialNetwork, config: PretrainConfig) -> None:
    """Raise a `ModelError` if a network has a tokenizer that differs from --tokenizer or from that of --data."""
    directory = network.place
    if not network.has_tokenizer:
        return
    expected = load_tokenizer(network.tokenizer).fingerprint
    if config.tokenizer is not None and load_named_tokenizer(config.tokenizer).fingerprint != expected:
        raise ModelError(
            "other-tokenizer",
            f"{directory}: its tokenizer differs from {config.tokenizer}, so its embeddings would belong to other tokens; "
            "leave --tokenizer out to use the checkpoint's tokenizer",
        )
    if config.data is not None and Manifest.load(Path(config.data)).settings.tokenizer != expected:
        raise ModelError(
            "other-tokenizer",
            f"{directory}: its tokenizer differs from that of the data, so its embeddings would belong to other tokens; "
            f"prepare the text with the model's: electra prepare TEXT --tokenizer {network.tokenizer} --out DATA",
        )


def load_initial_weights(initial: InitialModel, model: PretrainingModel) -> None:
    """Load the weights of an initial model, checked by `check_init`, into the model and its generator.

    Raises:
        ModelError: weights are missing or of other sizes.
    """
    main = initial.main.load()
    check_sizes(main.directory, main.config, model.spec.main)
    head = find_head(initial.main, model.target.head)
    load_initial_generator(initial, model, main, head)
    report_new_positions(main, model.spec.main)
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


def report_new_positions(main: Pretrained, sizes: EncoderConfig) -> None:
    """Log the positions that the checkpoint does not have."""
    before, now = main.config.max_positions, sizes.max_positions
    if "max_positions" in list_sizes(sizes) and before < now:
        log.info(
            f"{main.directory} has {before:,} positions, the model {now:,}: the embedding of each position p from {before:,} "
            f"on is a copy of that of position p mod {before:,}",
            extra={"code": "new-positions"},
        )


def load_initial_generator(initial: InitialModel, model: PretrainingModel, main: Pretrained, head: str) -> None:
    """Load the weights of the initial generator, or of `main` if it is a masked language model of the generator's size."""
    if (generator := model.generator) is None:
        return
    pretrained = None if initial.generator is None else initial.generator.load()
    if pretrained is None and head == "masked-lm" and not find_other_sizes(main.config, generator.config):
        pretrained = main
    shares = TYINGS[model.spec.generator.tying].shares
    if pretrained is not None:
        check_sizes(pretrained.directory, pretrained.config, generator.config, relative_to=model.spec.main)
        load_into(generator, pretrained, "masked-lm")
        log.info(
            f"generator weights of {pretrained.directory}" + f", except {shares}, which it shares" * bool(shares),
            extra={"code": "warm-start"},
        )
        return
    word = model.target.network.encoder.embeddings.word
    if isinstance(word, DisentangledEmbedding):  # then the discriminator's difference from them is zero
        load_into(nn.ModuleDict({"encoder": nn.ModuleDict({"embeddings": generator.encoder.embeddings})}), main, "none")
    fits = head == "masked-lm"  # but for its size
    found = f"{initial.main.place} has {'other sizes' if fits else 'no generator'}"
    log.log(
        logging.INFO if fits else logging.WARNING,
        f"{found}: the generator starts from random weights" + f" and {shares}" * bool(shares),
        extra={"code": "no-generator"},
    )


def find_trained_length(config: PretrainConfig, seq_len: int) -> int | None:
    """Return the longest sequence length in a run's training and in that of its initial weights; None if not known."""
    if config.init is None:
        return seq_len
    initial = find_run_model(config)
    before = None if initial is None else initial.main.length
    return None if before is None else max(before, seq_len)


def load_stage_one(first_stage: Path, model: PretrainingModel, procedure: Procedure) -> None:
    """Load stage one's network into the networks that start from it."""
    if not procedure.freezes_generator:
        load_initial_weights(find_initial_model(str(first_stage)), model)
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
    """Copy weights into a network.

    Padding of the vocabulary beyond the tokenizer's is dropped. If the network has more positions, each further one has the
    embedding of the position that is a multiple of the checkpoint's number of positions before it, as in Longformer (Beltagy
    et al., 2020, section 5): attention to near tokens works there from the start.
    """
    state = pretrained.state(head)
    expected = network.state_dict()  # with the sum of disentangled embeddings, as in the directory
    for name, parameter in expected.items():
        if name in ("encoder.embeddings.word.weight", "head.bias") and len(state[name]) > len(parameter):
            state[name] = state[name][: len(parameter)]
        if name == "encoder.embeddings.position.weight":
            state[name] = state[name][torch.arange(len(parameter)) % len(state[name])]
        if state[name].shape != parameter.shape:
            raise ModelError(
                "wrong-shape",
                f"{pretrained.directory}: {name} is {tuple(state[name].shape)}, the model needs {tuple(parameter.shape)}"
                "; check that the tokenizer is the checkpoint's",
            )
    network.load_state_dict({name: state[name] for name in expected})
