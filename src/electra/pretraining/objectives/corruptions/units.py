"""Units of masking: words and spans of words, which are masked as a whole."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int64
from torch import Tensor

from electra.pretraining.objectives.corruptions.masking import MaskedPositions
from electra.seeding import Draw, uniform

SPAN_P, MAX_SPAN = 0.2, 10
"""Parameter of the geometric distribution of a span's number of words, and the longest span (SpanBERT, Joshi et al., 2020,
section 3.1). Longer spans are drawn again, not shortened: the mean is 3.8, as there."""


def shift_right(values: Tensor, first: int) -> Tensor:
    """Return the value of the previous position for each position, `first` for the first one."""
    return F.pad(values, (1, 0), value=first)[:, :-1]


def mark_word_starts(continues: Bool[Tensor, "B L"], candidates: Bool[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
    """Return True at the first token of each word among the candidates.

    `continues` is true at tokens that continue a word. Where an example was cut inside a word, its rest is a word.
    """
    return candidates & ~(continues & shift_right(candidates, False))


def sample_span_lengths(keys: Int64[Tensor, " B"], number: int) -> Int64[Tensor, "B n"]:
    """Sample numbers of words from the geometric distribution with `SPAN_P`, up to `MAX_SPAN`, by inverse CDF."""
    rest = 1 - SPAN_P
    u = uniform(keys, Draw.SPAN_LENGTHS, number).double()
    lengths = 1 + torch.floor(torch.log1p(-u * (1 - rest**MAX_SPAN)) / math.log(rest)).long()
    return lengths.clamp_(max=MAX_SPAN)


def mark_span_starts(
    words: Bool[Tensor, "B L"], candidates: Bool[Tensor, "B L"], keys: Int64[Tensor, " B"]
) -> Bool[Tensor, "B L"]:
    """Divide rows into spans of words; returns True at the first token of each span.

    `words` is true at the first token of each word. A span ends early at a special token and at the end of a row.
    """
    ends = sample_span_lengths(keys, words.shape[1]).cumsum(1)
    span = torch.searchsorted(ends, words.cumsum(1) - 1, right=True)
    return words & ((span != shift_right(span, -1)) | ~shift_right(candidates, False))


def sample_units(
    starts: Bool[Tensor, "B L"],
    candidates: Bool[Tensor, "B L"],
    number: Int64[Tensor, " B"],
    slots: int,
    keys: Int64[Tensor, " B"],
) -> MaskedPositions:
    """Sample units of each row uniformly, without replacement, until they have `number` tokens.

    `starts` is true at the first token of each unit, which ends before the next one or before a token that is no candidate.
    Of the last unit that was sampled, only as many adjacent tokens are masked as are missing, at a random place in it.
    """
    places = torch.arange(candidates.shape[1], device=candidates.device)
    first = (places * starts).cummax(1).values
    scores = uniform(keys, Draw.POSITIONS, candidates.shape[1]).gather(1, first).masked_fill(~candidates, -math.inf)
    # A stable sort keeps the tokens of a unit together, in their order.
    positions = scores.sort(dim=1, descending=True, stable=True).indices[:, :slots]
    number = torch.minimum(number, candidates.sum(1))
    used = torch.arange(slots, device=candidates.device) < number[:, None]
    last = first.gather(1, positions.gather(1, (number[:, None] - 1).clamp(min=0)))
    in_last = used & (first.gather(1, positions) == last)
    missing = (candidates & (first == last)).sum(1, keepdim=True) - in_last.sum(1, keepdim=True)
    offset = (uniform(keys, Draw.UNIT_CUT, 1).double() * (missing + 1)).long()
    return MaskedPositions(positions + offset * in_last, used)
