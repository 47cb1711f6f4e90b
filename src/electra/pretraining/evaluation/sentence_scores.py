"""Scores of sentences: pseudo-log-likelihood of a masked LM, the discriminator's log P(original), and both (Appendix G).

The score of a sentence is the sum over its tokens, [CLS] and [SEP] left out, of a log-probability given all other tokens:

- masked-lm: log p(token), with this token masked; a forward pass for each token (Salazar et al., 2020);
- discriminator: log P(original) of each token of the untouched sentence, in one forward pass;
- both: log D p_G / (a (1 - D) + p_G), with p_G of the generator and D of the discriminator (paper, Appendix G).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from electra.config.checks import check_choice
from electra.data.loader import Batch, pad_batch
from electra.errors import UsageError
from electra.pretraining.evaluation.discriminator_mlm import log_data_probability
from electra.pretraining.evaluation.networks import find_networks, load_generator, load_network, resolve_sampling
from electra.pretraining.objectives.networks import Discriminator, MaskedLM
from electra.runtime.setup import Runtime
from electra.text.tokenizer import Tokenizer, load_tokenizer

BATCH_TOKENS = 8_192
"""Tokens per forward pass, with padding."""


@dataclass(frozen=True)
class Formula:
    """What Appendix G's formula needs beside the two networks."""

    unmasked_per_masked: float
    """The paper's a = (1 - p_mask) / p_mask."""
    temperature: float
    """The generator's sampling temperature in pre-training."""


