"""Scores of tokens by the networks of this package: masked LM, discriminator, and both (Appendix G).

- masked-lm: log p(token), with this token masked; a forward pass for each token (Salazar et al., 2020);
- discriminator: log P(original) of each token of the untouched sentence, in one forward pass;
- both: log D p_G / (a (1 - D) + p_G), with p_G of the generator and D of the discriminator (paper, Appendix G).
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from electra.data.batch import Batch
from electra.errors import UsageError
from electra.pretraining.evaluation.discriminator_mlm import log_data_probability
from electra.pretraining.evaluation.networks import find_networks, load_generator, load_network, resolve_sampling
from electra.pretraining.evaluation.sentence_batches import (
    MaskedBatch,
    TokenizedSentence,
    count_masked_tokens,
    gather_log_probabilities,
    iterate_masked,
    iterate_sentences,
)
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
class NetworkScorer:
    """The networks of a model that score sentences, and their tokenizer; a `Scorer`."""

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

    def encode(self, sentences: Sequence[str]) -> list[TokenizedSentence]:
        """Tokenize to [CLS] tokens [SEP]."""
        cls_id, sep_id = self.tokenizer.cls_id, self.tokenizer.sep_id
        return [
            TokenizedSentence([cls_id, *ids, sep_id], [0] * (len(ids) + 2), list(range(1, len(ids) + 1)))
            for ids in self.tokenizer.encode_lines(list(sentences))
        ]

    def score_tokens(
        self,
        sentences: Sequence[TokenizedSentence],
        methods: Sequence[str],
        runtime: Runtime,
        progress: Callable[[int, str], None],
    ) -> dict[str, Float[Tensor, " N"]]:
        """See `Scorer`. Methods share the forward passes of their networks."""
        networks = {network for method in methods for network in METHODS[method].networks}
        tokens = compute_token_scores(self, sentences, networks, runtime, progress)
        return {method: METHODS[method].log_probability(self, tokens) for method in methods}


def load_network_scorer(model: Path, mask_fraction: float | None = None) -> NetworkScorer:
    """Load the networks of a finished run, of a folder with discriminator/ and generator/, or of one directory of either.

    Raises: see `load_scorer`.
    """
    found = find_networks(model)
    tokenizer = load_tokenizer(found.main)
    if not found.is_electra:
        found.check_masked_lm(mask_fraction)
        return NetworkScorer(tokenizer, load_network(found.main, MaskedLM, "masked-lm", tokenizer).eval())
    own = load_network(found.main, MaskedLM, "masked-lm", tokenizer).eval() if found.predicts_tokens else None
    discriminator = load_network(found.main, Discriminator, "replaced-token", tokenizer).eval()
    generator = load_generator(found, tokenizer)
    if generator is None:
        if mask_fraction is not None:
            raise UsageError(
                "meaningless-option", f"--mask-fraction applies to both networks; {model} has no generator"
            )
        return NetworkScorer(tokenizer, own, discriminator)
    known = found.config is not None or mask_fraction is not None
    formula = Formula(*resolve_sampling(found, mask_fraction)) if known else None
    return NetworkScorer(tokenizer, own or generator.eval(), discriminator, generator.eval(), formula)


class TokenScores(NamedTuple):
    """What the networks compute for each scored token of all sentences, one after the other.

    A network that no method needs has zeros.
    """

    replaced: Float[Tensor, " N"]
    """The discriminator's logit in the untouched sentence, positive for replaced."""
    masked_lm: Float[Tensor, " N"]
    """The masked LM's log-probability of the token, with this token masked."""
    sampled: Float[Tensor, " N"]
    """The generator's, as in sampling: without [MASK], at the temperature of pre-training."""


@torch.inference_mode()
def compute_token_scores(
    scorer: NetworkScorer,
    sentences: Sequence[TokenizedSentence],
    networks: Collection[str],
    runtime: Runtime,
    progress: Callable[[int, str], None],
) -> TokenScores:
    """Run the networks (discriminator, masked LM, generator) on tokenized sentences."""
    counts = torch.tensor([len(each.scored) for each in sentences])
    ends = counts.cumsum(0)
    predictors = {"masked-lm": scorer.masked_lm, "generator": scorer.generator}
    selected = {predictors[network] for network in networks if network in predictors}  # one, if they are the same
    total = len(selected) * count_masked_tokens(sentences)
    total += sum(len(each.ids) for each in sentences) if "discriminator" in networks else 0
    done = 0
    replaced, masked_lm, sampled = (torch.zeros(int(counts.sum())) for _ in range(3))
    if "discriminator" in networks:
        for rows, batch in iterate_sentences(sentences, scorer.tokenizer.pad_id):
            logits = compute_replaced_logits(scorer, batch, runtime)
            for row, each in zip(rows.tolist(), logits, strict=True):
                replaced[ends[row] - counts[row] : ends[row]] = each[1 : counts[row] + 1]
            done += int(batch.lengths.sum())
            progress(100 * done // total, "discriminator")
    for network in selected:
        assert network is not None
        for masked in iterate_masked(sentences, scorer.tokenizer.mask_id):
            logits = compute_masked_logits(network, masked, runtime)
            if network is scorer.masked_lm and "masked-lm" in networks:
                masked_lm[masked.tokens] = gather_log_probabilities(logits, masked.targets)
            if network is scorer.generator and "generator" in networks:
                sampled[masked.tokens] = gather_log_probabilities(scale_as_sampled(scorer, logits), masked.targets)
            done += int(masked.batch.lengths.sum())
            progress(100 * done // total, "masked LM")
    return TokenScores(replaced, masked_lm, sampled)


def compute_replaced_logits(scorer: NetworkScorer, batch: Batch, runtime: Runtime) -> Float[Tensor, "B L"]:
    """Compute the discriminator's logits of a batch, on the CPU."""
    assert scorer.discriminator is not None
    network, batch = scorer.discriminator.to(runtime.device), batch.to(runtime.device)
    return network(batch.input_ids, batch.token_type_ids, batch.attention_mask).float().cpu()


def compute_masked_logits(network: MaskedLM, masked: MaskedBatch, runtime: Runtime) -> Float[Tensor, "B V"]:
    """Compute the logits of the masked token of each row."""
    network, batch, positions = network.to(runtime.device), masked.batch.to(runtime.device), masked.positions
    logits = network(batch.input_ids, batch.token_type_ids, batch.attention_mask, positions.to(runtime.device))
    return logits[:, 0].float()


def scale_as_sampled(scorer: NetworkScorer, logits: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
    """Convert logits to those that the generator samples from."""
    logits = logits / (scorer.formula.temperature if scorer.formula else 1.0)
    logits[:, scorer.tokenizer.mask_id] = -math.inf
    return logits


def join_networks(scorer: NetworkScorer, tokens: TokenScores) -> Float[Tensor, " N"]:
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
    log_probability: Callable[[NetworkScorer, TokenScores], Float[Tensor, " N"]]


METHODS = {
    "discriminator": Method(("discriminator",), lambda scorer, tokens: F.logsigmoid(-tokens.replaced)),
    "masked-lm": Method(("masked-lm",), lambda scorer, tokens: tokens.masked_lm),
    "both": Method(("discriminator", "generator"), join_networks),
}
"""Methods by name; "both" also needs `NetworkScorer.formula`."""
