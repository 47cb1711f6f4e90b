"""Fill the [MASK]s of a text with an ELECTRA (Appendix G) or a masked language model from a directory."""

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
from electra.pretraining.build import build_vocabulary
from electra.pretraining.config import PretrainConfig
from electra.pretraining.evaluation.discriminator_mlm import (
    Candidates,
    ElectraAsMaskedLM,
    PlainMaskedLM,
    compute_unmasked_per_masked,
)
from electra.pretraining.objectives.masking import MaskingConfig
from electra.pretraining.objectives.networks import Discriminator, MaskedLM
from electra.pretraining.objectives.spec import OBJECTIVES
from electra.pretraining.run_directory import RunDirectory
from electra.pretraining.warm_start import check_exists, find_generator_directory, find_main_directory, load_into
from electra.runtime.setup import Runtime
from electra.text.tokenizer import Tokenizer, load_tokenizer

log = logging.getLogger(__name__)


MASK = "[MASK]"
BATCH_SIZE = 32
"""Masked positions per batch."""

Network = TypeVar("Network", MaskedLM, Discriminator)


@dataclass(frozen=True)
class MaskFiller:
    """A model that fills [MASK]s, with its tokenizer."""

    network: ElectraAsMaskedLM | PlainMaskedLM
    tokenizer: Tokenizer
    trained_length: int | None
    """Longest sequence of its pre-training, if a run's configuration has it."""


class Context(NamedTuple):
    """A text and the one [MASK] in it to fill; the others stay."""

    text: str
    mask: int
    """Index of the [MASK] in the text, from 0."""
    ids: list[int]
    """`[CLS] text [SEP]`."""
    position: int


def load_filler(model: Path, mask_fraction: float | None = None) -> MaskFiller:
    """Load generator and discriminator of a finished run (or a folder like it), or a masked language model.

    `mask_fraction` is p_mask; by default that of the run's configuration.

    Raises:
        ModelError: none of these; a discriminator without a generator or with another tokenizer; a network that was not
            trained on [MASK].
        RunError: the run is not finished.
        UsageError: p_mask is not known, or given for a model without a discriminator.
    """
    check_exists(model)
    main, run = find_main_directory(model), RunDirectory(model)
    if main == model and run.config.exists():
        raise RunError(
            "unfinished", f"{model}: the run is not finished, so it has no networks yet; run electra pretrain again"
        )
    config = run.load_config() if run.config.exists() else None
    load_config(main)
    heads = find_pretraining_heads(main)
    if not heads:
        raise ModelError(
            "no-head",
            f"{main}: has no pre-training head; it is an encoder without a head, or a fine-tuned model; name a run of "
            "electra pretrain, or a masked language model",
        )
    tokenizer = load_tokenizer(main)
    if "replaced-token" in heads:
        discriminator = load_network(main, Discriminator, "replaced-token", tokenizer)
        return load_electra_filler(model, main, discriminator, tokenizer, mask_fraction, config)
    if mask_fraction is not None:
        raise UsageError(
            "meaningless-option", f"--mask-fraction applies to an ELECTRA only; {main} is a masked language model"
        )
    if config is not None and OBJECTIVES[config.objective].corruption != "masks":
        raise ModelError(
            "no-mask-token", f"{main}: was not trained on text with [MASK]; use {model / 'generator'}, which was"
        )
    network = load_network(main, MaskedLM, "masked-lm", tokenizer)
    return MaskFiller(
        PlainMaskedLM(network, build_vocabulary(tokenizer)).eval(), tokenizer, config.seq_len if config else None
    )


def load_electra_filler(
    model: Path,
    main: Path,
    discriminator: Discriminator,
    tokenizer: Tokenizer,
    mask_fraction: float | None,
    config: PretrainConfig | None,
) -> MaskFiller:
    """Load the generator and combine it with the discriminator."""
    directory = find_generator_directory(model)
    if directory is None:
        sibling = find_generator_directory(main.parent)
        advice = (
            f"name {main.parent}, which contains both"
            if sibling
            else "name a folder with discriminator/ and generator/"
        )
        if config is not None and config.generator.kind != "masked-lm":
            raise ModelError(
                "not-masked-lm",
                f"{model}: its generator is {config.generator.kind} samples, not a network that predicts tokens from a "
                "context; name a run with --generator.kind masked-lm",
            )
        raise ModelError(
            "not-masked-lm", f"{main}: a discriminator, which ranks the candidates of its generator; {advice}"
        )
    if load_tokenizer(directory).fingerprint != tokenizer.fingerprint:
        raise ModelError(
            "other-tokenizer",
            f"{directory}: its tokenizer differs from that of {main}; use a generator and a discriminator of the same run",
        )
    generator = load_network(directory, MaskedLM, "masked-lm", tokenizer)
    a, temperature = resolve_sampling(model, mask_fraction, config)
    network = ElectraAsMaskedLM(generator, discriminator, build_vocabulary(tokenizer), a, temperature)
    return MaskFiller(network.eval(), tokenizer, config.seq_len if config else None)


def load_network(directory: Path, kind: type[Network], head: str, tokenizer: Tokenizer) -> Network:
    """Build a network with the weights of a Hugging Face directory."""
    pretrained = load_pretrained(directory)
    network = kind(replace(pretrained.config, vocab_size=tokenizer.vocab_size))
    load_into(network, pretrained, head)
    return network


