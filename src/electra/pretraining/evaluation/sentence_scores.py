"""Scores of sentences: pseudo-log-likelihood of a masked LM, the discriminator's log P(original), and both (Appendix G).

The score of a sentence is the sum over its tokens, [CLS] and [SEP] left out, of a log-probability given all other tokens:

- masked-lm: log p(token), with this token masked; a forward pass for each token (Salazar et al., 2020);
- discriminator: log P(original) of each token of the untouched sentence, in one forward pass;
- both: log D p_G / (a (1 - D) + p_G), with p_G of the generator and D of the discriminator (paper, Appendix G).
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from electra.config.checks import check_choice
from electra.data.batch import Batch
from electra.errors import UsageError
from electra.pretraining.evaluation.discriminator_mlm import log_data_probability
from electra.pretraining.evaluation.networks import find_networks, load_generator, load_network, resolve_sampling
from electra.pretraining.evaluation.sentence_batches import iterate_masked, iterate_sentences
from electra.pretraining.objectives.networks import Discriminator, MaskedLM
from electra.runtime.setup import Runtime
from electra.text.tokenizer import Tokenizer, load_tokenizer


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
    """The main encoder where it predicts masked tokens, otherwise the generator."""
    discriminator: Discriminator | None = None
    generator: MaskedLM | None = None
    formula: Formula | None = None

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that the networks can compute, by name."""
        networks = {"discriminator": self.discriminator, "masked-lm": self.masked_lm, "generator": self.generator}
        return tuple(
            name
            for name, method in METHODS.items()
            if all(networks[each] is not None for each in method.networks) and (name != "both" or self.formula)
        )

    @property
    def max_positions(self) -> int:
        """Tokens of the longest input."""
        networks = (self.masked_lm, self.discriminator, self.generator)
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
        return Scorer(tokenizer, load_network(found.main, MaskedLM, "masked-lm", tokenizer).eval())
    own = load_network(found.main, MaskedLM, "masked-lm", tokenizer).eval() if found.predicts_tokens else None
    discriminator = load_network(found.main, Discriminator, "replaced-token", tokenizer).eval()
    generator = load_generator(found, tokenizer)
    if generator is None:
        if mask_fraction is not None:
            raise UsageError(
                "meaningless-option", f"--mask-fraction applies to both networks; {model} has no generator"
            )
        return Scorer(tokenizer, own, discriminator)
    known = found.config is not None or mask_fraction is not None
    formula = Formula(*resolve_sampling(found, mask_fraction)) if known else None
    return Scorer(tokenizer, own or generator.eval(), discriminator, generator.eval(), formula)


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
        progress: Called with the percentage of the work that is done, and the network.
        places: Sentence -> file and line, for messages.

    Raises:
        UsageError: a sentence has no tokens, or more than the model has positions.
    """
    unique = list(dict.fromkeys(sentences))
    encoded = encode_sentences(unique, scorer, places)
    networks = {network for method in methods for network in METHODS[method].networks}
    tokens = compute_token_scores(scorer, encoded, networks, runtime, progress)
    by_method = {}
    for method in methods:
        totals = torch.zeros(len(unique), dtype=torch.float64)
        totals.index_add_(0, number_sentences(encoded), METHODS[method].log_probability(scorer, tokens).double())
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


class TokenScores(NamedTuple):
    """What the networks compute for each token of all sentences, one after the other, without [CLS] and [SEP].

    A network that no method needs has no values.
    """

    replaced: Float[Tensor, " N"]
    """The discriminator's logit in the untouched sentence, positive for replaced."""
    masked_lm: Float[Tensor, " N"]
    """The masked LM's log-probability of the token, with this token masked."""
    sampled: Float[Tensor, " N"]
    """The generator's, as in sampling: without [MASK], at the temperature of pre-training."""


def number_sentences(encoded: Sequence[list[int]]) -> Int64[Tensor, " N"]:
    """Return the number of the sentence of each token."""
    return torch.arange(len(encoded)).repeat_interleave(torch.tensor([len(ids) - 2 for ids in encoded]))


