"""What the main network must say of a corrupted batch, and what that costs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from electra.config.checks import check_limits
from electra.data.loader import Batch
from electra.errors import UsageError
from electra.model.flops import Cost, discriminator_parts, masked_lm_parts
from electra.pretraining.objectives.chunked_softmax import TokenScores, score_tokens
from electra.pretraining.objectives.corruption import Corrupted, compute_accuracy_without_unk, ratio, sum_without_unk
from electra.pretraining.objectives.detection_metrics import detection_metrics, score_histogram
from electra.pretraining.objectives.masking import MaskedPositions, real_tokens
from electra.pretraining.objectives.networks import Discriminator, MaskedLM


@dataclass(frozen=True)
class ContrastConfig:
    """The sentence-level task of Appendix H: was anything in this input corrupted?

    The vector of the input's first token says it: [CLS], or in a later piece of an example whatever stands first
    (`electra.data.loader.LengthWarmup`).
    """

    weight: float = 0.0
    """Weight of its loss; 0: there is no such task."""
    unchanged: float = 0.2
    """Share of the inputs that are left as they are while training."""

    def __post_init__(self) -> None:
        if not self.weight >= 0:
            raise UsageError(f"contrast.weight is {self.weight}; it must not be negative")
        check_limits(self, "contrast.", weight=10**6)
        if not 0 < self.unchanged < 1:
            raise UsageError(f"contrast.unchanged is {self.unchanged}; it must lie between 0 and 1")


class Prediction(NamedTuple):
    """What the main network said of a batch."""

    scores: Float[Tensor, "B L"] | None
    """A discriminator's logits; those over a vocabulary are not kept."""
    loss: Float[Tensor, "B _"]
    """0 where it is not scored."""
    sums: dict[str, Tensor]
    """Sums for `metrics`."""
    sentence_loss: Float[Tensor, " B"] | None = None
    """The loss of the sentence-level task, where it is set, while training."""


class ReplacedTokenDetection(nn.Module):
    """Was this token replaced? Asked of every token that is not padding (section 2), or scored at some of them alone."""

    architecture = "ElectraForPreTraining"

    def __init__(self, network: Discriminator, contrast: ContrastConfig) -> None:
        super().__init__()
        self.network = network
        self.sentence = nn.Linear(network.config.hidden_size, 1) if contrast.weight else None

    def forward(self, batch: Batch, corrupted: Corrupted, at: MaskedPositions | None) -> Prediction:
        hidden = self.network.encoder(corrupted.input_ids, batch.token_type_ids, batch.attention_mask)
        logits = self.network.head(hidden).float()
        # A sample that happens to be the original token is original.
        replaced = corrupted.input_ids != batch.input_ids
        real = real_tokens(batch.input_ids, batch.lengths)
        loss = F.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="none")
        loss = loss * real if at is None else loss.gather(1, at.positions) * at.used
        sums = {
            "prediction_loss": loss.sum(),
            # Of all tokens, wherever it is scored, so that objectives can be compared.
            "scores_replaced": score_histogram(logits, real & replaced),
            "scores_original": score_histogram(logits, real & ~replaced),
        }
        sentence_loss = None
        if (
            self.sentence is not None and self.training
        ):  # nearly all held-out inputs are corrupted: it would say nothing
            score = self.sentence(hidden[:, 0]).squeeze(-1).float()
            sentence_loss = F.binary_cross_entropy_with_logits(score, replaced.any(1).float(), reduction="none")
            sums["sentence_loss"] = sentence_loss.sum()
        return Prediction(logits, loss, sums, sentence_loss)

    def metrics(self, sums: Mapping[str, Tensor], scored: Tensor) -> dict[str, float]:
        """The discriminator's loss and how well it tells replaced tokens."""
        detection = detection_metrics(sums["scores_replaced"], sums["scores_original"])
        metrics = {"discriminator_loss": ratio(sums["prediction_loss"], scored), **detection}
        if "sentence_loss" in sums:
            metrics["sentence_loss"] = ratio(sums["sentence_loss"], sums["sequences"])
        return metrics

    def cost(self, length: int, predictions: int) -> Cost:
        """FLOPs of one row."""
        sentence = {"sentence head": 2 * self.network.config.hidden_size} if self.sentence is not None else {}
        return Cost(discriminator_parts(self.network.config, length) | sentence)


