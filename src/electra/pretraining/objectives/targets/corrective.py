"""Corrective language modeling (COCO-LM, Meng et al., 2021, section 3.2)."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from electra.data.batch import Batch
from electra.model.flops import Cost, masked_lm_head_flops, sum_parts
from electra.pretraining.objectives.corruptions.corruption import CorruptedBatch, compute_ratio
from electra.pretraining.objectives.corruptions.masking import MaskedPositions, mark_real_tokens
from electra.pretraining.objectives.metrics import LossTerm
from electra.pretraining.objectives.networks import Discriminator, MaskedLM
from electra.pretraining.objectives.targets.all_tokens import mix_with_copy
from electra.pretraining.objectives.targets.replaced_tokens import ContrastConfig, ReplacedTokenDetection
from electra.pretraining.objectives.targets.sequence_contrast import SequenceContrastConfig
from electra.pretraining.objectives.targets.target import Prediction


@dataclass(frozen=True)
class CorrectiveConfig:
    """Language modeling of the objective corrective-lm."""

    all_tokens: bool = False
    """Predict the original token at every position, which costs logits over the vocabulary at each. By default, as in COCO-LM,
    at the masked positions only."""


class CorrectiveLanguageModeling(ReplacedTokenDetection):
    """Replaced token detection, and prediction of the original tokens with the detector as the copy mechanism.

    The probability of a token is (1 - D) [token is the input] + D softmax, where D is the discriminator's probability that the
    token was replaced. The loss of the prediction has no gradient with respect to D, which is trained by detection alone.
    """

    uses = frozenset({"contrast", "copy", "corrective", "sequence_contrast"})
    masked_lm: MaskedLM

    def __init__(
        self,
        network: Discriminator,
        mask_id: int,
        contrast: ContrastConfig,
        sequence_contrast: SequenceContrastConfig,
        corrective: CorrectiveConfig,
        copies: bool,
    ) -> None:
        super().__init__(network, mask_id, contrast, sequence_contrast=sequence_contrast)
        self.corrective = corrective
        self.copies = copies
        self.masked_lm = MaskedLM(network.config, encoder=network.encoder)
        term = LossTerm("tokens" if corrective.all_tokens else "masked")
        self.loss_terms = {**self.loss_terms, "corrective_loss": term}

    def forward(self, batch: Batch, corrupted: CorruptedBatch, at: MaskedPositions | None) -> Prediction:
        prediction = super().forward(batch, corrupted, at)
        logits, hidden = prediction.logits, prediction.hidden
        assert logits is not None
        assert hidden is not None
        input_ids, targets, used = (
            corrupted.input_ids,
            batch.input_ids,
            mark_real_tokens(batch.input_ids, batch.lengths),
        )
        if not self.corrective.all_tokens:
            assert corrupted.filled is not None
            positions, used = corrupted.filled
            input_ids, targets, logits = (each.gather(1, positions) for each in (input_ids, targets, logits))
            hidden = hidden.gather(1, positions[..., None].expand(-1, -1, hidden.shape[-1]))
        _, scores = self.masked_lm(hidden=hidden, targets=targets)
        log_p, correct = -scores.nll, scores.correct
        if self.copies:
            log_p, correct = mix_with_copy(self.masked_lm, hidden, scores, -logits.detach(), input_ids, targets)
        replaced = used & (input_ids != targets)
        sums = {
            "corrective_scored": used.sum(),
            "corrective_correct": (correct & used).sum(),
            "corrective_replaced": replaced.sum(),
            "corrective_restored": (correct & replaced).sum(),
        }
        return prediction._replace(
            losses=prediction.losses | {"corrective_loss": -log_p * used}, sums=prediction.sums | sums
        )

    def metrics(self, sums: Mapping[str, Tensor], scored: Tensor) -> dict[str, float]:
        return {
            **super().metrics(sums, scored),
            "corrective_accuracy": compute_ratio(sums["corrective_correct"], sums["corrective_scored"]),
            "restored": compute_ratio(sums["corrective_restored"], sums["corrective_replaced"]),
        }

    def cost(self, length: int, predictions: int) -> Cost:
        number = length if self.corrective.all_tokens else predictions
        head = {"masked-LM head": number * masked_lm_head_flops(self.network.config)}
        return Cost(sum_parts(super().cost(length, predictions).forward, head))
