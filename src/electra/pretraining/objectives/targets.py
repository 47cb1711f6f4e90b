"""Targets: predictions from a corrupted batch, with losses, metrics and FLOPs."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from electra.config.checks import check_range
from electra.data.batch import Batch
from electra.model.flops import Cost, discriminator_parts, masked_lm_head_flops, masked_lm_parts
from electra.pretraining.objectives.corruption import (
    CorruptedBatch,
    compute_accuracy_without_unk,
    compute_ratio,
    sum_without_unk,
)
from electra.pretraining.objectives.detection_metrics import compute_detection_metrics, compute_histogram
from electra.pretraining.objectives.masking import MaskedPositions, mark_real_tokens, write_tokens
from electra.pretraining.objectives.metrics import LossTerm
from electra.pretraining.objectives.networks import Discriminator, MaskedLM


@dataclass(frozen=True)
class ContrastConfig:
    """The sentence-level task of Appendix H: is any token of the input replaced?

    The prediction uses the hidden state of the first token: [CLS], or the first token of a later piece of an example
    (`electra.data.loader.LengthWarmup`).
    """

    weight: float = 0.0
    """Weight of its loss; 0: no such task."""
    unchanged: float = 0.2
    """Share of the training inputs that are not corrupted."""

    def __post_init__(self) -> None:
        check_range(self, "contrast", "weight", at_least=0, at_most=10**6)
        check_range(self, "contrast", "unchanged", above=0, below=1)


@dataclass(frozen=True)
class TokenPredictionConfig:
    """Prediction of original tokens by the discriminator, in the same forward pass as replaced token detection.

    With `generator.tying all` the generator's head predicts them, otherwise a head of the discriminator's own.
    """

    masked: float = 0.0
    """Weight of masked-token prediction: in training, other random positions of the input become [MASK], as many as the
    generator fills; there the original token is predicted, and no replaced token is detected. 0: no such task."""
    filled: float = 0.0
    """Weight of predicting the original token at the positions that the generator fills, whether its token is replaced or not
    (corrective language modeling, Meng et al., 2021, without a copy mechanism). 0: no such task."""

    def __post_init__(self) -> None:
        check_range(self, "token_prediction", "masked", "filled", at_least=0, at_most=10**6)

    @property
    def any(self) -> bool:
        """Whether the discriminator predicts tokens."""
        return self.masked > 0 or self.filled > 0


class Prediction(NamedTuple):
    """Output of a target for one batch."""

    logits: Float[Tensor, "B L"] | None
    """A discriminator's logits; None for predictions over the vocabulary, whose logits are not stored."""
    losses: dict[str, Tensor]
    """By name, one value per position or sequence, 0 where unscored."""
    sums: dict[str, Tensor]
    """Sums for `metrics`."""


class Target(nn.Module, ABC):
    """The network that reads the corrupted batch, and its loss."""

    head: str
    """Kind of the network's head, a key of `electra.model.architecture.Architecture.classes`."""
    directory: str = "discriminator"
    """Name of the network's directory in a run. `electra finetune --model RUN` finds discriminator and masked_lm; a network
    with another name is given as RUN/NAME."""
    network: Discriminator | MaskedLM
    loss_name: str
    """Name of its loss, whose positions and weight `Objective` defines."""
    loss_terms: Mapping[str, LossTerm] = MappingProxyType({})
    """Its other losses."""
    detects_replacements: bool = False
    """Whether its logits classify every token of the input as replaced or original, with the metrics, figures and adversarial
    generators of a discriminator."""
    uses: frozenset[str] = frozenset()
    """Options that it reads: copy, contrast, token_prediction. The others are refused or have no effect."""

    @property
    def other_heads(self) -> dict[str, nn.Module]:
        """Networks with the same encoder and other heads, by kind of head; they are saved in the same directory."""
        return {}

    def share_head(self, generator: MaskedLM) -> None:
        """Predict tokens with the generator's head, which has the same encoder (`generator.tying all`)."""

    def change_input(
        self, batch: Batch, corrupted: CorruptedBatch, sample_others: Callable[[], MaskedPositions]
    ) -> CorruptedBatch:
        """Change the input in training; `sample_others` samples other random positions, as many as are masked."""
        return corrupted

    def metrics(self, sums: Mapping[str, Tensor], scored: Tensor) -> dict[str, float]:
        """Metrics other than the losses; `scored` is the number of scored positions."""
        return {}

    @abstractmethod
    def forward(self, batch: Batch, corrupted: CorruptedBatch, at: MaskedPositions | None) -> Prediction:
        """Predict from the corrupted batch; `at` are the scored positions, None for all tokens."""

    @abstractmethod
    def cost(self, length: int, predictions: int) -> Cost:
        """FLOPs of one row with `predictions` masked positions."""


