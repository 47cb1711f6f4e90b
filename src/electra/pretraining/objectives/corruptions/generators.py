"""Generators that are masked language models: trained by maximum likelihood or adversarially, or frozen."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from electra.data.batch import Batch
from electra.model.flops import Cost, masked_lm_parts
from electra.pretraining.objectives.corruptions.corruption import (
    CorruptedBatch,
    Corruption,
    FrequencySamples,
    GeneratorLoss,
    GeneratorOutput,
    compute_accuracy_without_unk,
    compute_ratio,
    mask_for_generator,
    sum_without_unk,
)
from electra.pretraining.objectives.corruptions.masking import MaskedPositions, MaskingConfig, write_samples
from electra.pretraining.objectives.metrics import LossTerm
from electra.pretraining.objectives.networks import GeneratorConfig, MaskedLM, MaskedLMOutput
from electra.pretraining.objectives.sampling import Sampling
from electra.seeding import Draw, uniform


class SampleSettings(NamedTuple):
    """How a generator's input is masked and its samples are drawn."""

    config: GeneratorConfig
    masking: MaskingConfig
    mask_id: int
    unk_id: int | None = None
    """Id of [UNK] if the accuracy without it is reported too."""
    frequencies: Tensor | None = None
    """Probabilities of tokens that are sampled instead at a share of the positions, if there is such a share."""


class GeneratorSamples(Corruption):
    """Samples of a small masked language model, trained by maximum likelihood (section 2)."""

    generator: MaskedLM
    loss_terms: Mapping[str, LossTerm] = MappingProxyType({"generator_loss": LossTerm("masked")})
    has_backward = True
    """Whether the generator has a backward pass. Without one its FLOPs are half of a step's, as Appendix E counts."""

    def __init__(self, generator: MaskedLM, settings: SampleSettings) -> None:
        super().__init__()
        self.generator = generator
        # An untrained generator would sample [MASK] as often as any other token; the discriminator never reads one.
        self.sampling = Sampling(
            settings.config.temperature,
            excluded=settings.mask_id,
            exclude_original_token=settings.config.exclude_original_token,
        )
        self.settings = settings
        self.frequencies: FrequencySamples | None = None
        if settings.frequencies is not None:
            config = replace(settings.config, temperature=1.0)
            self.frequencies = FrequencySamples(settings.frequencies, config, settings.masking)

    @property
    def current_loss_terms(self) -> Mapping[str, LossTerm]:
        weights = {"generator_loss": self.resolve(self.settings.config).loss_weight}
        return {name: term._replace(weight=weights.get(name, term.weight)) for name, term in self.loss_terms.items()}

    @property
    def current_sampling(self) -> Sampling:
        """The distribution of the network's samples at the current update."""
        if self.settings.config.final_temperature is None:
            return self.sampling
        return replace(self.sampling, temperature=self.resolve(self.settings.config).temperature)

    def forward(self, batch: Batch, masked: MaskedPositions) -> CorruptedBatch:
        masked_ids = mask_for_generator(batch, masked, self.settings.mask_id, self.settings.masking)
        original = batch.input_ids.gather(1, masked.positions)
        u = uniform(batch.row_keys, Draw.SAMPLES, original.shape[1])
        hidden, scores = self.predict(batch, masked_ids, masked.positions, original, u)
        sampled, nll = scores.sampled, scores.nll * masked.used
        assert sampled is not None
        if self.frequencies is not None:
            share = self.resolve(self.settings.config).frequency_share
            from_frequencies = uniform(batch.row_keys, Draw.SAMPLE_SOURCE, original.shape[1]) < share
            # A position has one sample, so both sources can use the same random number.
            sampled = torch.where(from_frequencies, self.frequencies.sample(original, u), sampled)
        sums = {
            "generator_correct": (scores.correct & masked.used).sum(),
            "sampled_correct": ((sampled == original) & masked.used).sum(),
        }
        sums |= sum_without_unk(self.settings.unk_id, "generator", original, scores.correct, masked.used)
        if "generator_loss" not in self.loss_terms:  # a metric only
            sums["generator_loss"] = nll.sum()
        generated = GeneratorOutput(hidden, nll, sampled)
        ids = write_samples(batch.input_ids, masked.positions, sampled, masked.used, self.settings.masking)
        return CorruptedBatch(ids, generated, sums)

    def predict(
        self,
        batch: Batch,
        input_ids: Int64[Tensor, "B L"],
        positions: Int64[Tensor, "B K"],
        original: Int64[Tensor, "B K"],
        u: Float[Tensor, "B K"],
    ) -> MaskedLMOutput:
        """Compute the losses of the original tokens at `positions` of the masked input, and one sample for each."""
        return self.generator(
            input_ids,
            batch.token_type_ids,
            batch.attention_mask,
            positions,
            targets=original,
            sampling=self.current_sampling,
            u=u,
        )

    def compute_losses(
        self, batch: Batch, masked: MaskedPositions, corrupted: CorruptedBatch, logits: Tensor | None
    ) -> GeneratorLoss:
        if "generator_loss" not in self.loss_terms:
            return GeneratorLoss({}, {})
        assert corrupted.generated is not None
        return GeneratorLoss({"generator_loss": corrupted.generated.nll}, {})

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """Compute the generator's accuracies at the masked positions, and its loss if it is a metric only."""
        loss = {"generator_loss": compute_ratio(sums["generator_loss"], sums["masked"])}
        return {
            **(loss if "generator_loss" not in self.loss_terms else {}),
            "generator_accuracy": compute_ratio(sums["generator_correct"], sums["masked"]),
            **compute_accuracy_without_unk(sums, "generator"),
            "sampled_accuracy": compute_ratio(sums["sampled_correct"], sums["masked"]),
        }

    def cost(self, length: int, predictions: int) -> Cost:
        """FLOPs of one row."""
        return Cost(masked_lm_parts(self.generator.config, length, predictions), self.has_backward)