def compute_token_scores(
    scorer: Scorer,
    encoded: Sequence[list[int]],
    networks: Collection[str],
    runtime: Runtime,
    progress: Callable[[int, str], None],
) -> TokenScores:
    """Run the networks (discriminator, masked LM, generator) on tokenized sentences."""
    lengths = torch.tensor([len(ids) for ids in encoded])
    starts = (lengths - 2).cumsum(0) - (lengths - 2)
    predictors = {"masked-lm": scorer.masked_lm, "generator": scorer.generator}
    selected = {predictors[network] for network in networks if network in predictors}  # one, if they are the same
    # A masked LM reads a sentence once for each of its tokens.
    passes = [lengths * ("discriminator" in networks), *(lengths * (lengths - 2) for _ in selected)]
    total, done = sum(int(each.sum()) for each in passes), 0
    number = int((lengths - 2).sum())
    replaced, masked_lm, sampled = (torch.zeros(number) for _ in range(3))
    if "discriminator" in networks:
        for rows, batch in iterate_sentences(encoded, scorer.tokenizer.pad_id):
            logits = compute_replaced_logits(scorer, batch, runtime)
            for row, each in zip(rows.tolist(), logits, strict=True):
                length = len(encoded[row]) - 2
                replaced[starts[row] : starts[row] + length] = each[1 : length + 1]
            done += int(batch.lengths.sum())
            progress(100 * done // total, "discriminator")
    for network in selected:
        assert network is not None
        for rows, batch, positions, targets in iterate_masked(encoded, scorer.tokenizer):
            tokens = starts[rows] + positions[:, 0] - 1
            log_p, log_sampled = compute_masked_scores(network, scorer, batch, positions, targets, runtime)
            if network is scorer.masked_lm:
                masked_lm[tokens] = log_p
            if network is scorer.generator:
                sampled[tokens] = log_sampled
            done += int(batch.lengths.sum())
            progress(100 * done // total, "masked LM")
    return TokenScores(replaced, masked_lm, sampled)


@torch.inference_mode()
def compute_replaced_logits(scorer: Scorer, batch: Batch, runtime: Runtime) -> Float[Tensor, "B L"]:
    """Compute the discriminator's logits of a batch, on the CPU."""
    assert scorer.discriminator is not None
    network, batch = scorer.discriminator.to(runtime.device), batch.to(runtime.device)
    return network(batch.input_ids, batch.token_type_ids, batch.attention_mask).float().cpu()


@torch.inference_mode()
def compute_masked_scores(
    network: MaskedLM,
    scorer: Scorer,
    batch: Batch,
    positions: Int64[Tensor, "B 1"],
    targets: Int64[Tensor, "B 1"],
    runtime: Runtime,
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """Compute the last two fields of `TokenScores` for one masked token in each row, on the CPU."""
    network, batch = network.to(runtime.device), batch.to(runtime.device)
    positions, targets = positions.to(runtime.device), targets.to(runtime.device)
    logits = network(batch.input_ids, batch.token_type_ids, batch.attention_mask, positions)[:, 0].float()
    log_p = logits.log_softmax(-1).gather(1, targets)[:, 0]
    logits = logits / (scorer.formula.temperature if scorer.formula else 1.0)
    logits[:, scorer.tokenizer.mask_id] = -math.inf
    return log_p.cpu(), logits.log_softmax(-1).gather(1, targets)[:, 0].cpu()


def join_networks(scorer: Scorer, tokens: TokenScores) -> Float[Tensor, " N"]:
    """Compute the formula's log p_data of each token.

    D is that of the untouched sentence, which has each token in its place.
    """
    assert scorer.formula is not None
    return log_data_probability(tokens.replaced, tokens.sampled, scorer.formula.unmasked_per_masked)


@dataclass(frozen=True)
class Method:
    """A score of a sentence: the sum of a log-probability over its tokens."""

    networks: tuple[str, ...]
    """Networks that it needs."""
    log_probability: Callable[[Scorer, TokenScores], Float[Tensor, " N"]]


METHODS = {
    "discriminator": Method(("discriminator",), lambda scorer, tokens: F.logsigmoid(-tokens.replaced)),
    "masked-lm": Method(("masked-lm",), lambda scorer, tokens: tokens.masked_lm),
    "both": Method(("discriminator", "generator"), join_networks),
}
"""Methods by name; "both" also needs `Scorer.formula`."""
