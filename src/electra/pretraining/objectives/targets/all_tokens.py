"""The target of All-Tokens MLM (section 3.5): the original token at every position, with a copy mechanism."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from electra.data.batch import Batch
from electra.model.flops import Cost, masked_lm_parts
from electra.pretraining.objectives.chunked_softmax import TokenScores
from electra.pretraining.objectives.corruptions.corruption import CorruptedBatch, compute_ratio
from electra.pretraining.objectives.corruptions.masking import MaskedPositions, mark_real_tokens
from electra.pretraining.objectives.networks import MaskedLM
from electra.pretraining.objectives.targets.target import Prediction, Target


class AllTokensPrediction(Target):
    """Prediction of the original token at every position (section 3.5, All-Tokens MLM).

    With the copy mechanism the probability of a token is D [token is the input] + (1 - D) softmax, with D from a separate
    sigmoid layer.
    """

    head = "masked-lm"
    directory = "masked_lm"
    uses = frozenset({"copy"})
    network: MaskedLM
    loss_name = "all_tokens_loss"

    def __init__(self, network: MaskedLM, copies: bool) -> None:
        super().__init__()
        self.network = network
        self.copy = nn.Linear(network.config.hidden_size, 1) if copies else None

    def forward(self, batch: Batch, corrupted: CorruptedBatch, at: MaskedPositions | None) -> Prediction:
        inputs = (corrupted.input_ids, batch.token_type_ids, batch.attention_mask)
        hidden, scores = self.network(*inputs, targets=batch.input_ids)
        log_p, correct = -scores.nll, scores.correct
        if self.copy is not None:
            z = self.copy(hidden).squeeze(-1).float()
            log_p, correct = mix_with_copy(self.network, hidden, scores, z, corrupted.input_ids, batch.input_ids)
        real = mark_real_tokens(batch.input_ids, batch.lengths)
        loss = -log_p * real
        return Prediction(None, {self.loss_name: loss}, self.sums(correct & real, batch, corrupted))

    def sums(self, correct: Bool[Tensor, "B L"], batch: Batch, corrupted: CorruptedBatch) -> dict[str, Tensor]:
        """Count correct predictions of all tokens and of replaced ones, which cannot be copied."""
        replaced = corrupted.input_ids != batch.input_ids
        return {
            "prediction_correct": correct.sum(),
            "restored": (correct & replaced).sum(),
            "replaced": replaced.sum(),
        }

    def metrics(self, sums: Mapping[str, Tensor], scored: Tensor) -> dict[str, float]:
        return {
            "all_tokens_accuracy": compute_ratio(sums["prediction_correct"], scored),
            "restored": compute_ratio(sums["restored"], sums["replaced"]),
        }

    def cost(self, length: int, predictions: int) -> Cost:
        copy = {"copy layer": length * 2 * self.network.config.hidden_size} if self.copy is not None else {}
        return Cost(masked_lm_parts(self.network.config, length, length) | copy)


def mix_with_copy(
    network: MaskedLM,
    hidden: Float[Tensor, "B K H"],
    scores: TokenScores,
    z: Float[Tensor, "B K"],
    input_ids: Int64[Tensor, "B K"],
    targets: Int64[Tensor, "B K"],
) -> tuple[Float[Tensor, "B K"], Bool[Tensor, "B K"]]:
    """Return log p of the targets under the mixture of copy and softmax, and whether they are its most likely tokens.

    `scores` are the targets' under the network's softmax, D = sigmoid(z) is the copy probability.
    """
    unchanged = input_ids == targets
    with torch.no_grad():
        input_logit = network(hidden=hidden, candidates=input_ids)
        correct = torch.where(prefers_copy(scores, z, input_logit), unchanged, scores.correct)
    return compute_copy_log_p(-scores.nll, z, unchanged), correct


def compute_copy_log_p(
    log_p: Float[Tensor, "B L"], z: Float[Tensor, "B L"], is_input: Bool[Tensor, "B L"]
) -> Float[Tensor, "B L"]:
    """log(D [the token is the input] + (1 - D) p) with D = sigmoid(z)."""
    softmax_part = F.logsigmoid(-z) + log_p
    return torch.where(is_input, torch.logaddexp(F.logsigmoid(z), softmax_part), softmax_part)


def prefers_copy(
    scores: TokenScores, z: Float[Tensor, "B L"], input_logit: Float[Tensor, "B L"]
) -> Bool[Tensor, "B L"]:
    """Whether the input token is the most likely one under the mixture of copy and softmax; `input_logit` is its logit."""
    # Both sides are divided by the softmax's weight 1 - D and multiplied by its normalizer: e^z = D / (1 - D).
    return torch.logaddexp(input_logit, z + scores.log_normalizer) >= scores.best