class MaskedTokenPrediction(nn.Module):
    """Which token stood at each of the chosen positions?"""

    architecture = "ElectraForMaskedLM"

    def __init__(self, network: MaskedLM, unk_id: int | None = None) -> None:
        super().__init__()
        self.network = network
        self.unk_id = unk_id
        """Of [UNK], where the accuracy without it is to be measured too."""

    def forward(self, batch: Batch, corrupted: Corrupted, at: MaskedPositions | None) -> Prediction:
        assert at is not None
        hidden = self.network.encoder(corrupted.input_ids, batch.token_type_ids, batch.attention_mask, at.positions)
        original = batch.input_ids.gather(1, at.positions)
        said = score_tokens(self.network, hidden, original)
        loss = said.nll * at.used
        correct = said.correct & at.used
        sums = {"prediction_loss": loss.sum(), "prediction_correct": correct.sum()}
        return Prediction(None, loss, sums | sum_without_unk(self.unk_id, "mlm", original, correct, at.used))

    def metrics(self, sums: Mapping[str, Tensor], scored: Tensor) -> dict[str, float]:
        """The masked-LM loss and accuracy."""
        return {
            "mlm_loss": ratio(sums["prediction_loss"], scored),
            "mlm_accuracy": ratio(sums["prediction_correct"], scored),
            **compute_accuracy_without_unk(sums, "mlm"),
        }

    def cost(self, length: int, predictions: int) -> Cost:
        """FLOPs of one row."""
        return Cost(masked_lm_parts(self.network.config, length, predictions))


class AllTokensPrediction(nn.Module):
    """Which token stood at every position, replaced or not (section 3.5, All-Tokens MLM)?

    With the copy mechanism the answer is D times the token that is read plus 1 - D times the softmax, D from a sigmoid
    layer of its own.
    """

    architecture = "ElectraForMaskedLM"

    def __init__(self, network: MaskedLM, copies: bool) -> None:
        super().__init__()
        self.network = network
        self.copy = nn.Linear(network.config.hidden_size, 1) if copies else None

    def forward(self, batch: Batch, corrupted: Corrupted, at: MaskedPositions | None) -> Prediction:
        hidden = self.network.encoder(corrupted.input_ids, batch.token_type_ids, batch.attention_mask)
        said = score_tokens(self.network, hidden, batch.input_ids)
        log_p, correct, read_right = -said.nll, said.correct, corrupted.input_ids == batch.input_ids
        if self.copy is not None:
            z = self.copy(hidden).squeeze(-1).float()
            log_p = copied_log_p(log_p, z, read_right)
            with torch.no_grad():
                at_read = self.network.logits_of(hidden, corrupted.input_ids)
                correct = torch.where(copies(said, z, at_read), read_right, correct)
        real = real_tokens(batch.input_ids, batch.lengths)
        loss = -log_p * real
        return Prediction(None, loss, self.sums(loss, correct & real, batch, corrupted))

    def sums(
        self, loss: Float[Tensor, "B L"], correct: Bool[Tensor, "B L"], batch: Batch, corrupted: Corrupted
    ) -> dict[str, Tensor]:
        """Replaced tokens are counted on their own: the others are easily copied."""
        replaced = corrupted.input_ids != batch.input_ids
        return {
            "prediction_loss": loss.sum(),
            "prediction_correct": correct.sum(),
            "restored": (correct & replaced).sum(),
            "replaced": replaced.sum(),
        }

    def metrics(self, sums: Mapping[str, Tensor], scored: Tensor) -> dict[str, float]:
        """Loss and accuracy over all tokens, and the share of the replaced ones that is restored."""
        return {
            "all_tokens_loss": ratio(sums["prediction_loss"], scored),
            "all_tokens_accuracy": ratio(sums["prediction_correct"], scored),
            "restored": ratio(sums["restored"], sums["replaced"]),
        }

    def cost(self, length: int, predictions: int) -> Cost:
        """FLOPs of one row."""
        copying = {"copy layer": length * 2 * self.network.config.hidden_size} if self.copy is not None else {}
        return Cost(masked_lm_parts(self.network.config, length, length) | copying)


def copied_log_p(
    log_p: Float[Tensor, "B L"], z: Float[Tensor, "B L"], read: Bool[Tensor, "B L"]
) -> Float[Tensor, "B L"]:
    """log(D [the token is the one that is read] + (1 - D) p) with D = sigmoid(z)."""
    written = F.logsigmoid(-z) + log_p
    return torch.where(read, torch.logaddexp(F.logsigmoid(z), written), written)


def copies(said: TokenScores, z: Float[Tensor, "B L"], at_read: Float[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
    """Whether copying and softmax together make the token that is read the likeliest; its logit is `at_read`."""
    # In units of the softmax's share, both over its normalizer: e^z = D / (1 - D).
    return torch.logaddexp(at_read, z + said.log_normalizer) >= said.best
