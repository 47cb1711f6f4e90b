"""ELECTRA as a masked language model: the discriminator ranks the generator's candidates (Appendix G).

Letters of shapes as in `model.layers`; here K are the candidates for the one masked token of a row.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from electra.data.loader import Batch
from electra.pretraining.objectives.networks import Discriminator, MaskedLM
from electra.pretraining.objectives.spec import Vocabulary

CHUNK_TOKENS = 8_192
"""Tokens per pass of the discriminator: K rows for each row of a batch exceed memory or caches."""


def unmasked_per_masked(fraction: float, masked_only: bool) -> float:
    """The paper's a = (1 - p_mask) / p_mask: unmasked tokens per masked one in the discriminator's loss.

    If it was scored at the masked positions only (electra-15) there are none: a = 0, and its D is p_data itself.
    """
    return 0.0 if masked_only else (1 - fraction) / fraction


def log_data_probability(
    replaced: Float[Tensor, "*rows"], log_generator: Float[Tensor, "*rows"], unmasked_per_masked: float
) -> Float[Tensor, "*rows"]:
    """log p_data(x | c) = log [D p_G / (a (1 - D) + p_G)] for a discriminator that is optimal beside its generator.

    D = sigmoid(-replaced) is its probability that x is original, p_G = exp(log_generator) the probability with which the
    generator samples x. Never above 0; since no discriminator is optimal, the probabilities of all x need not add to 1.
    """
    log_a = math.log(unmasked_per_masked) if unmasked_per_masked else -math.inf
    log_evidence = torch.logaddexp(log_a + F.logsigmoid(replaced), log_generator)
    return F.logsigmoid(-replaced) + log_generator - log_evidence


@dataclass(frozen=True)
class Guesses:
    """Candidates for the masked position of each row, the likeliest first."""

    tokens: Int64[Tensor, "B K"]
    probability: Float64[Tensor, "B K"]


@dataclass(frozen=True)
class JudgedGuesses(Guesses):
    """Candidates of a generator, ranked by its discriminator."""

    generator: Float64[Tensor, "B K"]
    """The generator's probability of the token, p_G."""
    original: Float64[Tensor, "B K"]
    """The discriminator's probability that the token is original, D."""


class MaskedLMAlone(nn.Module):
    """A masked language model's own guesses: a BERT's, or a generator's without its discriminator."""

    def __init__(self, network: MaskedLM, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.network = network
        self.vocabulary = vocabulary
        self.max_positions = network.config.max_positions

    @torch.no_grad()
    def forward(self, batch: Batch, positions: Int64[Tensor, " B"], number: int) -> Guesses:
        """The `number` likeliest tokens at the position of each row, where the batch has [MASK]."""
        best, tokens = likeliest(self.network, batch, positions, number, self.vocabulary)
        return Guesses(tokens, best.exp())


class ElectraAsMaskedLM(nn.Module):
    """Generator and discriminator together: the formula over the generator's best candidates."""

    def __init__(
        self,
        generator: MaskedLM,
        discriminator: Discriminator,
        vocabulary: Vocabulary,
        unmasked_per_masked: float,
        temperature: float,
    ) -> None:
        super().__init__()
        self.generator = generator
        self.discriminator = discriminator
        self.vocabulary = vocabulary
        self.unmasked_per_masked = unmasked_per_masked
        self.temperature = temperature
        self.max_positions = min(generator.config.max_positions, discriminator.config.max_positions)

    @torch.no_grad()
    def forward(self, batch: Batch, positions: Int64[Tensor, " B"], number: int) -> JudgedGuesses:
        """The generator's `number` likeliest tokens at the position of each row, in the order of the formula.

        The generator reads the batch as it stands, with [MASK] at the positions; the discriminator reads each candidate in
        its place. p_G is what the generator samples from in pre-training: at its temperature, and never [MASK].
        """
        best, tokens = likeliest(self.generator, batch, positions, number, self.vocabulary, self.temperature)
        replaced = self.replaced_logits(batch, positions, tokens)
        log_data = log_data_probability(replaced, best, self.unmasked_per_masked)
        order = log_data.argsort(dim=1, descending=True, stable=True)
        ordered = (each.gather(1, order) for each in (tokens, log_data.exp(), best.exp(), replaced.neg().sigmoid()))
        return JudgedGuesses(*ordered)

    def replaced_logits(
        self, batch: Batch, positions: Int64[Tensor, " B"], tokens: Int64[Tensor, "B K"]
    ) -> Float64[Tensor, "B K"]:
        """The discriminator's logit of each token at the position of its row, every one in a sequence of its own."""
        at_once = max(1, CHUNK_TOKENS // batch.input_ids.shape[1])
        rows = torch.arange(len(tokens), device=tokens.device).repeat_interleave(tokens.shape[1])
        logits = []
        for row, token in zip(rows.split(at_once), tokens.flatten().split(at_once), strict=True):
            position = positions[row, None]
            ids = batch.input_ids[row].scatter(1, position, token[:, None])
            mask = None if batch.attention_mask is None else batch.attention_mask[row]
            logits.append(self.discriminator(ids, batch.token_type_ids[row], mask, position))
        return torch.cat(logits).double().view_as(tokens)


def likeliest(
    network: MaskedLM,
    batch: Batch,
    positions: Int64[Tensor, " B"],
    number: int,
    vocabulary: Vocabulary,
    temperature: float = 1.0,
) -> tuple[Float64[Tensor, "B K"], Int64[Tensor, "B K"]]:
    """log p of the `number` likeliest tokens at the position of each row, and the tokens.

    p leaves [MASK] out, as sampling in pre-training does; the other special tokens have their share of it, but are no
    answer, for they are never masked.
    """
    logits = network(batch.input_ids, batch.token_type_ids, batch.attention_mask, positions[:, None])
    scores = logits[:, 0].double() / temperature
    scores[:, vocabulary.mask_id] = -math.inf
    log_probabilities = scores.log_softmax(dim=1)
    log_probabilities[:, list(vocabulary.special_ids)] = -math.inf
    best, tokens = log_probabilities.topk(min(number, vocabulary.size - len(vocabulary.special_ids)))
    return best, tokens
