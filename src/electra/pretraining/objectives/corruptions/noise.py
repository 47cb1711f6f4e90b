"""Corruptions for noise-contrastive estimation: some tokens are samples from a noise distribution q of known probabilities."""

from dataclasses import replace

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from electra.data.batch import Batch
from electra.model.flops import Cost, masked_lm_head_flops
from electra.pretraining.objectives.corruptions.corruption import (
    CorruptedBatch,
    FrequencySamples,
    GeneratorOutput,
    Noise,
    compute_frequencies,
)
from electra.pretraining.objectives.corruptions.generators import FrozenSamples, GeneratorSamples, SampleSettings
from electra.pretraining.objectives.corruptions.masking import (
    MaskedPositions,
    MaskingConfig,
    mark_maskable_tokens,
    write_tokens,
)
from electra.pretraining.objectives.networks import GeneratorConfig, MaskedLM
from electra.seeding import Draw, uniform


class FrequencyNoise(FrequencySamples):
    """Noise at the masked positions, sampled by corpus frequency; all other tokens are data.

    A row with n tokens that may be masked has k noise and n - k data tokens (Clark et al., 2020, "Pre-Training Transformers as
    Energy-Based Cloze Models", Algorithm 2). q does not depend on the context, so it is known at all of them. Special tokens
    are never noise and are not scored.
    """

    def __init__(self, counts: Int64[Tensor, " V"], special_ids: tuple[int, ...], masking: MaskingConfig) -> None:
        super().__init__(compute_frequencies(counts, special_ids), GeneratorConfig(), masking)
        self.special_ids = special_ids

    def forward(self, batch: Batch, masked: MaskedPositions) -> CorruptedBatch:
        corrupted = super().forward(batch, masked)
        candidates = mark_maskable_tokens(batch.input_ids, self.special_ids)
        is_noise = write_tokens(torch.zeros_like(batch.input_ids), masked.positions, 1, masked.used).bool()
        noise = is_noise.sum(1, keepdim=True)
        data = candidates.sum(1, keepdim=True) - noise
        # A row whose tokens are all noise has nothing to contrast.
        used = candidates & (data > 0)
        q = torch.where(used, self.p[corrupted.input_ids], 1.0)
        log_odds = torch.where(used, q.log() + noise.clamp(min=1).log() - data.clamp(min=1).log(), 0.0)
        return corrupted._replace(noise=Noise(is_noise, log_odds, used))


class GeneratorNoise(GeneratorSamples):
    """Noise sampled from a generator network at a random half of the masked positions; the others keep the original as data.

    q is the generator's distribution, known only where the generator reads [MASK]: at the masked positions, which are the n
    scored ones. Each is noise or data with probability 1/2: k and n - k are equal on average.
    """

    def __init__(self, generator: MaskedLM, settings: SampleSettings) -> None:
        # A token that the generator reads at its own position would change q there.
        super().__init__(generator, settings._replace(masking=replace(settings.masking, generator_mask=1.0)))

    def forward(self, batch: Batch, masked: MaskedPositions) -> CorruptedBatch:
        corrupted = super().forward(batch, masked)
        generated = corrupted.generated
        assert generated is not None
        is_noise = masked.used & (uniform(batch.row_keys, Draw.NOISE, masked.used.shape[1]) < 0.5)
        original = batch.input_ids.gather(1, masked.positions)
        ids = write_tokens(corrupted.input_ids, masked.positions, original, masked.used & ~is_noise)
        log_q = self.compute_log_q(generated, original, ids.gather(1, masked.positions))
        return corrupted._replace(
            input_ids=ids, noise=Noise(is_noise, torch.where(masked.used, log_q, 0.0), masked.used)
        )

    @torch.no_grad()
    def compute_log_q(
        self, generated: GeneratorOutput, original: Int64[Tensor, "B K"], tokens: Int64[Tensor, "B K"]
    ) -> Float[Tensor, "B K"]:
        """Compute the log-probability with which a token is sampled: of the generator's softmax without [MASK].

        The loss gives that of the original token; those of others differ by the difference of the logits.
        """
        candidates = torch.stack([tokens, torch.full_like(tokens, self.settings.mask_id), original])
        logits = self.generator(hidden=generated.hidden.expand(len(candidates), -1, -1, -1), candidates=candidates)
        log_p, log_p_mask = logits[:2] - logits[2] - generated.nll
        return log_p - torch.log1p(-log_p_mask.exp())

    def cost(self, length: int, predictions: int) -> Cost:
        """FLOPs of one row, with three logits for the probability of each token."""
        config, cost = self.generator.config, super().cost(length, predictions)
        logits = {"noise probability": 3 * predictions * masked_lm_head_flops(replace(config, vocab_size=1))}
        return cost._replace(forward=cost.forward | logits)


class FrozenNoise(GeneratorNoise, FrozenSamples):
    """`GeneratorNoise` of a frozen generator."""


NOISE_TRAINING: dict[str, type[GeneratorNoise]] = {"mle": GeneratorNoise, "frozen": FrozenNoise}
"""By `GeneratorConfig.training`."""
