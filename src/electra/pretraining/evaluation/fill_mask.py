"""Answers for the [MASK]s of a text, by an ELECTRA (Appendix G) or a masked language model read from its directory."""

import logging
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from electra.data.loader import pad_batch
from electra.errors import ModelError, RunError, UsageError
from electra.model.checkpoints import find_pretraining_heads, load_pretrained
from electra.model.hf_config import load_config
from electra.pretraining.build import vocabulary_of
from electra.pretraining.config import PretrainConfig
from electra.pretraining.evaluation.discriminator_mlm import (
    ElectraAsMaskedLM,
    Guesses,
    MaskedLMAlone,
    unmasked_per_masked,
)
from electra.pretraining.objectives.masking import MaskingConfig
from electra.pretraining.objectives.networks import Discriminator, MaskedLM
from electra.pretraining.objectives.spec import OBJECTIVES
from electra.pretraining.run_directory import RunDirectory
from electra.pretraining.warm_start import check_exists, discriminator_directory, generator_directory, load_into
from electra.runtime.setup import Runtime
from electra.text.tokenizer import Tokenizer, load_tokenizer

log = logging.getLogger(__name__)


MASK = "[MASK]"
ROWS = 32
"""Masked positions that are answered at once."""

Network = TypeVar("Network", MaskedLM, Discriminator)


@dataclass(frozen=True)
class MaskFiller:
    """What can answer for a [MASK]."""

    network: ElectraAsMaskedLM | MaskedLMAlone
    tokenizer: Tokenizer
    trained_length: int | None
    """Longest sequence of its pre-training, if a run's configuration says so."""


class Context(NamedTuple):
    """A text of which one [MASK] is to be answered; the others stay."""

    text: str
    mask: int
    """Number of the [MASK] in the text, from 0."""
    ids: list[int]
    """`[CLS] text [SEP]`."""
    position: int


def load_filler(model: Path, mask_fraction: float | None = None) -> MaskFiller:
    """Read generator and discriminator of a finished run (or a folder like it), or a masked language model alone.

    `mask_fraction` is p_mask; by default what the run's configuration says.

    Raises:
        ModelError: none of these; a discriminator without a generator, or of another tokenizer; a network that never read
            [MASK].
        RunError: the run is not finished.
        UsageError: p_mask is not known, or has no meaning.
    """
    check_exists(model)
    main, run = discriminator_directory(model), RunDirectory(model)
    if main == model and run.config.exists():
        raise RunError(f"{model}: the run is not finished, its networks are not saved yet; run electra pretrain again")
    config = run.saved() if run.config.exists() else None
    load_config(main)
    heads = find_pretraining_heads(main)
    if not heads:
        raise ModelError(
            f"{main}: has no head of pre-training; it is an encoder alone, or a fine-tuned model. Name a run of "
            "electra pretrain, or a masked language model"
        )
    tokenizer = load_tokenizer(main)
    if "ElectraForPreTraining" in heads:
        discriminator = load_network(main, Discriminator, "ElectraForPreTraining", tokenizer)
        return electra_filler(model, main, discriminator, tokenizer, mask_fraction, config)
    if mask_fraction is not None:
        raise UsageError(f"--mask-fraction has a meaning for an ELECTRA only; {main} is a masked language model")
    if config is not None and OBJECTIVES[config.objective].corruption != "masks":
        raise ModelError(f"{main}: was not trained on text with [MASK]; name {model / 'generator'}, which was")
    network = load_network(main, MaskedLM, "ElectraForMaskedLM", tokenizer)
    return MaskFiller(
        MaskedLMAlone(network, vocabulary_of(tokenizer)).eval(), tokenizer, config.seq_len if config else None
    )


def electra_filler(
    model: Path,
    main: Path,
    discriminator: Discriminator,
    tokenizer: Tokenizer,
    mask_fraction: float | None,
    config: PretrainConfig | None,
) -> MaskFiller:
    """A discriminator with the generator beside it."""
    directory = generator_directory(model)
    if directory is None:
        beside = generator_directory(main.parent)
        advice = (
            f"name {main.parent}, which holds both" if beside else "name a folder with discriminator/ and generator/"
        )
        if config is not None and config.generator.kind != "masked-lm":
            raise ModelError(
                f"{model}: its generator is {config.generator.kind} draws, no network that could propose tokens for a "
                "context"
            )
        raise ModelError(f"{main}: a discriminator, which only judges what its generator proposes; {advice}")
    if load_tokenizer(directory).fingerprint != tokenizer.fingerprint:
        raise ModelError(f"{directory}: its tokenizer is not that of {main}; they are no pair")
    generator = load_network(directory, MaskedLM, "ElectraForMaskedLM", tokenizer)
    a, temperature = sampling(model, mask_fraction, config)
    network = ElectraAsMaskedLM(generator, discriminator, vocabulary_of(tokenizer), a, temperature)
    return MaskFiller(network.eval(), tokenizer, config.seq_len if config else None)