class ReplacedTokenDetection(Target):
    """Binary classification of every token that is not padding, replaced or original (section 2)."""

    head = "replaced-token"
    directory = "discriminator"
    network: Discriminator
    loss_name = "discriminator_loss"
    detects_replacements = True
    uses = frozenset({"contrast", "token_prediction"})

    def __init__(
        self,
        network: Discriminator,
        mask_id: int,
        contrast: ContrastConfig = ContrastConfig(),
        token_prediction: TokenPredictionConfig = TokenPredictionConfig(),
    ) -> None:
        super().__init__()
        self.network = network
        self.mask_id = mask_id
        self.contrast = contrast
        self.sentence = nn.Linear(network.config.hidden_size, 1) if contrast.weight else None
        self.masked_lm = MaskedLM(network.config, encoder=network.encoder) if token_prediction.any else None
        """Predicts tokens with the discriminator's encoder."""
        self.token_prediction = token_prediction
        terms = {
            "sentence_loss": LossTerm("sequences", contrast.weight),
            "masked_prediction_loss": LossTerm("others", token_prediction.masked),
            "filled_prediction_loss": LossTerm("masked", token_prediction.filled),
        }
        self.loss_terms = {name: term for name, term in terms.items() if term.weight}

    @property
    def other_heads(self) -> dict[str, nn.Module]:
        return {} if self.masked_lm is None else {"masked-lm": self.masked_lm}

    def share_head(self, generator: MaskedLM) -> None:
        if self.masked_lm is not None:
            self.masked_lm = generator

    def change_input(
        self, batch: Batch, corrupted: CorruptedBatch, sample_others: Callable[[], MaskedPositions]
    ) -> CorruptedBatch:
        """Restore rows for the sentence task, and mask other positions to predict their tokens."""
        if self.contrast.weight:
            corrupted = corrupted.restore_rows(batch, self.contrast.unchanged)
        return corrupted.mask(sample_others(), self.mask_id) if self.token_prediction.masked else corrupted

    def forward(self, batch: Batch, corrupted: CorruptedBatch, at: MaskedPositions | None) -> Prediction:
        inputs = (corrupted.input_ids, batch.token_type_ids, batch.attention_mask)
        logits, hidden = self.network(*inputs, return_hidden=True)
        logits = logits.float()
        # A sample that happens to be the original token is original.
        replaced = corrupted.input_ids != batch.input_ids
        real = mark_real_tokens(batch.input_ids, batch.lengths)
        if (remasked := corrupted.remasked) is not None:
            real &= ~write_tokens(torch.zeros_like(batch.input_ids), remasked.positions, 1, remasked.used).bool()
        loss = F.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="none") * real
        loss = loss if at is None else loss.gather(1, at.positions) * at.used
        sums = {
            # Of all tokens, also with a loss at fewer positions, so objectives can be compared.
            "scores_replaced": compute_histogram(logits, real & replaced),
            "scores_original": compute_histogram(logits, real & ~replaced),
        }
        losses = {self.loss_name: loss}
        # Not on held-out text, in which nearly all inputs are corrupted.
        if self.sentence is not None and self.training:
            score = self.sentence(hidden[:, 0]).squeeze(-1).float()
            losses["sentence_loss"] = F.binary_cross_entropy_with_logits(
                score, replaced.any(1).float(), reduction="none"
            )
        if remasked is not None:
            losses["masked_prediction_loss"] = self._predict_tokens(batch, remasked, hidden)
        if self.token_prediction.filled and self.training:
            assert corrupted.filled is not None
            losses["filled_prediction_loss"] = self._predict_tokens(batch, corrupted.filled, hidden)
        return Prediction(logits, losses, sums)

    def _predict_tokens(
        self, batch: Batch, at: MaskedPositions, hidden: Float[Tensor, "B L H"]
    ) -> Float[Tensor, "B K"]:
        """Return the loss of the original token at each position; 0 at unused slots."""
        assert self.masked_lm is not None
        features = hidden.gather(1, at.positions[..., None].expand(-1, -1, hidden.shape[-1]))
        _, scores = self.masked_lm(hidden=features, targets=batch.input_ids.gather(1, at.positions))
        return scores.nll * at.used

    def metrics(self, sums: Mapping[str, Tensor], scored: Tensor) -> dict[str, float]:
        return compute_detection_metrics(sums["scores_replaced"], sums["scores_original"])

    def cost(self, length: int, predictions: int) -> Cost:
        config = self.network.config
        parts = discriminator_parts(config, length)
        if self.sentence is not None:
            parts["sentence head"] = 2 * config.hidden_size
        if self.masked_lm is not None:
            tasks = (self.token_prediction.masked > 0) + (self.token_prediction.filled > 0)
            parts["masked-LM head"] = tasks * predictions * masked_lm_head_flops(config)
        return Cost(parts)


class MaskedTokenPrediction(Target):
    """Prediction of the original tokens at the masked positions."""

    head = "masked-lm"
    directory = "masked_lm"
    network: MaskedLM
    loss_name = "mlm_loss"

    def __init__(self, network: MaskedLM, unk_id: int | None = None) -> None:
        super().__init__()
        self.network = network
        self.unk_id = unk_id
        """Id of [UNK] if the accuracy without it is reported too."""

    def forward(self, batch: Batch, corrupted: CorruptedBatch, at: MaskedPositions | None) -> Prediction:
        assert at is not None
        original = batch.input_ids.gather(1, at.positions)
        inputs = (corrupted.input_ids, batch.token_type_ids, batch.attention_mask, at.positions)
        _, scores = self.network(*inputs, targets=original)
        loss = scores.nll * at.used
        correct = scores.correct & at.used
        sums = {"prediction_correct": correct.sum()}
        return Prediction(
            None, {self.loss_name: loss}, sums | sum_without_unk(self.unk_id, "mlm", original, correct, at.used)
        )

    def metrics(self, sums: Mapping[str, Tensor], scored: Tensor) -> dict[str, float]:
        return {
            "mlm_accuracy": compute_ratio(sums["prediction_correct"], scored),
            **compute_accuracy_without_unk(sums, "mlm"),
        }

    def cost(self, length: int, predictions: int) -> Cost:
        return Cost(masked_lm_parts(self.network.config, length, predictions))