class FrozenSamples(GeneratorSamples):
    """Samples of a frozen generator (section 3.2, stage two)."""

    loss_terms = MappingProxyType({})
    has_backward = False

    def __init__(self, generator: MaskedLM, settings: SampleSettings) -> None:
        super().__init__(generator, settings)
        generator.requires_grad_(False)

    def forward(self, batch: Batch, masked: MaskedPositions) -> CorruptedBatch:
        if batch.samples is None:
            return super().forward(batch, masked)
        sampled = batch.samples[:, : masked.positions.shape[1]]
        original = batch.input_ids.gather(1, masked.positions)
        sums = {"sampled_correct": ((sampled == original) & masked.used).sum()}
        ids = write_samples(batch.input_ids, masked.positions, sampled, masked.used, self.settings.masking)
        return CorruptedBatch(ids, None, sums)

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """Compute the generator's metrics; with samples that were made before, only how many are the original token."""
        if "generator_correct" in sums:
            return super().metrics(sums)
        return {"sampled_accuracy": compute_ratio(sums["sampled_correct"], sums["masked"])}


class AdversarialSamples(GeneratorSamples):
    """Samples of a generator that maximizes the discriminator's loss, by REINFORCE with a learned baseline (Appendix F).

    Simplifying assumption: the discriminator's logit of a sample does not depend on the other samples. Then the reward of
    a sample is the discriminator's loss at its position.
    """

    loss_terms = MappingProxyType({"policy_loss": LossTerm("masked"), "baseline_loss": LossTerm("masked")})

    def __init__(self, generator: MaskedLM, settings: SampleSettings) -> None:
        super().__init__(generator, settings)
        self.baseline = nn.Linear(generator.config.hidden_size, 1)

    def compute_losses(
        self, batch: Batch, masked: MaskedPositions, corrupted: CorruptedBatch, logits: Tensor | None
    ) -> GeneratorLoss:
        """Return -log p(sample) (reward - baseline), whose gradient is REINFORCE's, and the baseline's cross-entropy."""
        generated = corrupted.generated
        assert generated is not None
        assert logits is not None
        original = batch.input_ids.gather(1, masked.positions)
        replacement = corrupted.input_ids.gather(1, masked.positions)
        # In an uncorrupted row, or at a position that was sampled twice, the input may differ from the sample.
        used = masked.used & (replacement == generated.sampled)
        logits = logits.detach().float().gather(1, masked.positions)
        reward = F.binary_cross_entropy_with_logits(logits, (replacement != original).float(), reduction="none")
        # The encoder gets gradients of the policy loss only; the paper does not say whether the baseline's does too.
        z = self.baseline(generated.hidden.detach()).squeeze(-1).float()
        expected = -F.logsigmoid(z)
        log_p = self.current_sampling.scores(self.generator(hidden=generated.hidden).float(), original).log_softmax(-1)
        sample_log_p = log_p.gather(-1, generated.sampled.unsqueeze(-1)).squeeze(-1)
        policy = -sample_log_p * (reward - expected.detach()) * used
        # The baseline is -log of a probability. Its target is exp(-reward), for which it equals the reward.
        baseline = F.binary_cross_entropy_with_logits(z, torch.exp(-reward), reduction="none") * used
        return GeneratorLoss({"policy_loss": policy, "baseline_loss": baseline}, {"reward": (reward * used).sum()})

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        return {**super().metrics(sums), "reward": compute_ratio(sums["reward"], sums["masked"])}

    def cost(self, length: int, predictions: int) -> Cost:
        baseline = {"baseline": predictions * 2 * self.generator.config.hidden_size}
        return Cost(super().cost(length, predictions).forward | baseline)


GENERATOR_TRAINING: dict[str, type[GeneratorSamples]] = {
    "mle": GeneratorSamples,
    "adversarial": AdversarialSamples,
    "frozen": FrozenSamples,
}
"""By `GeneratorConfig.training`."""
