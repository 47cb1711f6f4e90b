"""Which positions of a batch are corrupted and predicted: drawn anew for every batch, on the device."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from electra.config.checks import check_limits
from electra.errors import UsageError
from electra.seeding import Draw, uniform


@dataclass(frozen=True)
class MaskingConfig:
    """How many tokens are chosen, and what the network that predicts them sees in their place."""

    fraction: float = 0.15
    """Share of a sequence's tokens, [CLS] and [SEP] counted, that is chosen (0.25 for Large)."""
    with_replacement: bool = False
    """Draw positions with replacement, as the original code does: some then come up twice, so fewer are chosen."""
    generator_mask: float = 0.85
    """Share of the chosen tokens that the generator sees as [MASK]; it sees the others as they are."""
    mlm_mask: float = 0.8
    """Objective mlm: share of the chosen tokens that become [MASK]."""
    mlm_random: float = 0.1
    """Objective mlm: share of the chosen tokens that become a random token; the rest stay."""
    strategy: str = "uniform"
    """uniform; or (Appendix H) rare: tokens that are rare in the corpus are masked more often; hard: those for which a small
    network, trained jointly, predicts a high loss."""
    rarity: float = 0.5
    """Strategy rare: a token is chosen in proportion to its count in the corpus to the power of minus this."""

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 0.5:
            raise UsageError(f"masking.fraction is {self.fraction}; it must be between 0 and 0.5")
        if not self.rarity > 0:
            raise UsageError(f"masking.rarity is {self.rarity}; it must be more than 0")
        check_limits(self, "masking.", rarity=10)
        for name in ("generator_mask", "mlm_mask", "mlm_random"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"masking.{name} is {getattr(self, name)}; it must be between 0 and 1")
        if self.mlm_mask + self.mlm_random > 1:
            raise UsageError(f"masking.mlm_mask {self.mlm_mask} and masking.mlm_random {self.mlm_random} exceed 1")


class MaskedPositions(NamedTuple):
    """The chosen positions of a batch. Every row has the same number of slots; a shorter row leaves some unused."""

    positions: Int64[Tensor, "B K"]
    used: Bool[Tensor, "B K"]


def count_masked(lengths: Int64[Tensor, " B"], fraction: float) -> Int64[Tensor, " B"]:
    """How many tokens of a row of `lengths` tokens are chosen: round(fraction * n), half to even, at least one.

    Never more than the tokens that are not special: [CLS] and one or two [SEP].
    """
    wanted = torch.round(fraction * lengths.double()).long()
    return torch.minimum(wanted, lengths - 3).clamp(min=1)


def count_masked_in_row(length: int, fraction: float) -> int:
    """How many tokens of a row of `length` tokens are chosen."""
    return int(count_masked(torch.tensor([length]), fraction))


def mark_real_tokens(input_ids: Int64[Tensor, "B L"], lengths: Int64[Tensor, " B"]) -> Bool[Tensor, "B L"]:
    """True where a token stands, false at padding."""
    return torch.arange(input_ids.shape[1], device=input_ids.device) < lengths[:, None]


def mark_maskable_tokens(input_ids: Int64[Tensor, "B L"], special_ids: tuple[int, ...]) -> Bool[Tensor, "B L"]:
    """True at the tokens that may be chosen: those that are neither special nor padding."""
    ordinary = torch.ones_like(input_ids, dtype=torch.bool)
    for special in special_ids:  # compared with numbers, not with a tensor of them: nothing travels to the device
        ordinary &= input_ids != special
    return ordinary


def sample_positions(
    candidates: Bool[Tensor, "B L"],
    number: Int64[Tensor, " B"],
    config: MaskingConfig,
    keys: Int64[Tensor, " B"],
    weights: Float[Tensor, "B L"] | None = None,
    draw: Draw = Draw.POSITIONS,
) -> MaskedPositions:
    """Draw `number` positions of each row among the candidates: uniformly, or in proportion to `weights` (more than 0).

    The number of slots is that of a full row, so that shapes depend on the batch's length only.
    """
    slots = count_masked_in_row(candidates.shape[1], config.fraction)
    if config.with_replacement:
        shares = candidates.double() if weights is None else weights.double() * candidates
        cumulative = shares.cumsum(1)
        u = uniform(keys, draw, slots).double() * cumulative[:, -1:]
        positions = torch.searchsorted(cumulative, u, right=True).clamp_(max=candidates.shape[1] - 1)
    else:
        order = uniform(keys, draw, candidates.shape[1])
        if weights is not None:
            # The largest u^(1/w) are a weighted sample without replacement (Efraimidis and Spirakis, 2006).
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
    """`input_ids` with `tokens` at the positions where `mask` is true; a position that comes twice gets equal tokens."""
    length = input_ids.shape[1]
    with_spare = F.pad(input_ids, (0, 1))  # a column that takes whatever is not to be written
    return with_spare.scatter_(1, torch.where(mask, positions, length), tokens)[:, :length]


def write_means(
    input_ids: Int64[Tensor, "B L"],
    positions: Int64[Tensor, "B K"],
    tokens: Int64[Tensor, "B K"],
    mask: Bool[Tensor, "B K"],
) -> Int64[Tensor, "B L"]:
    """The same; a position that comes twice gets the floor of the mean of its tokens' ids, as in the original code."""
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
    """The same for tokens that are drawn, which may differ where a position comes twice."""
    write = write_means if config.with_replacement else write_tokens
    return write(input_ids, positions, tokens, mask)
