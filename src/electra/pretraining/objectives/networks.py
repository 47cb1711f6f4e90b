"""The networks of pre-training: a masked language model, a discriminator, and their sizes and ties."""

from dataclasses import dataclass, replace
from typing import Literal

from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from electra.config.checks import check_limits
from electra.errors import UsageError
from electra.model.encoder import Encoder, EncoderConfig
from electra.model.heads import MaskedLMHead, ReplacedTokenHead
from electra.model.layers import Embeddings

LEAST_TEMPERATURE = 1e-6
"""Below, logits divided by it overflow."""


@dataclass(frozen=True)
class GeneratorConfig:
    """What fills the chosen positions (section 3.2)."""

    kind: Literal["masked-lm", "unigram", "uniform", "none"] = "masked-lm"
    """A masked language model; draws from the corpus frequencies of the tokens; any token alike. None: only for mlm."""
    size: float = 0.25
    """Multiplier of the discriminator's hidden size, feed-forward size and number of heads (paper, Table 6)."""
    depth: float = 1.0
    """Multiplier of the number of layers."""
    heads: float | None = None
    """Multiplier of the number of heads, if not that of the size."""
    ffn: float | None = None
    """Multiplier of the feed-forward size, if not that of the size."""
    tying: Literal["none", "embeddings", "all"] = "embeddings"
    """Weights that generator and discriminator share; all of them only if their sizes are the same."""
    learning: Literal["likelihood", "adversarial", "none"] = "likelihood"
    """It learns to predict the original tokens, or to fool the discriminator (Appendix F), or not at all."""
    initializer_range: float | None = None
    """Deviation of its initial kernels, if not the discriminator's."""
    temperature: float = 1.0
    """Its samples come from softmax(logits / temperature)."""
    exclude_original_token: bool = False
    """Its samples are never the original token (Appendix H)."""

    def __post_init__(self) -> None:
        for name in ("size", "depth", "heads", "ffn", "initializer_range", "temperature"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"generator.{name} is {value}; it must be more than 0")
        check_limits(self, "generator.", size=10**8, depth=10**4, heads=10**8, ffn=10**8)
        check_limits(self, "generator.", initializer_range=1000, temperature=10**6)
        if self.temperature < LEAST_TEMPERATURE:
            raise UsageError(
                f"generator.temperature is {self.temperature}; it must be at least {LEAST_TEMPERATURE}, which is greedy"
            )


def generator_sizes(main: EncoderConfig, config: GeneratorConfig) -> EncoderConfig:
    """The generator's sizes. Shared embeddings have the discriminator's size; own ones are no wider than a smaller generator.

    Raises:
        UsageError: the hidden size that comes out cannot be shared by the heads that come out.
    """
    hidden = round(main.hidden_size * config.size)
    own = main.embedding_size if hidden == main.hidden_size else min(main.embedding_size, hidden)
    heads = max(1, round(main.num_heads * (config.heads or config.size)))
    if hidden < 1 or hidden % heads:
        own_heads = f" and generator.heads {config.heads:g}" if config.heads else ""
        raise UsageError(
            f"generator.size {config.size:g}{own_heads} make{'' if own_heads else 's'} a hidden size of {hidden} with "
            f"{heads} heads, which cannot share it evenly; choose multipliers that keep it a multiple"
        )
    return replace(
        main,
        embedding_size=own if config.tying == "none" else main.embedding_size,
        hidden_size=hidden,
        num_layers=max(1, round(main.num_layers * config.depth)),
        num_heads=heads,
        ffn_size=max(1, round(main.ffn_size * (config.ffn or config.size))),
        initializer_range=config.initializer_range or main.initializer_range,
    )


class MaskedLM(nn.Module):
    """An encoder that predicts tokens: ELECTRA's generator, or BERT. It may share its embeddings, or a whole encoder."""

    def __init__(
        self, config: EncoderConfig, embeddings: Embeddings | None = None, encoder: Encoder | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.backend: str | None = None
        """Of torch.compile, for what is done with logits (`electra.pretraining.objectives.chunked_softmax`)."""
        self.encoder = encoder or Encoder(config, embeddings)
        self.head = MaskedLMHead(config.hidden_size, config.embedding_size, config.vocab_size, config.layer_norm_eps)

    def forward(
        self,
        input_ids: Int64[Tensor, "B L"],
        token_type_ids: Int64[Tensor, "B L"],
        attention_mask: Bool[Tensor, "B L"] | None,
        positions: Int64[Tensor, "B K"],
    ) -> Float[Tensor, "B K V"]:
        """Logits at `positions` only: that, and the last layer's work there, is all that is computed."""
        return self.predict(self.encoder(input_ids, token_type_ids, attention_mask, positions))

    def predict(self, hidden: Float[Tensor, "*rows H"]) -> Float[Tensor, "*rows V"]:
        """Logits over the vocabulary for vectors of the encoder."""
        return self.head(hidden, self.encoder.embeddings.word.weight)

    def logits_of(self, hidden: Float[Tensor, "*rows H"], tokens: Int64[Tensor, "*rows"]) -> Float[Tensor, "*rows"]:
        """The logit of one token at each vector."""
        word = self.encoder.embeddings.word(tokens)
        return (self.head.transform(hidden) * word).sum(-1).float() + self.head.bias[tokens]


def build_generator(main: EncoderConfig, config: GeneratorConfig, encoder: Encoder) -> MaskedLM:
    """A generator that shares with the main network's encoder what `config.tying` says."""
    sizes = generator_sizes(main, config)
    if config.tying == "all":
        return MaskedLM(sizes, encoder=encoder)
    return MaskedLM(sizes, encoder.embeddings if config.tying == "embeddings" else None)


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
