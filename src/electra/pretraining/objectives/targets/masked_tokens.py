"""Prediction of the original tokens at the masked positions."""

from collections.abc import Mapping

from torch import Tensor

from electra.data.batch import Batch
from electra.model.flops import Cost, masked_lm_parts
from electra.pretraining.objectives.corruptions.corruption import (
    CorruptedBatch,
    compute_accuracy_without_unk,
    compute_ratio,
    sum_without_unk,
)
from electra.pretraining.objectives.corruptions.masking import MaskedPositions
from electra.pretraining.objectives.networks import MaskedLM
from electra.pretraining.objectives.targets.target import Prediction, Target


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
