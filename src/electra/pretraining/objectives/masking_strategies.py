"""Which tokens are rather masked than others: all alike, the rare ones, or those expected to be hard (Appendix H)."""

from collections.abc import Callable

import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from electra.model.encoder import EncoderConfig
from electra.model.flops import Cost
from electra.pretraining.objectives.masking import MaskedPositions, MaskingConfig


class Uniform(nn.Module):
    """All tokens alike."""

    def forward(self, input_ids: Int64[Tensor, "B L"], word: nn.Embedding) -> Float[Tensor, "B L"] | None:
        """Weights of the tokens (None: all alike), without regard to which of them may be masked."""
        return None

    def loss(
        self, weights: Float[Tensor, "B L"] | None, masked: MaskedPositions, nll: Float[Tensor, "B K"] | None
    ) -> Float[Tensor, "B K"] | None:
        """What a strategy that learns has to learn from, at the masked positions."""
        return None

    def cost(self, length: int) -> Cost:
        """No network."""
        return Cost({})

    def look_up_cost(self, main: EncoderConfig, length: int) -> Cost:
        """The word embeddings of one row, which it does not teach."""
        return Cost({})


class RareTokenMasking(Uniform):
    """Rarer tokens more often: in proportion to a power of their count in the corpus."""

    weights: Tensor

    def __init__(self, unigrams: Int64[Tensor, " V"], rarity: float) -> None:
        super().__init__()
        self.register_buffer("weights", (unigrams.double() + 1).pow(-rarity).float(), persistent=False)

    def forward(self, input_ids: Int64[Tensor, "B L"], word: nn.Embedding) -> Float[Tensor, "B L"]:
        return self.weights[input_ids]


class HardTokenMasking(Uniform):
    """Tokens in proportion to the loss that a small network expects at them if they were masked out.

    It sees the embeddings of a token and of two neighbors to either side, leaves them as they are, and learns from the
    losses that then come out. The paper does not say what its model was.
    """

    WIDTH, NEIGHBOURS, LEAST = 64, 2, 1e-3

    def __init__(self, embedding_size: int) -> None:
        super().__init__()
        self.context = nn.Conv1d(embedding_size, self.WIDTH, 2 * self.NEIGHBOURS + 1, padding=self.NEIGHBOURS)
        self.score = nn.Linear(self.WIDTH, 1)

    def forward(self, input_ids: Int64[Tensor, "B L"], word: nn.Embedding) -> Float[Tensor, "B L"]:
        """Expected losses."""
        seen = self.context(word(input_ids).detach().transpose(1, 2)).transpose(1, 2)
        return F.softplus(self.score(F.gelu(seen)).squeeze(-1).float()) + self.LEAST

    def loss(
        self, weights: Float[Tensor, "B L"] | None, masked: MaskedPositions, nll: Float[Tensor, "B K"] | None
    ) -> Float[Tensor, "B K"] | None:
        """How far the expected losses are from those that came out."""
        if weights is None or nll is None:
            return None
        expected = weights.gather(1, masked.positions)
        return F.smooth_l1_loss(expected, nll.detach(), reduction="none") * masked.used

    def cost(self, length: int) -> Cost:
        """FLOPs of one row."""
        return Cost({"expected losses": length * 2 * (self.context.weight.numel() + self.WIDTH)})

    def look_up_cost(self, main: EncoderConfig, length: int) -> Cost:
        vectors = 2 * main.embedding_size * main.vocab_size
        return Cost({"embedding look-up": length * vectors}, learns=False)


MASKING: dict[str, Callable[[MaskingConfig, int, Int64[Tensor, " V"]], Uniform]] = {
    "uniform": lambda masking, embedding_size, unigrams: Uniform(),
    "rare": lambda masking, embedding_size, unigrams: RareTokenMasking(unigrams, masking.rarity),
    "hard": lambda masking, embedding_size, unigrams: HardTokenMasking(embedding_size),
}