def load_network(directory: Path, kind: type[Network], architecture: str, tokenizer: Tokenizer) -> Network:
    """A network of ours with the weights of a Hugging Face directory."""
    pretrained = load_pretrained(directory)
    network = kind(replace(pretrained.config, vocab_size=tokenizer.vocab_size))
    load_into(network, pretrained, architecture)
    return network


def sampling(model: Path, mask_fraction: float | None, config: PretrainConfig | None) -> tuple[float, float]:
    """How a pair was pre-trained: the paper's a, and the temperature that its generator sampled at."""
    if config is not None:
        fraction = config.masking.fraction if mask_fraction is None else MaskingConfig(mask_fraction).fraction
        masked_only = OBJECTIVES[config.objective].scored == "masked"
        if others := departures(config):
            log.warning(
                f"{model}: trained with {' and '.join(others)}, where the formula of Appendix G is an approximation"
            )
        return unmasked_per_masked(fraction, masked_only), config.generator.temperature
    if mask_fraction is None:
        raise UsageError(
            f"{model}: has no {RunDirectory(model).config.name} that says which share of the tokens was masked in "
            "pre-training; say --mask-fraction (in the paper 0.15, for Large 0.25)"
        )
    return unmasked_per_masked(MaskingConfig(mask_fraction).fraction, masked_only=False), 1.0


def departures(config: PretrainConfig) -> list[str]:
    """Settings of a run under which a masked token is not one in p_mask alike, filled from p_G, as the formula assumes."""
    departing = {
        "generator.exclude_original_token": config.generator.exclude_original_token,
        "masking.with_replacement": config.masking.with_replacement,
        "masking.strategy": config.masking.strategy != "uniform",
        "contrast.weight": config.contrast.weight > 0,
    }
    return [name for name, departs in departing.items() if departs]


def contexts(text: str, filler: MaskFiller) -> list[Context]:
    """One context for each [MASK] of a text; warns if the text is longer than its training sequences.

    Raises:
        UsageError: there is none, or the text is longer than the model's positions.
    """
    tokenizer, shown = filler.tokenizer, repr(textwrap.shorten(text, 60))
    first, *others = tokenizer.encode_lines(text.split(MASK))
    if not others:
        raise UsageError(f"{shown}: there is no {MASK} in it (in capitals and brackets) to be filled")
    ids, positions = [tokenizer.cls_id, *first], []
    for piece in others:
        positions.append(len(ids))
        ids += [tokenizer.mask_id, *piece]
    ids.append(tokenizer.sep_id)
    if len(ids) > filler.network.max_positions:
        raise UsageError(
            f"{shown}: {len(ids):,} tokens with [CLS] and [SEP], but the model takes "
            f"{filler.network.max_positions:,}; shorten the text"
        )
    if filler.trained_length is not None and len(ids) > filler.trained_length:
        log.warning(
            f"{shown}: {len(ids):,} tokens with [CLS] and [SEP], but the model was pre-trained on up to "
            f"{filler.trained_length:,}; positions beyond that are untrained"
        )
    return [Context(text, number, ids, position) for number, position in enumerate(positions)]


def fill_mask(
    filler: MaskFiller, texts: Sequence[str], top: int, candidates: int, runtime: Runtime
) -> list[dict[str, Any]]:
    """The `top` answers for each [MASK] of each text, the other [MASK]s of a text left as they are.

    The fields are those of `electra.fill_mask`.

    Raises:
        UsageError: a number out of range; no text, one without [MASK], or one that is too long.
    """
    check_numbers(top, candidates)
    if not texts:
        raise UsageError(f"there is no text to be filled; name one with {MASK} in it")
    asked = [context for text in texts for context in contexts(text, filler)]
    network = filler.network.to(runtime.device)
    number = candidates if isinstance(network, ElectraAsMaskedLM) else top
    rows = []
    for start in range(0, len(asked), ROWS):
        some = asked[start : start + ROWS]
        ids = [context.ids for context in some]
        batch = pad_batch(ids, [len(each) for each in ids], filler.tokenizer.pad_id).to(runtime.device)
        positions = torch.tensor([context.position for context in some], device=runtime.device)
        with runtime.autocast():
            guesses = network(batch, positions, number)
        for row, context in enumerate(some):
            rows.append({"text": context.text, "mask": context.mask, "answers": answers(guesses, row, top, filler)})
    return rows


def check_numbers(top: int, candidates: int) -> None:
    """Raise a `UsageError` if one is out of range."""
    for name, value in (("--top", top), ("--candidates", candidates)):
        if value < 1:
            raise UsageError(f"{name} is {value}; it must be at least 1")
    if top > candidates:
        raise UsageError(f"--top {top} is more than --candidates {candidates}; raise --candidates")


def answers(guesses: Guesses, row: int, top: int, filler: MaskFiller) -> list[dict[str, Any]]:
    """The best guesses of a row as records."""
    tokens, *numbers = (getattr(guesses, field.name)[row, :top].tolist() for field in fields(guesses))
    names = ["token", *(field.name for field in fields(guesses)[1:])]
    return [
        dict(zip(names, values, strict=True)) for values in zip(filler.tokenizer.tokens(tokens), *numbers, strict=True)
    ]
