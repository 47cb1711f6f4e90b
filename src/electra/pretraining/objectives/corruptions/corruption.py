"""Corruptions: the input of the discriminator or main encoder at the masked positions."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from electra.data.batch import Batch
from electra.model.flops import Cost
from electra.pretraining.objectives.corruptions.masking import (
    MaskedPositions,
    MaskingConfig,
    write_samples,
    write_tokens,
)
from electra.pretraining.objectives.metrics import LossTerm
from electra.pretraining.objectives.networks import GeneratorConfig, MaskedLM
from electra.pretraining.objectives.progress import ProgressModule
from electra.pretraining.objectives.sampling import sample_tokens
from electra.seeding import Draw, uniform


def mask_for_generator(
    batch: Batch, masked: MaskedPositions, mask_id: int, config: MaskingConfig
) -> Int64[Tensor, "B L"]:
    """Return the generator's input: 85 % of the masked positions become [MASK], 15 % keep their token.

    A position that is sampled twice becomes [MASK] if either of its slots does, as in the original code.
    """
    u = uniform(batch.row_keys, Draw.MASKS, masked.positions.shape[1])
    return write_tokens(batch.input_ids, masked.positions, mask_id, masked.used & (u < config.generator_mask))


def mask_like_bert(
    batch: Batch, masked: MaskedPositions, mask_id: int, vocab_size: int, config: MaskingConfig
) -> Int64[Tensor, "B L"]:
    """Apply BERT's corruption: 80 % of the masked positions become [MASK], 10 % a random token, 10 % keep their token.

    A position that is sampled twice becomes [MASK] if either of its slots does.
    """
    ids, slots = batch.input_ids, masked.positions.shape[1]
    u = uniform(batch.row_keys, Draw.MASKS, slots)
    is_masked = u < config.mlm_mask
    if config.mlm_random:
        tokens = (uniform(batch.row_keys, Draw.RANDOM_TOKENS, slots) * vocab_size).long()
        changed = masked.used & ~is_masked & (u < config.mlm_mask + config.mlm_random)
        ids = write_samples(ids, masked.positions, tokens, changed, config)
    return write_tokens(ids, masked.positions, mask_id, masked.used & is_masked)


class GeneratorOutput(NamedTuple):
    """Output of a generator network at the masked positions."""

    hidden: Float[Tensor, "B K H"]
    nll: Float[Tensor, "B K"]
    """-log p(original token); 0 where a slot is unused."""
    sampled: Int64[Tensor, "B K"]


class Noise(NamedTuple):
    """What noise-contrastive estimation needs at each scored position."""

    is_noise: Bool[Tensor, "*scored"]
    """The token was sampled, even if it equals the original."""
    log_odds: Float[Tensor, "*scored"]
    """log k q(token) / d, for k noise and d data tokens on average and the noise distribution q; 0 where unused."""
    used: Bool[Tensor, "*scored"]


class CorruptedBatch(NamedTuple):
    """A corrupted batch."""

    input_ids: Int64[Tensor, "B L"]
    generated: GeneratorOutput | None
    """Output of the generator, if it is a network."""
    sums: dict[str, Tensor]
    """Sums for `metrics`."""
    filled: MaskedPositions | None = None
    """The masked positions, which have new tokens; set by `electra.pretraining.objectives.model.PretrainingModel`."""
    remasked: MaskedPositions | None = None
    """Other positions, with [MASK] (`electra.pretraining.objectives.targets.replaced_tokens.TokenPredictionConfig.masked`)."""
    noise: Noise | None = None
    """For corruptions with noise of known probability (`electra.pretraining.objectives.corruptions.noise`)."""

    def mask(self, at: MaskedPositions, mask_id: int) -> "CorruptedBatch":
        """Return the batch with [MASK] at these positions."""
        return self._replace(input_ids=write_tokens(self.input_ids, at.positions, mask_id, at.used), remasked=at)

    def restore_rows(self, batch: Batch, share: float) -> "CorruptedBatch":
        """Return the batch with a random `share` of its rows uncorrupted (Appendix H)."""
        unchanged = uniform(batch.row_keys, Draw.UNCHANGED, 1) < share
        return self._replace(input_ids=torch.where(unchanged, batch.input_ids, self.input_ids))


class GeneratorLoss(NamedTuple):
    """Losses of a corruption by name, with one value per masked position (0 at unused slots), and sums for `metrics`."""

    losses: dict[str, Tensor]
    sums: dict[str, Tensor]


class Corruption(ProgressModule, ABC):
    """Base class that replaces tokens at the masked positions; by default without parameters and losses."""

    loss_terms: Mapping[str, LossTerm] = MappingProxyType({})
    """How each loss that `compute_losses` returns enters the total."""

    def __init__(self) -> None:
        super().__init__()
        self.generator: MaskedLM | None = None
        """The generator, if it is a network: its sizes are reported, and it is saved as generator/."""

    @property
    def current_loss_terms(self) -> Mapping[str, LossTerm]:
        """`loss_terms` with the weights of the current update."""
        return self.loss_terms

    @abstractmethod
    def forward(self, batch: Batch, masked: MaskedPositions) -> CorruptedBatch:
        """Replace tokens at the masked positions."""

    def compute_losses(
        self, batch: Batch, masked: MaskedPositions, corrupted: CorruptedBatch, logits: Tensor | None
    ) -> GeneratorLoss:
        """Return the losses; `logits` are the discriminator's, if there is one."""
        return GeneratorLoss({}, {})

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """Metrics other than the losses, from sums over any number of batches."""
        return {}

    def cost(self, length: int, predictions: int) -> Cost:
        """FLOPs of one row with `predictions` masked positions."""
        return Cost({})


