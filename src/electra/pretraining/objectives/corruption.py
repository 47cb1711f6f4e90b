"""What stands at the chosen positions when the main network reads the text."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from electra.data.loader import Batch
from electra.model.flops import Cost
from electra.pretraining.objectives.chunked_softmax import sample_tokens
from electra.pretraining.objectives.masking import MaskedPositions, MaskingConfig, write_samples, write_tokens
from electra.pretraining.objectives.networks import GeneratorConfig
from electra.seeding import Draw, uniform


def mask_for_generator(
    batch: Batch, chosen: MaskedPositions, mask_id: int, config: MaskingConfig
) -> Int64[Tensor, "B L"]:
    """The generator's input: of the chosen tokens 85 % become [MASK] and 15 % stay; never a random token.

    A position drawn twice becomes [MASK] if either draw decides so, as in the original code.
    """
    u = uniform(batch.row_keys, Draw.MASKS, chosen.positions.shape[1])
    return write_tokens(batch.input_ids, chosen.positions, mask_id, chosen.used & (u < config.generator_mask))


def mask_like_bert(
    batch: Batch, chosen: MaskedPositions, mask_id: int, vocab_size: int, config: MaskingConfig
) -> Int64[Tensor, "B L"]:
    """BERT's corruption: of the chosen tokens 80 % become [MASK], 10 % any token of the vocabulary, 10 % stay.

    A position drawn twice becomes [MASK] if either draw decides so.
    """
    ids, slots = batch.input_ids, chosen.positions.shape[1]
    u = uniform(batch.row_keys, Draw.MASKS, slots)
    masked = u < config.mlm_mask
    if config.mlm_random:
        tokens = (uniform(batch.row_keys, Draw.RANDOM_TOKENS, slots) * vocab_size).long()
        changed = chosen.used & ~masked & (u < config.mlm_mask + config.mlm_random)
        ids = write_samples(ids, chosen.positions, tokens, changed, config)
    return write_tokens(ids, chosen.positions, mask_id, chosen.used & masked)


class Generated(NamedTuple):
    """What a generator did at the chosen positions."""

    hidden: Float[Tensor, "B K H"]
    nll: Float[Tensor, "B K"]
    """-log p(original token); 0 where a slot is unused."""
    sampled: Int64[Tensor, "B K"]


class Corrupted(NamedTuple):
    """A corrupted batch."""

    input_ids: Int64[Tensor, "B L"]
    generated: Generated | None
    """What a generator that is a network did."""
    sums: dict[str, Tensor]
    """Sums for `metrics`."""

    def but_unchanged(self, batch: Batch, share: float) -> "Corrupted":
        """The same with this share of the rows, drawn at random, as they were (Appendix H)."""
        unchanged = uniform(batch.row_keys, Draw.UNCHANGED, 1) < share
        return self._replace(input_ids=torch.where(unchanged, batch.input_ids, self.input_ids))


class GeneratorLoss(NamedTuple):
    """What the generator learns from: a loss at each chosen position (0 where a slot is unused), if it learns at all."""

    loss: Float[Tensor, "B K"] | None
    sums: dict[str, Tensor]
    """Sums for `metrics`."""


NOTHING = GeneratorLoss(None, {})


class NoNetwork(nn.Module):
    """A corruption that computes nothing to speak of, and learns nothing."""

    def learn(
        self, batch: Batch, chosen: MaskedPositions, corrupted: Corrupted, scores: Tensor | None
    ) -> GeneratorLoss:
        """Nothing."""
        return NOTHING

    def learnt(self, metrics: Mapping[str, float]) -> float:
        """Nothing is minimized."""
        return 0.0

    def cost(self, length: int, predictions: int) -> Cost:
        """Free."""
        return Cost({})


class FrequencySamples(NoNetwork):
    """Tokens drawn with given probabilities, whatever stands around: by corpus frequency, or all alike (section 3.2)."""

    p: Tensor
    cumulative: Tensor

    def __init__(self, probabilities: Float[Tensor, " V"], config: GeneratorConfig, masking: MaskingConfig) -> None:
        super().__init__()
        self.masking = masking
        self.exclude_original_token = config.exclude_original_token
        p = (probabilities.double().log() / config.temperature).softmax(-1)
        self.register_buffer("p", p.float(), persistent=False)
        self.register_buffer("cumulative", p.cumsum(-1), persistent=False)

    def forward(self, batch: Batch, chosen: MaskedPositions) -> Corrupted:
        original = batch.input_ids.gather(1, chosen.positions)
        u = uniform(batch.row_keys, Draw.SAMPLES, original.shape[1])
        if self.exclude_original_token:
            weights = self.p.repeat(original.numel(), 1).scatter_(1, original.view(-1, 1), 0.0)
            sampled = sample_tokens(weights, u.flatten()).view_as(original)
        else:
            sampled = torch.searchsorted(self.cumulative, u.double() * self.cumulative[-1], right=True)
        correct = ((sampled == original) & chosen.used).sum()
        ids = write_samples(batch.input_ids, chosen.positions, sampled, chosen.used, self.masking)
        return Corrupted(ids, None, {"sampled_correct": correct})

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """How often a draw is the original token."""
        return {"sampled_accuracy": ratio(sums["sampled_correct"], sums["masked"])}


class Masks(NoNetwork):
    """BERT's corruption."""

    def __init__(self, masking: MaskingConfig, mask_id: int, vocab_size: int) -> None:
        super().__init__()
        self.masking = masking
        self.mask_id = mask_id
        self.vocab_size = vocab_size

    def forward(self, batch: Batch, chosen: MaskedPositions) -> Corrupted:
        ids = mask_like_bert(batch, chosen, self.mask_id, self.vocab_size, self.masking)
        return Corrupted(ids, None, {})

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """None: the main network's are all there is."""
        return {}


def frequencies(counts: Int64[Tensor, " V"], special_ids: tuple[int, ...]) -> Float[Tensor, " V"]:
    """Probabilities of the tokens by their counts: none for special ones, a little for those that did not occur."""
    weights = counts.double() + 0.5
    weights[list(special_ids)] = 0.0
    return (weights / weights.sum()).float()


def sum_without_unk(
    unk_id: int | None, name: str, original: Tensor, correct: Tensor, used: Tensor
) -> dict[str, Tensor]:
    """Sums for `compute_accuracy_without_unk` over the `used` positions that are not [UNK]; none if `unk_id` is None."""
    if unk_id is None:
        return {}
    known = used & (original != unk_id)
    return {f"{name}_known": known.sum(), f"{name}_known_correct": (correct & known).sum()}


def compute_accuracy_without_unk(sums: Mapping[str, Tensor], name: str) -> dict[str, float]:
    """The metric `NAME_accuracy_without_unk`: where [UNK] is frequent, predicting it is easy and worth nothing."""
    if f"{name}_known" not in sums:
        return {}
    return {f"{name}_accuracy_without_unk": ratio(sums[f"{name}_known_correct"], sums[f"{name}_known"])}


def ratio(a: Tensor, b: Tensor) -> float:
    """a / b of two sums; nan where nothing was counted."""
    return float(a) / float(b) if float(b) else math.nan