@dataclass(frozen=True)
class Scorer:
    """The networks of a model that score sentences, in float32, and their tokenizer."""

    tokenizer: Tokenizer
    masked_lm: MaskedLM | None
    discriminator: Discriminator | None
    formula: Formula | None

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that the networks can compute, by name."""
        available = {
            "discriminator": self.discriminator is not None,
            "masked-lm": self.masked_lm is not None,
            "both": self.discriminator is not None and self.masked_lm is not None and self.formula is not None,
        }
        return tuple(name for name in METHODS if available[name])

    @property
    def max_positions(self) -> int:
        """Tokens of the longest input."""
        networks = (self.masked_lm, self.discriminator)
        return min(network.config.max_positions for network in networks if network is not None)


class SentenceScore(NamedTuple):
    """The score of a sentence in nats."""

    total: float
    tokens: int

    @property
    def mean(self) -> float:
        """The score per token."""
        return self.total / self.tokens


def load_scorer(model: Path, mask_fraction: float | None = None) -> Scorer:
    """Load the networks of a finished run, of a folder with discriminator/ and generator/, or of one Hugging Face directory.

    `mask_fraction` is p_mask; by default that of the run's configuration. Without either, "both" is not available.

    Raises:
        ModelError: none of these, a network without a pre-training head, or two networks with different tokenizers.
        RunError: the run is not finished.
        UsageError: p_mask is given for a model that lacks one of the two networks.
    """
    found = find_networks(model)
    tokenizer = load_tokenizer(found.main)
    if not found.is_electra:
        found.check_masked_lm(mask_fraction)
        return Scorer(tokenizer, load_network(found.main, MaskedLM, "masked-lm", tokenizer).eval(), None, None)
    discriminator = load_network(found.main, Discriminator, "replaced-token", tokenizer).eval()
    generator = load_generator(found, tokenizer)
    if generator is None:
        if mask_fraction is not None:
            raise UsageError(
                "meaningless-option", f"--mask-fraction applies to both networks; {model} has no generator"
            )
        return Scorer(tokenizer, None, discriminator, None)
    known = found.config is not None or mask_fraction is not None
    formula = Formula(*resolve_sampling(found, mask_fraction)) if known else None
    return Scorer(tokenizer, generator.eval(), discriminator, formula)


def check_methods(scorer: Scorer, methods: Sequence[str], model: str) -> tuple[str, ...]:
    """Return the methods to compute, by default all that the scorer has.

    Raises:
        UsageError: there is no method of a name, or the model lacks a network for it.
    """
    for name in methods:
        check_choice("--methods", name, METHODS)
        if name not in scorer.methods:
            raise UsageError(
                "no-method", f"{model}: cannot score by {name}; its networks can score by {', '.join(scorer.methods)}"
            )
    return tuple(dict.fromkeys(methods)) or scorer.methods


def score_sentences(
    scorer: Scorer,
    sentences: Sequence[str],
    methods: Sequence[str],
    runtime: Runtime,
    progress: Callable[[int, str], None] = lambda number, detail: None,
    places: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, list[SentenceScore]]:
    """Score sentences by each of the methods; equal sentences are scored once.

    Args:
        scorer: From `load_scorer`.
        sentences: Any number of texts.
        methods: Names of `scorer.methods`.
        runtime: Device; its precision is float32.
        progress: Called with the percentage of the work that is done, and the method.
        places: Sentence -> file and line, for messages.

    Raises:
        UsageError: a sentence has no tokens, or more than the model has positions.
    """
    unique = list(dict.fromkeys(sentences))
    encoded = encode_sentences(unique, scorer, places)
    total = len(methods) * sum(len(ids) - 2 for ids in encoded)
    by_method = {}
    done = 0
    for method in methods:
        totals = torch.zeros(len(unique), dtype=torch.float64)
        for rows, log_p in METHODS[method](scorer, encoded, runtime):
            totals.index_add_(0, rows, log_p.double().cpu())
            done += len(rows)
            progress(100 * done // total, method)
        scores = {
            text: SentenceScore(float(score), len(ids) - 2)
            for text, ids, score in zip(unique, encoded, totals, strict=True)
        }
        by_method[method] = [scores[text] for text in sentences]
    return by_method


def encode_sentences(sentences: Sequence[str], scorer: Scorer, places: Mapping[str, str]) -> list[list[int]]:
    """Tokenize to [CLS] tokens [SEP]. Raises a `UsageError` for a sentence that is empty or too long."""
    tokenizer, limit = scorer.tokenizer, scorer.max_positions
    encoded = [[tokenizer.cls_id, *ids, tokenizer.sep_id] for ids in tokenizer.encode_lines(list(sentences))]
    for text, ids in zip(sentences, encoded, strict=True):
        where = places.get(text) or repr(text[:60])
        if len(ids) == 2:
            raise UsageError("no-tokens", f"{where}: the sentence has no tokens to score")
        if len(ids) > limit:
            raise UsageError(
                "longer-than-model",
                f"{where}: {len(ids):,} tokens with [CLS] and [SEP], but the model has {limit:,} positions; shorten it",
            )
    return encoded


TokenScoreBatches = Iterator[tuple[Int64[Tensor, " R"], Float[Tensor, " R"]]]
"""Numbers of sentences, each as often as it has tokens in a batch, and the log-probability of each token."""


def score_by_discriminator(scorer: Scorer, encoded: Sequence[list[int]], runtime: Runtime) -> TokenScoreBatches:
    """Yield log P(original) of each token of the untouched sentences."""
    for rows, batch in iterate_sentences(encoded, scorer.tokenizer.pad_id):
        rows_of_tokens, logits = compute_replaced_logits(scorer, rows, batch, runtime)
        yield rows_of_tokens, F.logsigmoid(-logits)


def score_by_masked_lm(scorer: Scorer, encoded: Sequence[list[int]], runtime: Runtime) -> TokenScoreBatches:
    """Yield log p of each token, with this token masked."""
    assert scorer.masked_lm is not None
    network = scorer.masked_lm.to(runtime.device)
    for rows, batch, positions, targets in iterate_masked(encoded, scorer.tokenizer):
        device_batch, at = batch.to(runtime.device), positions.to(runtime.device)
        with torch.inference_mode():
            output = network(
                device_batch.input_ids,
                device_batch.token_type_ids,
                device_batch.attention_mask,
                at,
                targets=targets.to(runtime.device),
            )
        yield rows, -output.scores.nll[:, 0]


def score_by_both(scorer: Scorer, encoded: Sequence[list[int]], runtime: Runtime) -> TokenScoreBatches:
    """Yield the formula's log p_data of each token.

    p_G excludes [MASK] and has the temperature of sampling in pre-training; D is that of the untouched sentence, which has
    each token in its place.
    """
    assert scorer.masked_lm is not None
    assert scorer.formula is not None
    network = scorer.masked_lm.to(runtime.device)
    by_row: dict[int, list[Tensor]] = {}
    for rows, batch in iterate_sentences(encoded, scorer.tokenizer.pad_id):
        tokens, logits = compute_replaced_logits(scorer, rows, batch, runtime)
        for row in rows.tolist():
            by_row[row] = list(logits[tokens == row])
    for rows, batch, positions, targets in iterate_masked(encoded, scorer.tokenizer):
        device_batch, at = batch.to(runtime.device), positions.to(runtime.device)
        with torch.inference_mode():
            logits = network(device_batch.input_ids, device_batch.token_type_ids, device_batch.attention_mask, at)
        scores = logits[:, 0].float() / scorer.formula.temperature
        scores[:, scorer.tokenizer.mask_id] = -math.inf
        log_generator = scores.log_softmax(-1).gather(1, targets.to(runtime.device))[:, 0]
        replaced = torch.stack(
            [by_row[row][position - 1] for row, position in zip(rows.tolist(), positions[:, 0].tolist(), strict=True)]
        )
        yield rows, log_data_probability(replaced, log_generator, scorer.formula.unmasked_per_masked)


def compute_replaced_logits(
    scorer: Scorer, rows: Int64[Tensor, " B"], batch: Batch, runtime: Runtime
) -> tuple[Int64[Tensor, " R"], Float[Tensor, " R"]]:
    """Return the sentence of each token and the discriminator's logit, positive for replaced, without [CLS] and [SEP]."""
    assert scorer.discriminator is not None
    network = scorer.discriminator.to(runtime.device)
    batch = batch.to(runtime.device)
    with torch.inference_mode():
        logits = network(batch.input_ids, batch.token_type_ids, batch.attention_mask).float()
    position = torch.arange(logits.shape[1], device=logits.device)
    inside = (position > 0) & (position < batch.lengths.to(logits.device)[:, None] - 1)
    return rows[:, None].expand(inside.shape)[inside.cpu()], logits[inside]


