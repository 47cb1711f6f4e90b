"""Sampling of one token per row by inverse CDF over the vocabulary."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor


@dataclass(frozen=True)
class Sampling:
    """The distribution of one sample per row: softmax(logits / temperature) without excluded tokens."""

    temperature: float = 1.0
    excluded: int | None = None
    """A token with probability 0 in all rows."""
    exclude_original_token: bool = False
    """The original token has probability 0 at its position."""

    def scores(self, logits: Float[Tensor, "*rows V"], targets: Int64[Tensor, "*rows"]) -> Float[Tensor, "*rows V"]:
        """The logits of the distribution."""
        scores = logits / self.temperature
        if self.excluded is not None:
            scores[..., self.excluded] = -math.inf
        return scores.scatter(-1, targets.unsqueeze(-1), -math.inf) if self.exclude_original_token else scores

    @property
    def reuses_softmax(self) -> bool:
        """Whether the exponentials of the loss can be reused as weights, with that of `excluded` set to 0."""
        return self.temperature == 1 and not self.exclude_original_token


PART_SIZE = 256
"""Tokens per part of the vocabulary. On a GPU a part is sampled first, then a token in it."""


def sample_tokens(weights: Float[Tensor, "N V"], u: Float[Tensor, " N"]) -> Int64[Tensor, " N"]:
    """Sample one token per row in proportion to the weights, by inverse CDF with `u` from [0, 1).

    May overwrite the weights. A token of weight 0 is never sampled. With nan weights any token may be sampled: the training
    loop stops a diverged run.
    """
    return sample_by_cumulative_sum(weights, u) if weights.device.type == "cpu" else sample_by_partial_sums(weights, u)


def sample_by_cumulative_sum(weights: Float[Tensor, "N V"], u: Float[Tensor, " N"]) -> Int64[Tensor, " N"]:
    """`sample_tokens` by one cumulative sum over the vocabulary, which overwrites the weights."""
    cumulative = weights.cumsum_(1)
    sampled = torch.searchsorted(cumulative, u.unsqueeze(1) * cumulative[:, -1:], right=True).squeeze(1)
    return sampled.clamp_(max=weights.shape[1] - 1)


def sample_by_partial_sums(weights: Float[Tensor, "N V"], u: Float[Tensor, " N"]) -> Int64[Tensor, " N"]:
    """`sample_tokens` by cumulative sums over parts of the vocabulary, then over the tokens of one part, in float64.

    One sum reads all weights, and nothing of their size is written. A GPU computes a cumulative sum in parallel, and rounding
    may increase it where a weight is 0; then the most likely token of the part is returned.
    """
    full = weights.shape[1] // PART_SIZE * PART_SIZE
    sums = weights[:, :full].unflatten(1, (-1, PART_SIZE)).sum(2, dtype=torch.float64)
    rest = weights[:, full:].sum(1, keepdim=True, dtype=torch.float64)
    cumulative = torch.cat([sums, rest], 1).cumsum(1)
    target = u.double().unsqueeze(1) * cumulative[:, -1:]
    part = (cumulative <= target).sum(1, keepdim=True).clamp_(max=cumulative.shape[1] - 1)
    before = F.pad(cumulative, (1, 0)).gather(1, part)
    tokens = part * PART_SIZE + torch.arange(PART_SIZE, device=weights.device)
    inside = weights.gather(1, tokens.clamp(max=weights.shape[1] - 1)).masked_fill(tokens >= weights.shape[1], 0.0)
    passed = inside.double().cumsum(1) <= target - before
    index = passed.sum(1, keepdim=True).clamp_(max=PART_SIZE - 1)
    index = torch.where(inside.gather(1, index) > 0, index, inside.argmax(1, keepdim=True))
    return tokens.gather(1, index).squeeze(1)
