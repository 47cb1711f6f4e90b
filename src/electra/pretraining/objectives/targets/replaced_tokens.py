"""Replaced token detection, with the tasks that can share its forward pass."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from electra.config.checks import check_range
from electra.data.batch import Batch
from electra.model.flops import Cost, discriminator_parts, encoder_parts, masked_lm_head_flops, sum_parts
from electra.pretraining.objectives.corruptions.corruption import CorruptedBatch, compute_ratio
from electra.pretraining.objectives.corruptions.masking import MaskedPositions, mark_real_tokens, write_tokens
from electra.pretraining.objectives.metrics import LossTerm
from electra.pretraining.objectives.networks import Discriminator, MaskedLM
from electra.pretraining.objectives.targets.detection_metrics import compute_detection_metrics, compute_histogram
from electra.pretraining.objectives.targets.sequence_contrast import (
    NO_SEQUENCE_CONTRAST,
    SequenceContrastConfig,
    contrast_views,
    crop_length,
    encode_crops,
)
from electra.pretraining.objectives.targets.target import Prediction, Target


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


class ReplacedTokenDetection(Target):
    """Binary classification of every token that is not padding, replaced or original (section 2)."""

    head = "replaced-token"
    directory = "discriminator"
    network: Discriminator
    loss_name = "discriminator_loss"
    detects_replacements = True
    uses = frozenset({"contrast", "token_prediction", "sequence_contrast"})

    def __init__(
        self,
        network: Discriminator,
        mask_id: int,
        contrast: ContrastConfig = ContrastConfig(),
        token_prediction: TokenPredictionConfig = TokenPredictionConfig(),
        sequence_contrast: SequenceContrastConfig = NO_SEQUENCE_CONTRAST,
    ) -> None:
        super().__init__()
        self.network = network
        self.mask_id = mask_id
        self.contrast = contrast
        self.sequence_contrast = sequence_contrast
        self.sentence = nn.Linear(network.config.hidden_size, 1) if contrast.weight else None
        self.masked_lm = MaskedLM(network.config, encoder=network.encoder) if token_prediction.any else None
        """Predicts tokens with the discriminator's encoder."""
        self.token_prediction = token_prediction
        terms = {
            "sentence_loss": LossTerm("sequences", contrast.weight),
            "masked_prediction_loss": LossTerm("others", token_prediction.masked),
            "filled_prediction_loss": LossTerm("masked", token_prediction.filled),
            "sequence_contrast_loss": LossTerm("sequences", sequence_contrast.weight),
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
        if self.sequence_contrast.weight:
            crops = encode_crops(self.network.encoder, batch, self.sequence_contrast.crop)
            contrast = contrast_views(hidden[:, 0], crops, self.sequence_contrast.temperature)
            losses["sequence_contrast_loss"] = contrast.loss
            sums["sequence_contrast_correct"] = contrast.correct.sum()
        return Prediction(logits, losses, sums, hidden)

    def _predict_tokens(
        self, batch: Batch, at: MaskedPositions, hidden: Float[Tensor, "B L H"]
    ) -> Float[Tensor, "B K"]:
        """Return the loss of the original token at each position; 0 at unused slots."""
        assert self.masked_lm is not None
        features = hidden.gather(1, at.positions[..., None].expand(-1, -1, hidden.shape[-1]))
        _, scores = self.masked_lm(hidden=features, targets=batch.input_ids.gather(1, at.positions))
        return scores.nll * at.used

    def metrics(self, sums: Mapping[str, Tensor], scored: Tensor) -> dict[str, float]:
        metrics = compute_detection_metrics(sums["scores_replaced"], sums["scores_original"])
        if self.sequence_contrast.weight:
            correct = compute_ratio(sums["sequence_contrast_correct"], sums["sequences"])
            metrics["sequence_contrast_accuracy"] = correct
        return metrics

    def cost(self, length: int, predictions: int) -> Cost:
        config = self.network.config
        parts = discriminator_parts(config, length)
        if self.sentence is not None:
            parts["sentence head"] = 2 * config.hidden_size
        if self.masked_lm is not None:
            tasks = (self.token_prediction.masked > 0) + (self.token_prediction.filled > 0)
            parts["masked-LM head"] = tasks * predictions * masked_lm_head_flops(config)
        if self.sequence_contrast.weight:
            # The products of the vectors depend on the micro-batch and are not counted.
            parts = sum_parts(parts, encoder_parts(config, crop_length(length, self.sequence_contrast.crop)))
        return Cost(parts)
