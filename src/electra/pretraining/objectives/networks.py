"""The networks of pre-training: masked language model, discriminator, and the generator's sizes."""

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from electra.config.checks import check_range
from electra.config.options import choice_field, lookup
from electra.errors import UsageError
from electra.model.encoder import Encoder, EncoderConfig
from electra.model.heads import MaskedLMHead, ReplacedTokenHead
from electra.model.layers import TokenEmbeddings
from electra.pretraining.objectives.chunked_softmax import TokenScores, score_tokens
from electra.pretraining.objectives.sampling import Sampling

MIN_TEMPERATURE = 1e-6
"""With lower temperatures the logits overflow."""


@dataclass(frozen=True)
class GeneratorConfig:
    """The generator, which fills the masked positions (section 3.2)."""

    kind: str = choice_field("masked-lm", lambda: [*lookup("electra.pretraining.objectives.spec.GENERATORS")(), "none"])
    """masked-lm: a masked language model; layer-mixture: several layers of one predict, and each token is a sample of one of
    these predictions; unigram: samples by corpus frequency; uniform: any token; none: only for mlm."""
    mixture_layers: tuple[int, ...] = ()
    """Kind layer-mixture: numbers of the generator's layers that predict, ending with the last one; by default half, three
    quarters and all of them (AMOS: layers 4, 6 and 8)."""
    size: float = 0.25
    """Multiplier of the discriminator's hidden size, feed-forward size and number of heads (paper, Table 6)."""
    depth: float = 1.0
    """Multiplier of the number of layers."""
    heads: float | None = None
    """Multiplier of the number of heads; by default generator.size."""
    ffn: float | None = None
    """Multiplier of the feed-forward size; by default generator.size."""
    tying: str = choice_field("embeddings", lookup("electra.pretraining.objectives.tying.TYINGS"))
    """Weights that generator and discriminator share; all requires equal sizes. trunk: the generator is the embeddings and the
    first layers of the discriminator's encoder, a share of generator.depth of them, with a head of its own. disentangled: the
    discriminator's token embeddings are the generator's, without gradients, plus a difference of its own (DeBERTaV3)."""
    training: str = choice_field(
        "mle", lookup("electra.pretraining.objectives.corruptions.generators.GENERATOR_TRAINING")
    )
    """mle: maximum likelihood; adversarial: maximize the discriminator's loss (Appendix F); frozen: no training."""
    initializer_range: float | None = None
    """Standard deviation of the generator's initial weights; by default the discriminator's."""
    temperature: float = 1.0
    """The generator samples from softmax(logits / temperature)."""
    final_temperature: float | None = None
    """Temperature at the end of training, to which it changes linearly; by default it is constant. Fast-ELECTRA (Dong et al.,
    2024) lowers it over training, by a schedule of its own."""
    frequency_share: float = 0.0
    """Share of the masked positions whose token is sampled by corpus frequency instead of by the generator network."""
    final_frequency_share: float | None = None
    """Share at the end of training, to which it changes linearly; by default it is constant."""
    loss_weight: float = 1.0
    """Weight of the generator's maximum-likelihood loss in the total."""
    final_loss_weight: float | None = None
    """Weight at the end of training, to which it changes linearly; by default it is constant."""
    exclude_original_token: bool = False
    """Never sample the original token (Appendix H)."""
    samples: str | None = None
    """Training frozen: file of samples, which are drawn before training and read in it, so that runs with the same generator,
    data, seed and batches draw them once; it is written if it does not exist. The FLOPs are counted as without it."""
    rate_factor: float = 1.0
    """Multiplier of the learning rate for the generator's own weights; shared weights have the discriminator's."""

    def __post_init__(self) -> None:
        check_range(self, "generator", "size", "heads", "ffn", above=0, at_most=10**8)
        check_range(self, "generator", "depth", above=0, at_most=10**4)
        check_range(self, "generator", "rate_factor", at_least=0, at_most=1000)
        check_range(self, "generator", "initializer_range", above=0, at_most=1000)
        check_range(self, "generator", "frequency_share", "final_frequency_share", at_least=0, at_most=1)
        check_range(self, "generator", "loss_weight", "final_loss_weight", at_least=0, at_most=10**6)
        check_range(self, "generator", "temperature", "final_temperature", above=0, at_most=10**6)
        for name in ("temperature", "final_temperature"):
            if (value := getattr(self, name)) is not None and value < MIN_TEMPERATURE:
                raise UsageError(
                    "out-of-range",
                    f"generator.{name} is {value}; it must be at least {MIN_TEMPERATURE}, which is greedy",
                )

    @property
    def mixes_frequencies(self) -> bool:
        """Whether some tokens are sampled by corpus frequency instead of by the network, at any time."""
        return self.frequency_share > 0 or bool(self.final_frequency_share)


