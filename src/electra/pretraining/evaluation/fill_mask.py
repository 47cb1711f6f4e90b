"""Fill the [MASK]s of a text with an ELECTRA (Appendix G) or a masked language model from a directory."""

import logging
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import torch

from electra.config.checks import check_number
from electra.data.loader import pad_batch
from electra.errors import UsageError
from electra.pretraining.build import build_vocabulary
from electra.pretraining.evaluation.discriminator_mlm import (
    Candidates,
    ElectraAsMaskedLM,
    PlainMaskedLM,
)
from electra.pretraining.evaluation.networks import find_networks, load_generator, load_network, resolve_sampling
from electra.pretraining.objectives.networks import Discriminator, MaskedLM
from electra.runtime.setup import Runtime
from electra.text.tokenizer import Tokenizer, load_tokenizer

log = logging.getLogger(__name__)


MASK = "[MASK]"
BATCH_SIZE = 32
"""Masked positions per batch."""


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
    found = find_networks(model)
    tokenizer = load_tokenizer(found.main)
    length = found.config.seq_len if found.config else None
    vocabulary = build_vocabulary(tokenizer)
    if not found.is_electra:
        found.check_masked_lm(mask_fraction)
        network = load_network(found.main, MaskedLM, "masked-lm", tokenizer)
        return MaskFiller(PlainMaskedLM(network, vocabulary).eval(), tokenizer, length)
    discriminator = load_network(found.main, Discriminator, "replaced-token", tokenizer)
    generator = load_generator(found, tokenizer)
    if generator is None:
        raise found.make_no_generator_error()
    a, temperature = resolve_sampling(found, mask_fraction)
    electra = ElectraAsMaskedLM(generator, discriminator, vocabulary, a, temperature)
    return MaskFiller(electra.eval(), tokenizer, length)


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
    check_number("--top", top, at_least=1)
    check_number("--candidates", candidates, at_least=1)
    if top > candidates:
        raise UsageError("out-of-range", f"--top {top} is more than --candidates {candidates}; raise --candidates")


def build_answers(candidates: Candidates, row: int, top: int, filler: MaskFiller) -> list[dict[str, Any]]:
    """Convert the best candidates of a row to records."""
    tokens, *numbers = (getattr(candidates, field.name)[row, :top].tolist() for field in fields(candidates))
    names = ["token", *(field.name for field in fields(candidates)[1:])]
    return [
        dict(zip(names, values, strict=True)) for values in zip(filler.tokenizer.tokens(tokens), *numbers, strict=True)
    ]
