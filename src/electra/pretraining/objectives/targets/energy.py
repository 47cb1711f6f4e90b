"""The target of Electric: energies of tokens, by noise-contrastive estimation."""

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor

from electra.data.batch import Batch
from electra.model.flops import Cost, encoder_parts, replaced_token_head_flops
from electra.pretraining.objectives.corruptions.corruption import CorruptedBatch, compute_ratio
from electra.pretraining.objectives.corruptions.masking import MaskedPositions
from electra.pretraining.objectives.networks import Discriminator
from electra.pretraining.objectives.targets.target import Prediction, Target


class EnergyEstimation(Target):
    """An energy E(x)_t of every token, trained to be -log p(x_t | context) (Clark et al., 2020, "Pre-Training Transformers as
    Energy-Based Cloze Models").

    Of n tokens, k are samples from a noise distribution q and n - k are data. With p(x_t | context) = exp(-E(x)_t), that is
    with a normalizer taken as 1, the probability that a token is noise is

        k q / (k q + (n - k) exp(-E)) = sigmoid(E + log q + log(k / (n - k))).

    The loss is the cross-entropy of this probability: of noise, and of data. Its expected gradient is 0 at E = -log p(x_t |
    context) for any q, k and n, because there the formula is the true share of noise among equal tokens. A sample that equals
    the original is noise, other than in replaced token detection. The context has the other noise tokens, as in the paper's
    Algorithm 2, an approximation of the original context.

    The network is that of a discriminator. log q and log(k / (n - k)) have no gradient.
    """

    head = "energy"
    directory = "energy_model"
    network: Discriminator
    loss_name = "electric_loss"

    def __init__(self, network: Discriminator, scores_all_tokens: bool) -> None:
        super().__init__()
        self.network = network
        self.scores_all_tokens = scores_all_tokens
        """Whether energies are computed at all tokens, otherwise at the masked positions."""

    def forward(self, batch: Batch, corrupted: CorruptedBatch, at: MaskedPositions | None) -> Prediction:
        noise = corrupted.noise
        assert noise is not None
        positions = None if at is None else at.positions
        energy = self.network(corrupted.input_ids, batch.token_type_ids, batch.attention_mask, positions).float()
        logits = energy + noise.log_odds
        loss = F.binary_cross_entropy_with_logits(logits, noise.is_noise.float(), reduction="none") * noise.used
        is_data = noise.used & ~noise.is_noise
        sums = {
            "electric_scored": noise.used.sum(),
            "electric_correct": (noise.used & ((logits > 0) == noise.is_noise)).sum(),
            "electric_noise": (noise.used & noise.is_noise).sum(),
            "electric_energy": (energy * is_data).sum(),
        }
        return Prediction(None, {self.loss_name: loss}, sums)

    def metrics(self, sums: Mapping[str, Tensor], scored: Tensor) -> dict[str, float]:
        number, noise = sums["electric_scored"], sums["electric_noise"]
        return {
            "electric_accuracy": compute_ratio(sums["electric_correct"], number),
            "electric_noise": compute_ratio(noise, number),
            "energy": compute_ratio(sums["electric_energy"], number - noise),
        }

    def cost(self, length: int, predictions: int) -> Cost:
        config = self.network.config
        number = length if self.scores_all_tokens else predictions
        head = {"energy head": number * replaced_token_head_flops(config)}
        return Cost(encoder_parts(config, length) | head)
