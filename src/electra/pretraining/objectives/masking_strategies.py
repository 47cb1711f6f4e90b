"""Masking strategies: weights for sampling the masked positions (Appendix H)."""

from collections.abc import Callable

import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from electra.model.encoder import EncoderConfig
from electra.model.flops import Cost
from electra.pretraining.objectives.masking import MaskedPositions, MaskingConfig


class UniformMasking(nn.Module):
    """Equal weights; base class of the strategies."""

    def forward(self, input_ids: Int64[Tensor, "B L"], word: nn.Embedding) -> Float[Tensor, "B L"] | None:
        """Weights of the tokens (None: equal), including those that may not be masked."""
        return None

    def loss(
        self, weights: Float[Tensor, "B L"] | None, masked: MaskedPositions, nll: Float[Tensor, "B K"] | None
    ) -> Float[Tensor, "B K"] | None:
        """Loss of a trained strategy at the masked positions."""
        return None

    def cost(self, length: int) -> Cost:
        """FLOPs of one row."""
        return Cost({})

    def look_up_cost(self, main: EncoderConfig, length: int) -> Cost:
        """FLOPs of the word embeddings of one row, which the strategy does not train."""
        return Cost({})


class RareTokenMasking(UniformMasking):
    """Weights that are a power of the tokens' counts in the corpus: rarer tokens are masked more often."""

    weights: Tensor

    def __init__(self, unigrams: Int64[Tensor, " V"], rarity: float) -> None:
        super().__init__()
        self.register_buffer("weights", (unigrams.double() + 1).pow(-rarity).float(), persistent=False)

    def forward(self, input_ids: Int64[Tensor, "B L"], word: nn.Embedding) -> Float[Tensor, "B L"]:
        return self.weights[input_ids]


class HardTokenMasking(UniformMasking):
    """Weights that are the losses of masked tokens as predicted by a small network.

    It reads the embeddings of a token and of two neighbors on either side, without gradients to them, and is trained on the
    actual losses. The paper does not specify its model.
    """

    WIDTH, NEIGHBORS, MIN_LOSS = 64, 2, 1e-3

    def __init__(self, embedding_size: int) -> None:
        super().__init__()
        self.context = nn.Conv1d(embedding_size, self.WIDTH, 2 * self.NEIGHBORS + 1, padding=self.NEIGHBORS)
        self.score = nn.Linear(self.WIDTH, 1)

    def forward(self, input_ids: Int64[Tensor, "B L"], word: nn.Embedding) -> Float[Tensor, "B L"]:
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

    def cost(self, length: int) -> Cost:
        return Cost({"expected losses": length * 2 * (self.context.weight.numel() + self.WIDTH)})

    def look_up_cost(self, main: EncoderConfig, length: int) -> Cost:
        vectors = 2 * main.embedding_size * main.vocab_size
        return Cost({"embedding look-up": length * vectors}, has_backward=False)


MASKING: dict[str, Callable[[MaskingConfig, int, Int64[Tensor, " V"]], UniformMasking]] = {
    "uniform": lambda masking, embedding_size, unigrams: UniformMasking(),
    "rare": lambda masking, embedding_size, unigrams: RareTokenMasking(unigrams, masking.rarity),
    "hard": lambda masking, embedding_size, unigrams: HardTokenMasking(embedding_size),
}