class FrequencySamples(Corruption):
    """Tokens sampled without context, by corpus frequency or uniformly (section 3.2)."""

    p: Tensor
    cumulative: Tensor

    def __init__(self, probabilities: Float[Tensor, " V"], config: GeneratorConfig, masking: MaskingConfig) -> None:
        super().__init__()
        self.masking = masking
        self.exclude_original_token = config.exclude_original_token
        p = (probabilities.double().log() / config.temperature).softmax(-1)
        self.register_buffer("p", p.float(), persistent=False)
        self.register_buffer("cumulative", p.cumsum(-1), persistent=False)

    def forward(self, batch: Batch, masked: MaskedPositions) -> CorruptedBatch:
        original = batch.input_ids.gather(1, masked.positions)
        sampled = self.sample(original, uniform(batch.row_keys, Draw.SAMPLES, original.shape[1]))
        correct = ((sampled == original) & masked.used).sum()
        ids = write_samples(batch.input_ids, masked.positions, sampled, masked.used, self.masking)
        return CorruptedBatch(ids, None, {"sampled_correct": correct})

    def sample(self, original: Int64[Tensor, "B K"], u: Float[Tensor, "B K"]) -> Int64[Tensor, "B K"]:
        """Sample a token in the place of each original one, with random numbers `u`."""
        if self.exclude_original_token:
            weights = self.p.repeat(original.numel(), 1).scatter_(1, original.view(-1, 1), 0.0)
            return sample_tokens(weights, u.flatten()).view_as(original)
        return torch.searchsorted(self.cumulative, u.double() * self.cumulative[-1], right=True)

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """The share of samples that are the original token."""
        return {"sampled_accuracy": compute_ratio(sums["sampled_correct"], sums["masked"])}


class MaskTokens(Corruption):
    """BERT's corruption, see `mask_like_bert`."""

    def __init__(self, masking: MaskingConfig, mask_id: int, vocab_size: int) -> None:
        super().__init__()
        self.masking = masking
        self.mask_id = mask_id
        self.vocab_size = vocab_size

    def forward(self, batch: Batch, masked: MaskedPositions) -> CorruptedBatch:
        ids = mask_like_bert(batch, masked, self.mask_id, self.vocab_size, self.masking)
        return CorruptedBatch(ids, None, {})


def compute_frequencies(counts: Int64[Tensor, " V"], special_ids: tuple[int, ...]) -> Float[Tensor, " V"]:
    """Convert counts to probabilities: 0 for special tokens, more than 0 for other tokens with count 0."""
    weights = counts.double() + 0.5
    weights[list(special_ids)] = 0.0
    return (weights / weights.sum()).float()


def sum_without_unk(
    unk_id: int | None, name: str, original: Tensor, correct: Tensor, used: Tensor
) -> dict[str, Tensor]:
    """Return sums for `compute_accuracy_without_unk` over `used` positions that are not [UNK]; empty if `unk_id` is None."""
    if unk_id is None:
        return {}
    known = used & (original != unk_id)
    return {f"{name}_known": known.sum(), f"{name}_known_correct": (correct & known).sum()}


def compute_accuracy_without_unk(sums: Mapping[str, Tensor], name: str) -> dict[str, float]:
    """Return the metric `NAME_accuracy_without_unk`; frequent [UNK] tokens are easy to predict and inflate the accuracy."""
    if f"{name}_known" not in sums:
        return {}
    return {f"{name}_accuracy_without_unk": compute_ratio(sums[f"{name}_known_correct"], sums[f"{name}_known"])}


def compute_ratio(a: Tensor, b: Tensor) -> float:
    """a / b, or nan if b is 0."""
    return float(a) / float(b) if float(b) else math.nan