def iterate_sentences(encoded: Sequence[list[int]], pad_id: int) -> Iterator[tuple[Int64[Tensor, " B"], Batch]]:
    """Yield sentences in batches of similar length, with their numbers."""
    order = sorted(range(len(encoded)), key=lambda row: len(encoded[row]))
    start = 0
    while start < len(order):
        size = 1
        while start + size < len(order) and (size + 1) * len(encoded[order[start + size]]) <= BATCH_TOKENS:
            size += 1
        rows = order[start : start + size]
        ids = [encoded[row] for row in rows]
        yield torch.tensor(rows), pad_batch(ids, [len(each) for each in ids], pad_id)
        start += size


def iterate_masked(
    encoded: Sequence[list[int]], tokenizer: Tokenizer
) -> Iterator[tuple[Int64[Tensor, " B"], Batch, Int64[Tensor, "B 1"], Int64[Tensor, "B 1"]]]:
    """Yield every sentence once for each of its tokens, with this token masked, in batches of one length.

    A batch comes with the numbers of the sentences, the masked positions, and the tokens that were there.
    """
    order = sorted(range(len(encoded)), key=lambda row: len(encoded[row]))
    for length, group in groupby(order, key=lambda row: len(encoded[row])):
        numbers = torch.tensor(list(group))
        ids = torch.tensor([encoded[row] for row in numbers.tolist()])
        inside = length - 2
        rows = torch.arange(len(ids)).repeat_interleave(inside)
        positions = (torch.arange(inside) + 1).repeat(len(ids))[:, None]
        for row, at in zip(
            rows.split(max(1, BATCH_TOKENS // length)),
            positions.split(max(1, BATCH_TOKENS // length)),
            strict=True,
        ):
            targets = ids[row].gather(1, at)
            masked = ids[row].scatter(1, at, tokenizer.mask_id)
            yield numbers[row], pad_batch(list(masked.numpy()), [length] * len(masked), tokenizer.pad_id), at, targets


METHODS: dict[str, Callable[[Scorer, Sequence[list[int]], Runtime], TokenScoreBatches]] = {
    "discriminator": score_by_discriminator,
    "masked-lm": score_by_masked_lm,
    "both": score_by_both,
}
"""Methods by name: what each needs is decided in `Scorer.methods`."""