def compute_generator_sizes(main: EncoderConfig, config: GeneratorConfig) -> EncoderConfig:
    """Compute the generator's sizes.

    Shared embeddings have the discriminator's size. A smaller generator's own embeddings are no wider than its hidden size.

    Raises:
        UsageError: the resulting hidden size is not a multiple of the resulting number of heads.
    """
    hidden = round(main.hidden_size * config.size)
    own = main.embedding_size if hidden == main.hidden_size else min(main.embedding_size, hidden)
    heads = max(1, round(main.num_heads * (config.heads or config.size)))
    if hidden < 1 or hidden % heads:
        own_heads = f" and generator.heads {config.heads:g}" if config.heads else ""
        raise UsageError(
            "indivisible",
            f"generator.size {config.size:g}{own_heads} give{'' if own_heads else 's'} a hidden size of {hidden}, which is "
            f"not a multiple of {heads} heads; choose multipliers that keep it a multiple",
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


class MaskedLMOutput(NamedTuple):
    """Output of a masked language model for given targets."""

    hidden: Float[Tensor, "*rows H"]
    scores: TokenScores


class MaskedLM(nn.Module):
    """An encoder with a masked-LM head: ELECTRA's generator, or BERT. It may share embeddings or encoder with another."""

    def __init__(
        self, config: EncoderConfig, embeddings: TokenEmbeddings | None = None, encoder: Encoder | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.backend: str | None = None
        """Back end of torch.compile for the chunked softmax; None: not compiled."""
        self.encoder = encoder or Encoder(config, embeddings)
        self.head = MaskedLMHead(config.hidden_size, config.embedding_size, config.vocab_size, config.layer_norm_eps)

    def forward(
        self,
        input_ids: Int64[Tensor, "B L"] | None = None,
        token_type_ids: Int64[Tensor, "B L"] | None = None,
        attention_mask: Bool[Tensor, "B L"] | None = None,
        positions: Int64[Tensor, "B K"] | None = None,
        *,
        hidden: Float[Tensor, "*rows H"] | None = None,
        targets: Int64[Tensor, "*rows"] | None = None,
        sampling: Sampling | None = None,
        u: Float[Tensor, "*rows"] | None = None,
        candidates: Int64[Tensor, "*rows"] | None = None,
    ) -> Float[Tensor, "*rows V"] | Float[Tensor, "*rows"] | MaskedLMOutput:
        """Logits at `positions` (None: everywhere), or with `targets` their loss without all logits in memory.

        `hidden`, from a previous output, replaces the encoder's forward pass. `sampling` and `u` as in `score_tokens`. With
        `candidates` the result is the logit of one token per row.
        """
        if hidden is None:
            hidden = self.encoder(input_ids, token_type_ids, attention_mask, positions)
        # The output embeddings are the token embeddings. They are passed as a weight: a module of the head with the same
        # parameter would add a second name for it to every state_dict and checkpoint.
        word = self.encoder.embeddings.word.weight
        if candidates is not None:
            return self.head(hidden, word, partial(compute_candidate_logits, candidates=candidates))
        if targets is None:
            return self.head(hidden, word)
        score = partial(score_tokens, targets=targets, sampling=sampling, u=u, backend=self.backend)
        return MaskedLMOutput(hidden, self.head(hidden, word, score))


def compute_candidate_logits(
    features: Float[Tensor, "*rows E"],
    word: Float[Tensor, "V E"],
    bias: Float[Tensor, " V"],
    candidates: Int64[Tensor, "*rows"],
) -> Float[Tensor, "*rows"]:
    """Compute the logit of one token per row, in float32."""
    return (features * F.embedding(candidates, word)).sum(-1).float() + bias[candidates]


class Discriminator(nn.Module):
    """An encoder with a head for replaced token detection."""

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
        positions: Int64[Tensor, "B K"] | None = None,
        *,
        return_hidden: bool = False,
    ) -> Float[Tensor, "B Q"] | tuple[Float[Tensor, "B Q"], Float[Tensor, "B Q H"]]:
        """One logit per token (at `positions`, if given), positive for replaced; optionally with the hidden states."""
        hidden = self.encoder(input_ids, token_type_ids, attention_mask, positions)
        logits = self.head(hidden)
        return (logits, hidden) if return_hidden else logits
