"""Generators that are networks: they fill the chosen positions, and learn by likelihood, as an adversary, or not at all."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from electra.data.loader import Batch
from electra.model.flops import Cost, masked_lm_parts
from electra.pretraining.objectives.chunked_softmax import Sampling, score_tokens
from electra.pretraining.objectives.corruption import (
    NOTHING,
    Corrupted,
    Generated,
    GeneratorLoss,
    compute_accuracy_without_unk,
    mask_for_generator,
    ratio,
    sum_without_unk,
)
from electra.pretraining.objectives.masking import MaskedPositions, MaskingConfig, write_samples
from electra.pretraining.objectives.networks import GeneratorConfig, MaskedLM
from electra.seeding import Draw, uniform


class GeneratorSamples(nn.Module):
    """A small masked language model fills the chosen positions; it learns from its own likelihood (section 2)."""

    def __init__(
        self,
        generator: MaskedLM,
        config: GeneratorConfig,
        masking: MaskingConfig,
        mask_id: int,
        unk_id: int | None = None,
    ) -> None:
        super().__init__()
        self.generator = generator
        # An untrained generator says [MASK] as often as any other token, and the discriminator must never see one.
        self.sampling = Sampling(
            config.temperature, never=mask_id, exclude_original_token=config.exclude_original_token
        )
        self.masking = masking
        self.mask_id = mask_id
        self.unk_id = unk_id
        """Of [UNK], where the accuracy without it is to be measured too."""

    def forward(self, batch: Batch, chosen: MaskedPositions) -> Corrupted:
        masked_ids = mask_for_generator(batch, chosen, self.mask_id, self.masking)
        hidden = self.generator.encoder(masked_ids, batch.token_type_ids, batch.attention_mask, chosen.positions)
        original = batch.input_ids.gather(1, chosen.positions)
        u = uniform(batch.row_keys, Draw.SAMPLES, original.shape[1])
        scores = score_tokens(self.generator, hidden, original, self.sampling, u)
        sampled, nll = scores.sampled, scores.nll * chosen.used
        assert sampled is not None
        sums = {
            "generator_nll": nll.sum(),
            "generator_correct": (scores.correct & chosen.used).sum(),
            "sampled_correct": ((sampled == original) & chosen.used).sum(),
        }
        sums |= sum_without_unk(self.unk_id, "generator", original, scores.correct, chosen.used)
        generated = Generated(hidden, nll, sampled)
        ids = write_samples(batch.input_ids, chosen.positions, sampled, chosen.used, self.masking)
        return Corrupted(ids, generated, sums)

    def learn(
        self, batch: Batch, chosen: MaskedPositions, corrupted: Corrupted, scores: Tensor | None
    ) -> GeneratorLoss:
        """The generator's own loss: -log p(original token)."""
        assert corrupted.generated is not None
        return GeneratorLoss(corrupted.generated.nll, {})

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """The generator's loss and accuracies at the chosen positions."""
        return {
            "generator_loss": ratio(sums["generator_nll"], sums["masked"]),
            "generator_accuracy": ratio(sums["generator_correct"], sums["masked"]),
            **compute_accuracy_without_unk(sums, "generator"),
            "sampled_accuracy": ratio(sums["sampled_correct"], sums["masked"]),
        }

    def learnt(self, metrics: Mapping[str, float]) -> float:
        """The part of the metrics that is minimized."""
        return metrics["generator_loss"]

    def cost(self, length: int, predictions: int) -> Cost:
        """FLOPs of one row."""
        return Cost(masked_lm_parts(self.generator.config, length, predictions))


class FrozenSamples(GeneratorSamples):
    """A generator that is done learning (section 3.2, the second stage)."""

    def __init__(
        self,
        generator: MaskedLM,
        config: GeneratorConfig,
        masking: MaskingConfig,
        mask_id: int,
        unk_id: int | None = None,
    ) -> None:
        super().__init__(generator, config, masking, mask_id, unk_id)
        generator.requires_grad_(False)

    def learn(
        self, batch: Batch, chosen: MaskedPositions, corrupted: Corrupted, scores: Tensor | None
    ) -> GeneratorLoss:
        return NOTHING

    def learnt(self, metrics: Mapping[str, float]) -> float:
        return 0.0

    def cost(self, length: int, predictions: int) -> Cost:
        """Forward alone: half of a step, as Appendix E counts."""
        return super().cost(length, predictions)._replace(learns=False)


class AdversarialSamples(GeneratorSamples):
    """A generator that learns to fool the discriminator, by REINFORCE with a learned baseline (Appendix F).

    Simplifying assumption: what the discriminator says of a sample does not depend on the other samples. Then the reward
    of a sample is the discriminator's loss at its position.
    """

    def __init__(
        self,
        generator: MaskedLM,
        config: GeneratorConfig,
        masking: MaskingConfig,
        mask_id: int,
        unk_id: int | None = None,
    ) -> None:
        super().__init__(generator, config, masking, mask_id, unk_id)
        self.baseline = nn.Linear(generator.config.hidden_size, 1)

    def learn(
        self, batch: Batch, chosen: MaskedPositions, corrupted: Corrupted, scores: Tensor | None
    ) -> GeneratorLoss:
        """-log p(sample) (reward - baseline), whose gradient is REINFORCE's, and the baseline's cross-entropy."""
        generated = corrupted.generated
        assert generated is not None
        assert scores is not None
        original = batch.input_ids.gather(1, chosen.positions)
        read = corrupted.input_ids.gather(1, chosen.positions)
        # An input that was left unchanged, or a position drawn twice, shows another token than the sample.
        used = chosen.used & (read == generated.sampled)
        said = scores.detach().float().gather(1, chosen.positions)
        reward = F.binary_cross_entropy_with_logits(said, (read != original).float(), reduction="none")
        # The encoder learns from the policy alone; the paper does not say whether the baseline's loss reaches it too.
        z = self.baseline(generated.hidden.detach()).squeeze(-1).float()
        expected = -F.logsigmoid(z)
        log_p = self.sampling.scores(self.generator.predict(generated.hidden).float(), original).log_softmax(-1)
        of_sample = log_p.gather(-1, generated.sampled.unsqueeze(-1)).squeeze(-1)
        policy = -of_sample * (reward - expected.detach()) * used
        # The baseline is -log of a probability, and the probability that would give the reward is its target.
        baseline = F.binary_cross_entropy_with_logits(z, torch.exp(-reward), reduction="none") * used
        sums = {"policy_loss": policy.sum(), "baseline_loss": baseline.sum(), "reward": (reward * used).sum()}
        return GeneratorLoss(policy + baseline, sums)

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """Those of a generator (its likelihood is only watched), and of its game."""
        game = {name: ratio(sums[name], sums["masked"]) for name in ("policy_loss", "baseline_loss", "reward")}
        return {**super().metrics(sums), **game}

    def learnt(self, metrics: Mapping[str, float]) -> float:
        return metrics["policy_loss"] + metrics["baseline_loss"]

    def cost(self, length: int, predictions: int) -> Cost:
        baseline = {"baseline": predictions * 2 * self.generator.config.hidden_size}
        return Cost(super().cost(length, predictions).forward | baseline)


LEARNING = {"likelihood": GeneratorSamples, "adversarial": AdversarialSamples, "none": FrozenSamples}
