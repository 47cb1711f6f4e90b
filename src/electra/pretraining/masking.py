"""Which positions of a batch are corrupted and predicted: drawn anew for every batch, on the device."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from electra.errors import UsageError


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

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 0.5:
            raise UsageError(f"masking.fraction is {self.fraction}; it must lie between 0 and 0.5")
        for name in ("generator_mask", "mlm_mask", "mlm_random"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"masking.{name} is {getattr(self, name)}; it must lie between 0 and 1")
        if self.mlm_mask + self.mlm_random > 1:
            raise UsageError(f"masking.mlm_mask {self.mlm_mask} and masking.mlm_random {self.mlm_random} exceed 1")


class Chosen(NamedTuple):
    """The chosen positions of a batch. Every row has the same number of slots; a shorter row leaves some unused."""

    positions: Int64[Tensor, "B K"]
    used: Bool[Tensor, "B K"]


def num_chosen(lengths: Int64[Tensor, " B"], fraction: float) -> Int64[Tensor, " B"]:
    """How many tokens of a row of `lengths` tokens are chosen: round(fraction * n), half to even, at least one.

    Never more than the tokens that are not special: [CLS] and one or two [SEP].
    """
    wanted = torch.round(fraction * lengths.double()).long()
    return torch.minimum(wanted, lengths - 3).clamp(min=1)


def choose_positions(
    input_ids: Int64[Tensor, "B L"],
    lengths: Int64[Tensor, " B"],
    special_ids: tuple[int, ...],
    config: MaskingConfig,
) -> Chosen:
    """Draw positions uniformly among the tokens that are neither special nor padding.

    The number of slots is that of a full row, so that shapes depend on the batch's length only.
    """
    slots = int(num_chosen(torch.tensor([input_ids.shape[1]]), config.fraction))
    number = num_chosen(lengths, config.fraction)
    candidates = torch.ones_like(input_ids, dtype=torch.bool)
    for special in special_ids:  # compared with numbers, not with a tensor of them: nothing travels to the device
        candidates &= input_ids != special
    if config.with_replacement:
        positions = torch.multinomial(candidates.float(), slots, replacement=True)
    else:
        noise = torch.rand(input_ids.shape, device=input_ids.device)
        positions = noise.masked_fill(~candidates, -1.0).topk(slots, dim=1).indices
    used = torch.arange(slots, device=input_ids.device) < number[:, None]
    return Chosen(positions, used & candidates.gather(1, positions))


def write_tokens(input_ids: Int64[Tensor, "B L"], chosen: Chosen, tokens: Int64[Tensor, "B K"]) -> Int64[Tensor, "B L"]:
    """`input_ids` with `tokens` written at the chosen positions.

    A position chosen twice gets the floor of the mean of its tokens' ids: an odd rule, but the original code's, and
    without drawing with replacement no position is chosen twice.
    """
    used = chosen.used.long()
    times = torch.zeros_like(input_ids).scatter_add(1, chosen.positions, used)
    total = torch.zeros_like(input_ids).scatter_add(1, chosen.positions, tokens * used)
    return torch.where(times > 0, total // times.clamp(min=1), input_ids)
