"""What the main network must say of a corrupted batch, and what that costs."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from electra.data.loader import Batch
from electra.model.flops import discriminator_step_flops, masked_lm_step_flops
from electra.pretraining.corruption import Corrupted, ratio, token_nll
from electra.pretraining.detection import detection_metrics, score_histogram
from electra.pretraining.masking import Chosen
from electra.pretraining.networks import Discriminator, MaskedLM


class Predicted(NamedTuple):
    """What the main network said of a batch: `scores` are its logits, `loss` is 0 where it is not scored."""

    scores: Float[Tensor, "..."]
    loss: Float[Tensor, "B _"]
    sums: dict[str, Tensor]
    """Sums for `metrics`."""


class ReplacedOrOriginal(nn.Module):
    """Was this token replaced? Asked of every token that is not padding (section 2)."""

    architecture = "ElectraForPreTraining"

    def __init__(self, network: Discriminator) -> None:
        super().__init__()
        self.network = network

    def forward(self, batch: Batch, chosen: Chosen, corrupted: Corrupted) -> Predicted:
        logits = self.network(corrupted.input_ids, batch.token_type_ids, batch.attention_mask).float()
        # A sample that happens to be the original token is original.
        replaced = corrupted.input_ids != batch.input_ids
        real = torch.arange(logits.shape[1], device=logits.device) < batch.lengths[:, None]
        loss = F.binary_cross_entropy_with_logits(logits, replaced.float(), reduction="none") * real
        sums = {
            "prediction_loss": loss.sum(),
            "scores_replaced": score_histogram(logits, real & replaced),
            "scores_original": score_histogram(logits, real & ~replaced),
        }
        return Predicted(logits, loss, sums)

    def metrics(self, sums: Mapping[str, Tensor], scored: Tensor) -> dict[str, float]:
        """The discriminator's loss and how well it tells replaced tokens."""
        detection = detection_metrics(sums["scores_replaced"], sums["scores_original"])
        return {"discriminator_loss": ratio(sums["prediction_loss"], scored), **detection}

    def flops(self, length: int, predictions: int) -> int:
        """Forward and backward of one row."""
        return discriminator_step_flops(self.network.config, length)


class WhichToken(nn.Module):
    """Which token stood at each of the chosen positions?"""

    architecture = "ElectraForMaskedLM"

    def __init__(self, network: MaskedLM) -> None:
        super().__init__()
        self.network = network

    def forward(self, batch: Batch, chosen: Chosen, corrupted: Corrupted) -> Predicted:
        logits = self.network(corrupted.input_ids, batch.token_type_ids, batch.attention_mask, chosen.positions).float()
        original = batch.input_ids.gather(1, chosen.positions)
        loss = token_nll(logits, original) * chosen.used
        correct = (logits.argmax(-1) == original) & chosen.used
        return Predicted(logits, loss, {"prediction_loss": loss.sum(), "prediction_correct": correct.sum()})

    def metrics(self, sums: Mapping[str, Tensor], scored: Tensor) -> dict[str, float]:
        """The masked-LM loss and accuracy."""
        return {
            "mlm_loss": ratio(sums["prediction_loss"], scored),
            "mlm_accuracy": ratio(sums["prediction_correct"], scored),
        }

    def flops(self, length: int, predictions: int) -> int:
        """Forward and backward of one row."""
        return masked_lm_step_flops(self.network.config, length, predictions)