def resolve_sampling(model: Path, mask_fraction: float | None, config: PretrainConfig | None) -> tuple[float, float]:
    """Return the paper's a and the sampling temperature of the generator, as in pre-training."""
    if config is not None:
        fraction = config.masking.fraction if mask_fraction is None else MaskingConfig(mask_fraction).fraction
        masked_only = OBJECTIVES[config.objective].scored == "masked"
        if options := find_violated_assumptions(config):
            log.warning(
                f"{model}: trained with {' and '.join(options)}, for which the formula of Appendix G is an approximation",
                extra={"code": "inexact-formula"},
            )
        return compute_unmasked_per_masked(fraction, masked_only), config.generator.temperature
    if mask_fraction is None:
        raise UsageError(
            "missing-option",
            f"{model}: has no {RunDirectory(model).config.name} with the share of tokens masked in "
            "pre-training; give --mask-fraction (in the paper 0.15, for Large 0.25)",
        )
    return compute_unmasked_per_masked(MaskingConfig(mask_fraction).fraction, masked_only=False), 1.0


def find_violated_assumptions(config: PretrainConfig) -> list[str]:
    """Return the options of a run that violate the formula's assumptions: uniform masking with p_mask, samples from p_G."""
    violations = {
        "generator.exclude_original_token": config.generator.exclude_original_token,
        "masking.with_replacement": config.masking.with_replacement,
        "masking.strategy": config.masking.strategy != "uniform",
        "contrast.weight": config.contrast.weight > 0,
    }
    return [name for name, violated in violations.items() if violated]


def build_contexts(text: str, filler: MaskFiller) -> list[Context]:
    """Build one context per [MASK] of a text; log a warning if the text is longer than the training sequences.

    Raises:
        UsageError: no [MASK], or more tokens than the model's positions.
    """
    tokenizer, shown = filler.tokenizer, repr(textwrap.shorten(text, 60))
    first, *others = tokenizer.encode_lines(text.split(MASK))
    if not others:
        raise UsageError("no-mask", f"{shown}: has no {MASK} (in capitals and brackets) to fill")
    ids, positions = [tokenizer.cls_id, *first], []
    for piece in others:
        positions.append(len(ids))
        ids += [tokenizer.mask_id, *piece]
    ids.append(tokenizer.sep_id)
    if len(ids) > filler.network.max_positions:
        raise UsageError(
            "longer-than-model",
            f"{shown}: {len(ids):,} tokens with [CLS] and [SEP], but the model has "
            f"{filler.network.max_positions:,} positions; shorten the text",
        )
    if filler.trained_length is not None and len(ids) > filler.trained_length:
        log.warning(
            f"{shown}: {len(ids):,} tokens with [CLS] and [SEP], but the model was pre-trained on up to "
            f"{filler.trained_length:,}; positions beyond that are untrained",
            extra={"code": "longer-than-pretraining"},
        )
    return [Context(text, number, ids, position) for number, position in enumerate(positions)]


def fill_mask(
    filler: MaskFiller, texts: Sequence[str], top: int, candidates: int, runtime: Runtime
) -> list[dict[str, Any]]:
    """Return the `top` answers for each [MASK] of each text; the other [MASK]s of the text stay.

    The fields are those of `electra.fill_mask`.

    Raises:
        UsageError: a number is out of range; no text, or one without [MASK] or too long.
    """
    check_numbers(top, candidates)
    if not texts:
        raise UsageError("no-text", f"no text to fill; give one with {MASK}")
    contexts = [context for text in texts for context in build_contexts(text, filler)]
    network = filler.network.to(runtime.device)
    number = candidates if isinstance(network, ElectraAsMaskedLM) else top
    rows = []
    for start in range(0, len(contexts), BATCH_SIZE):
        chunk = contexts[start : start + BATCH_SIZE]
        ids = [context.ids for context in chunk]
        batch = pad_batch(ids, [len(each) for each in ids], filler.tokenizer.pad_id).to(runtime.device)
        positions = torch.tensor([context.position for context in chunk], device=runtime.device)
        with runtime.autocast():
            found = network(batch, positions, number)
        for row, context in enumerate(chunk):
            rows.append({"text": context.text, "mask": context.mask, "answers": build_answers(found, row, top, filler)})
    return rows


def check_numbers(top: int, candidates: int) -> None:
    """Raise a `UsageError` if a number is out of range."""
    for name, value in (("--top", top), ("--candidates", candidates)):
        if value < 1:
            raise UsageError("out-of-range", f"{name} is {value}; it must be at least 1")
    if top > candidates:
        raise UsageError("out-of-range", f"--top {top} is more than --candidates {candidates}; raise --candidates")


def build_answers(candidates: Candidates, row: int, top: int, filler: MaskFiller) -> list[dict[str, Any]]:
    """Convert the best candidates of a row to records."""
    tokens, *numbers = (getattr(candidates, field.name)[row, :top].tolist() for field in fields(candidates))
    names = ["token", *(field.name for field in fields(candidates)[1:])]
    return [
        dict(zip(names, values, strict=True)) for values in zip(filler.tokenizer.tokens(tokens), *numbers, strict=True)
    ]
