"""Masked positions: sampled for every batch, on the device."""

import math
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from electra.config.checks import check_range
from electra.config.options import choice_field, lookup
from electra.errors import UsageError
from electra.pretraining.objectives.progress import list_changing, resolve_at
from electra.seeding import Draw, uniform


@dataclass(frozen=True)
class MaskingConfig:
    """Number of masked positions, and the input there of the network that predicts them."""

    fraction: float = 0.15
    """Share of a sequence's tokens, [CLS] and [SEP] included, that is masked (0.25 for Large)."""
    final_fraction: float | None = None
    """Share at the end of training, to which it changes linearly; by default it is constant."""
    with_replacement: bool = False
    """Sample positions with replacement, as the original code does: some occur twice, so fewer tokens are masked."""
    generator_mask: float = 0.85
    """Share of the masked positions where the generator reads [MASK]; at the others it reads the original token."""
    mlm_mask: float = 0.8
    """Objective mlm: share of the masked positions that become [MASK]."""
    mlm_random: float = 0.1
    """Objective mlm: share of the masked positions that become a random token; the rest keep the original token."""
    strategy: str = choice_field(
        "uniform", lookup("electra.pretraining.objectives.corruptions.masking_strategies.MASKING")
    )
    """uniform; or (Appendix H) rare: tokens that are rare in the corpus are masked more often; hard: tokens for which a small
    network, trained jointly, predicts a high loss; or word: whole words; span: spans of whole words (SpanBERT)."""
    rarity: float = 0.5
    """Strategy rare: the weight of a token is its count in the corpus to the power of minus this."""

    def __post_init__(self) -> None:
        check_range(self, "masking", "fraction", "final_fraction", above=0, at_most=0.5)
        check_range(self, "masking", "rarity", above=0, at_most=10)
        check_range(self, "masking", "generator_mask", "mlm_mask", "mlm_random", at_least=0, at_most=1)
        if self.mlm_mask + self.mlm_random > 1:
            raise UsageError(
                "out-of-range", f"masking.mlm_mask {self.mlm_mask} and masking.mlm_random {self.mlm_random} exceed 1"
            )

    @property
    def percentage(self) -> str:
        """The masked share in percent, with that at the end of training if it changes."""
        final = "" if self.final_fraction is None else f" to {self.final_fraction:.0%}"
        return f"{self.fraction:.0%}{final}"


class MaskedPositions(NamedTuple):
    """The masked positions of a batch. Every row has the same number of slots; shorter rows have unused ones."""

    positions: Int64[Tensor, "B K"]
    used: Bool[Tensor, "B K"]


def count_masked(lengths: Int64[Tensor, " B"], fraction: float) -> Int64[Tensor, " B"]:
    """Return the number of masked positions in rows of `lengths` tokens: round(fraction * n), half to even, at least one.

    At most the number of tokens that are not special ([CLS] and one or two [SEP]).
    """
    wanted = torch.round(fraction * lengths.double()).long()
    return torch.minimum(wanted, lengths - 3).clamp(min=1)


def count_masked_in_row(length: int, fraction: float) -> int:
    """Return the number of masked positions in a row of `length` tokens."""
    return int(count_masked(torch.tensor([length]), fraction))


MEAN_POINTS = 1000
"""Points of a run over which a mean is taken."""


def count_masked_over_run(length: int, config: MaskingConfig) -> dict[int, float]:
    """Return the numbers of masked positions in a row of `length` tokens, and for how large a share of the run each holds."""
    points = [(point + 0.5) / MEAN_POINTS for point in range(MEAN_POINTS)] if list_changing(config) else [0.0]
    numbers = Counter(count_masked_in_row(length, resolve_at(config, point).fraction) for point in points)
    return {number: times / len(points) for number, times in numbers.items()}


def mark_real_tokens(input_ids: Int64[Tensor, "B L"], lengths: Int64[Tensor, " B"]) -> Bool[Tensor, "B L"]:
    """Return True at tokens, False at padding."""
    return torch.arange(input_ids.shape[1], device=input_ids.device) < lengths[:, None]


def mark_maskable_tokens(input_ids: Int64[Tensor, "B L"], special_ids: tuple[int, ...]) -> Bool[Tensor, "B L"]:
    """Return True at the tokens that may be masked: those that are neither special nor padding."""
    maskable = torch.ones_like(input_ids, dtype=torch.bool)
    for special in special_ids:  # comparison with ints, not with a tensor, needs no copy to the device
        maskable &= input_ids != special
    return maskable


def sample_positions(
    candidates: Bool[Tensor, "B L"],
    number: Int64[Tensor, " B"],
    config: MaskingConfig,
    keys: Int64[Tensor, " B"],
    weights: Float[Tensor, "B L"] | None = None,
    draw: Draw = Draw.POSITIONS,
) -> MaskedPositions:
    """Sample `number` positions of each row from the candidates: uniformly, or in proportion to `weights` (more than 0).

    The number of slots is that of a full row, so shapes depend only on the batch's length.
    """
    slots = count_masked_in_row(candidates.shape[1], config.fraction)
    if config.with_replacement:
        probabilities = candidates.double() if weights is None else weights.double() * candidates
        cumulative = probabilities.cumsum(1)
        u = uniform(keys, draw, slots).double() * cumulative[:, -1:]
        positions = torch.searchsorted(cumulative, u, right=True).clamp_(max=candidates.shape[1] - 1)
    else:
        order = uniform(keys, draw, candidates.shape[1])
        if weights is not None:
            # The positions with the largest u^(1/w) are a weighted sample without replacement (Efraimidis and Spirakis, 2006).
            order = torch.log1p(-order) / weights
        positions = order.masked_fill(~candidates, -math.inf).topk(slots, dim=1).indices
    used = torch.arange(slots, device=candidates.device) < number[:, None]
    return MaskedPositions(positions, used & candidates.gather(1, positions))


def write_tokens(
    input_ids: Int64[Tensor, "B L"],
    positions: Int64[Tensor, "B K"],
    tokens: Int64[Tensor, "B K"] | int,
    mask: Bool[Tensor, "B K"],
) -> Int64[Tensor, "B L"]:
    """Write `tokens` to a copy of `input_ids` at the positions where `mask` is true; a repeated position has equal tokens."""
    length = input_ids.shape[1]
    padded = F.pad(input_ids, (0, 1))  # the extra column receives the tokens that are not to be written
    return padded.scatter_(1, torch.where(mask, positions, length), tokens)[:, :length]


def write_means(
    input_ids: Int64[Tensor, "B L"],
    positions: Int64[Tensor, "B K"],
    tokens: Int64[Tensor, "B K"],
    mask: Bool[Tensor, "B K"],
) -> Int64[Tensor, "B L"]:
    """`write_tokens` where a repeated position gets the floor of the mean of its token ids, as in the original code."""
    times = torch.zeros_like(input_ids).scatter_add(1, positions, mask.long())
    total = torch.zeros_like(input_ids).scatter_add(1, positions, tokens * mask)
    return torch.where(times > 0, total // times.clamp(min=1), input_ids)


def write_samples(
    input_ids: Int64[Tensor, "B L"],
    positions: Int64[Tensor, "B K"],
    tokens: Int64[Tensor, "B K"],
    mask: Bool[Tensor, "B K"],
    config: MaskingConfig,
) -> Int64[Tensor, "B L"]:
    """`write_tokens` for sampled tokens, which may differ at a repeated position."""
    write = write_means if config.with_replacement else write_tokens
    return write(input_ids, positions, tokens, mask)
