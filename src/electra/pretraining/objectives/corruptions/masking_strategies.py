"""Masking strategies: how the masked positions are sampled in training."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from electra.data.batch import Batch
from electra.model.encoder import EncoderConfig
from electra.model.flops import Cost
from electra.pretraining.objectives.corruptions.masking import (
    MaskedPositions,
    MaskingConfig,
    count_masked_in_row,
    sample_positions,
)
from electra.pretraining.objectives.corruptions.units import mark_span_starts, mark_word_starts, sample_units
from electra.pretraining.objectives.spec import ObjectiveSpec, Vocabulary


class MaskingStrategy(nn.Module):
    """Equal weights, without parameters and losses; a strategy overrides what differs."""

    def forward(self, input_ids: Int64[Tensor, "B L"], word: nn.Module) -> Float[Tensor, "B L"] | None:
        """Weights of the tokens (None: equal), including those that may not be masked; `word` are the token embeddings."""
        return None

    def sample(
        self,
        batch: Batch,
        candidates: Bool[Tensor, "B L"],
        number: Int64[Tensor, " B"],
        masking: MaskingConfig,
        weights: Float[Tensor, "B L"] | None,
    ) -> MaskedPositions:
        """Sample `number` positions of each row from the candidates; `weights` have no gradient."""
        return sample_positions(candidates, number, masking, batch.row_keys, weights)

    def loss(
        self, weights: Float[Tensor, "B L"] | None, masked: MaskedPositions, nll: Float[Tensor, "B K"] | None
    ) -> Float[Tensor, "B K"] | None:
        """Loss of a trained strategy at the masked positions, where `nll` are the losses of the prediction."""
        return None

    def costs(self, length: int) -> dict[str, Cost]:
        """FLOPs of one row, by part."""
        return {}


class RareTokenMasking(MaskingStrategy):
    """Weights that are a power of the tokens' counts in the corpus: rarer tokens are masked more often."""

    weights: Tensor

    def __init__(self, unigrams: Int64[Tensor, " V"], rarity: float) -> None:
        super().__init__()
        self.register_buffer("weights", (unigrams.double() + 1).pow(-rarity).float(), persistent=False)

    def forward(self, input_ids: Int64[Tensor, "B L"], word: nn.Module) -> Float[Tensor, "B L"]:
        return self.weights[input_ids]


class WordMasking(MaskingStrategy):
    """Whole words: all tokens of a word are masked, or none (except in the last word, see `sample_units`)."""

    continues: Tensor

    def __init__(self, vocabulary: Vocabulary) -> None:
        super().__init__()
        continues = torch.zeros(vocabulary.size, dtype=torch.bool)
        continues[list(vocabulary.continuation_ids)] = True
        self.register_buffer("continues", continues, persistent=False)

    def mark_starts(self, batch: Batch, candidates: Bool[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
        """Return True at the first token of each unit."""
        return mark_word_starts(torch.take(self.continues, batch.input_ids), candidates)

    def sample(
        self,
        batch: Batch,
        candidates: Bool[Tensor, "B L"],
        number: Int64[Tensor, " B"],
        masking: MaskingConfig,
        weights: Float[Tensor, "B L"] | None,
    ) -> MaskedPositions:
        slots = count_masked_in_row(candidates.shape[1], masking.fraction)
        return sample_units(self.mark_starts(batch, candidates), candidates, number, slots, batch.row_keys)


class SpanMasking(WordMasking):
    """Spans of whole words with lengths as in SpanBERT (Joshi et al., 2020).

    There, spans are drawn one after the other and may overlap. Here a row is divided into spans, of which some are masked: no
    span depends on another, so all rows are computed at once.
    """

    def mark_starts(self, batch: Batch, candidates: Bool[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
        return mark_span_starts(super().mark_starts(batch, candidates), candidates, batch.row_keys)


class HardTokenMasking(MaskingStrategy):
    """Weights that are the losses of masked tokens as predicted by a small network.

    It reads the embeddings of a token and of two neighbors on either side, without gradients to them, and is trained on the
    actual losses. The paper does not specify its model.
    """

    WIDTH, NEIGHBORS, MIN_LOSS = 64, 2, 1e-3

    def __init__(self, main: EncoderConfig) -> None:
        super().__init__()
        self.main = main
        self.context = nn.Conv1d(main.embedding_size, self.WIDTH, 2 * self.NEIGHBORS + 1, padding=self.NEIGHBORS)
        self.score = nn.Linear(self.WIDTH, 1)

    def forward(self, input_ids: Int64[Tensor, "B L"], word: nn.Module) -> Float[Tensor, "B L"]:
        """Expected losses."""
        context = self.context(word(input_ids).detach().transpose(1, 2)).transpose(1, 2)
        return F.softplus(self.score(F.gelu(context)).squeeze(-1).float()) + self.MIN_LOSS

    def loss(
        self, weights: Float[Tensor, "B L"] | None, masked: MaskedPositions, nll: Float[Tensor, "B K"] | None
    ) -> Float[Tensor, "B K"] | None:
        """Smooth L1 distance between expected and actual losses."""
        if weights is None or nll is None:
            return None
        expected = weights.gather(1, masked.positions)
        return F.smooth_l1_loss(expected, nll.detach(), reduction="none") * masked.used

    def costs(self, length: int) -> dict[str, Cost]:
        """FLOPs of its network, and of the token embeddings, which it reads and does not train."""
        network = length * 2 * (self.context.weight.numel() + self.WIDTH)
        look_up = length * 2 * self.main.embedding_size * self.main.vocab_size
        return {
            "strategy": Cost({"expected losses": network}),
            "strategy's look-up": Cost({"embedding look-up": look_up}, has_backward=False),
        }


@dataclass(frozen=True)
class MaskingKind:
    """A row of `MASKING`."""

    build: Callable[[ObjectiveSpec], MaskingStrategy]
    uses: frozenset[str] = frozenset()
    """Options of `MaskingConfig` that only some strategies read."""
    needs_losses: bool = False
    """Whether its loss needs those of a prediction at the masked positions."""
    masks_units: bool = False
    """Whether it masks units of several tokens, which cannot be sampled with replacement."""


MASKING: dict[str, MaskingKind] = {
    "uniform": MaskingKind(lambda spec: MaskingStrategy()),
    "rare": MaskingKind(lambda spec: RareTokenMasking(spec.unigrams, spec.masking.rarity), uses=frozenset({"rarity"})),
    "hard": MaskingKind(lambda spec: HardTokenMasking(spec.main), needs_losses=True),
    "word": MaskingKind(lambda spec: WordMasking(spec.vocabulary), masks_units=True),
    "span": MaskingKind(lambda spec: SpanMasking(spec.vocabulary), masks_units=True),
}
"""By `MaskingConfig.strategy`."""
