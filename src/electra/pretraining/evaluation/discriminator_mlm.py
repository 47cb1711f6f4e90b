"""ELECTRA as a masked language model: the discriminator ranks the generator's candidates (Appendix G).

Shape letters as in `model.layers`; here K is the number of candidates for the one masked token of a row.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int64
from torch import Tensor, nn

from electra.data.batch import Batch
from electra.pretraining.objectives.networks import Discriminator, MaskedLM
from electra.pretraining.objectives.spec import Vocabulary

CHUNK_TOKENS = 8_192
"""Tokens per forward pass of the discriminator: K rows for each row of a batch exceed memory or caches."""


def compute_unmasked_per_masked(fraction: float, masked_only: bool) -> float:
    """Return the paper's a = (1 - p_mask) / p_mask: unmasked tokens per masked one in the discriminator's loss.

    With a loss at the masked positions only (electra-15), a is 0, and D equals p_data.
    """
    return 0.0 if masked_only else (1 - fraction) / fraction


def log_data_probability(
    replaced: Float[Tensor, "*rows"], log_generator: Float[Tensor, "*rows"], unmasked_per_masked: float
) -> Float[Tensor, "*rows"]:
    """log p_data(x | c) = log [D p_G / (a (1 - D) + p_G)], for a discriminator that is optimal for its generator.

    D = sigmoid(-replaced) is its probability that x is original, p_G = exp(log_generator) the probability with which the
    generator samples x. Never above 0. Because no discriminator is optimal, the probabilities of all x may not sum to 1.
    """
    log_a = math.log(unmasked_per_masked) if unmasked_per_masked else -math.inf
    log_evidence = torch.logaddexp(log_a + F.logsigmoid(replaced), log_generator)
    return F.logsigmoid(-replaced) + log_generator - log_evidence


@dataclass(frozen=True)
class Candidates:
    """Candidates for the masked position of each row, most likely first."""

    tokens: Int64[Tensor, "B K"]
    probability: Float64[Tensor, "B K"]


@dataclass(frozen=True)
class RankedCandidates(Candidates):
    """Candidates of a generator, ranked by its discriminator."""

    generator: Float64[Tensor, "B K"]
    """The generator's probability of the token, p_G."""
    original: Float64[Tensor, "B K"]
    """The discriminator's probability that the token is original, D."""


class PlainMaskedLM(nn.Module):
    """Candidates of a masked language model: of BERT, or of a generator without its discriminator."""

    def __init__(self, network: MaskedLM, vocabulary: Vocabulary) -> None:
        super().__init__()
        self.network = network
        self.vocabulary = vocabulary
        self.max_positions = network.config.max_positions

    @torch.no_grad()
    def forward(self, batch: Batch, positions: Int64[Tensor, " B"], number: int) -> Candidates:
        """The `number` most likely tokens at the position of each row, where the batch has [MASK]."""
        best, tokens = predict_top_tokens(self.network, batch, positions, number, self.vocabulary)
        return Candidates(tokens, best.exp())


class ElectraAsMaskedLM(nn.Module):
    """Generator and discriminator: the generator's best candidates, ranked by the formula."""

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
    def forward(self, batch: Batch, positions: Int64[Tensor, " B"], number: int) -> RankedCandidates:
        """The generator's `number` most likely tokens at the position of each row, ranked by the formula.

        The generator reads the batch with [MASK] at the positions; the discriminator reads each candidate in that place.
        p_G is the distribution that the generator samples from in pre-training: at its temperature, without [MASK].
        """
        best, tokens = predict_top_tokens(self.generator, batch, positions, number, self.vocabulary, self.temperature)
        replaced = self.replaced_logits(batch, positions, tokens)
        log_data = log_data_probability(replaced, best, self.unmasked_per_masked)
        order = log_data.argsort(dim=1, descending=True, stable=True)
        ordered = (each.gather(1, order) for each in (tokens, log_data.exp(), best.exp(), replaced.neg().sigmoid()))
        return RankedCandidates(*ordered)

    def replaced_logits(
        self, batch: Batch, positions: Int64[Tensor, " B"], tokens: Int64[Tensor, "B K"]
    ) -> Float64[Tensor, "B K"]:
        """The discriminator's logit of each token at the position of its row, each in a separate sequence."""
        chunk = max(1, CHUNK_TOKENS // batch.input_ids.shape[1])
        rows = torch.arange(len(tokens), device=tokens.device).repeat_interleave(tokens.shape[1])
        logits = []
        for row, token in zip(rows.split(chunk), tokens.flatten().split(chunk), strict=True):
            position = positions[row, None]
            ids = batch.input_ids[row].scatter(1, position, token[:, None])
            mask = None if batch.attention_mask is None else batch.attention_mask[row]
            logits.append(self.discriminator(ids, batch.token_type_ids[row], mask, position))
        return torch.cat(logits).double().view_as(tokens)


def predict_top_tokens(
    network: MaskedLM,
    batch: Batch,
    positions: Int64[Tensor, " B"],
    number: int,
    vocabulary: Vocabulary,
    temperature: float = 1.0,
) -> tuple[Float64[Tensor, "B K"], Int64[Tensor, "B K"]]:
    """Return log p of the `number` most likely tokens at the position of each row, and the tokens.

    p excludes [MASK], as sampling in pre-training does. The other special tokens have a probability but are not returned,
    because they are never masked.
    """
    logits = network(batch.input_ids, batch.token_type_ids, batch.attention_mask, positions[:, None])
    scores = logits[:, 0].double() / temperature
    scores[:, vocabulary.mask_id] = -math.inf
    log_probabilities = scores.log_softmax(dim=1)
    log_probabilities[:, list(vocabulary.special_ids)] = -math.inf
    best, tokens = log_probabilities.topk(min(number, vocabulary.size - len(vocabulary.special_ids)))
    return best, tokens
