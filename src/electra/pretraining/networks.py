"""The networks of pre-training: a masked language model, a discriminator, and their sizes and ties."""

from dataclasses import dataclass, replace

from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from electra.errors import UsageError
from electra.model.encoder import Encoder, EncoderConfig
from electra.model.heads import MaskedLMHead, ReplacedTokenHead
from electra.model.layers import Embeddings


@dataclass(frozen=True)
class GeneratorConfig:
    """The generator, a smaller copy of the discriminator that shares its embeddings."""

    size: float = 0.25
    """Multiplier of hidden size, feed-forward size and number of heads (paper, Table 6)."""
    temperature: float = 1.0
    """Its samples come from softmax(logits / temperature)."""

    def __post_init__(self) -> None:
        for name in ("size", "temperature"):
            if getattr(self, name) <= 0:
                raise UsageError(f"generator.{name} is {getattr(self, name)}; it must be more than 0")


def generator_sizes(main: EncoderConfig, config: GeneratorConfig) -> EncoderConfig:
    """The generator's sizes. Depth and embedding size are the discriminator's: the embeddings are one block.

    Raises:
        UsageError: the hidden size that comes out cannot be shared by the heads that come out.
    """
    hidden = round(main.hidden_size * config.size)
    heads = max(1, round(main.num_heads * config.size))
    if hidden < 1 or hidden % heads:
        raise UsageError(
            f"generator.size {config.size} makes a hidden size of {hidden} with {heads} heads, "
            "which cannot share it evenly; choose a size that keeps it a multiple"
        )
    return replace(main, hidden_size=hidden, ffn_size=max(1, round(main.ffn_size * config.size)), num_heads=heads)


class MaskedLM(nn.Module):
    """An encoder that predicts tokens: ELECTRA's generator, or BERT."""

    def __init__(self, config: EncoderConfig, embeddings: Embeddings | None = None) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config, embeddings)
        self.head = MaskedLMHead(config.hidden_size, config.embedding_size, config.vocab_size, config.layer_norm_eps)

    def forward(
        self,
        input_ids: Int64[Tensor, "B L"],
        token_type_ids: Int64[Tensor, "B L"],
        attention_mask: Bool[Tensor, "B L"] | None,
        positions: Int64[Tensor, "B K"],
    ) -> Float[Tensor, "B K V"]:
        """Logits at `positions` only: that, and the last layer's work there, is all that is computed."""
        hidden = self.encoder(input_ids, token_type_ids, attention_mask, positions)
        return self.head(hidden, self.encoder.embeddings.word.weight)


class Discriminator(nn.Module):
    """An encoder that tells at every token whether it was replaced."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.head = ReplacedTokenHead(config.hidden_size)

    def forward(
        self,
        input_ids: Int64[Tensor, "B L"],
        token_type_ids: Int64[Tensor, "B L"],
        attention_mask: Bool[Tensor, "B L"] | None,
    ) -> Float[Tensor, "B L"]:
        """One logit a token; positive says "replaced"."""
        return self.head(self.encoder(input_ids, token_type_ids, attention_mask))
