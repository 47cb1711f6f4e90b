"""What a masked language model says over the vocabulary, without keeping its logits.

Logits are the largest tensor of a training step by far. Here they live for a block of rows at a time: the loss, the likeliest
token and a sample are taken from them, and the backward pass makes them again, which costs one more matrix product and
spares writing, reading and (on a CPU) mapping all that memory several times over. `tests/pretraining/test_token_scores.py`
has the plain way beside it.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable

from electra.pretraining.objectives.networks import MaskedLM

BLOCK = {"cpu": 2**18, "cuda": 2**28}
"""Logits that exist at once: on a CPU what stays in a core's cache, if the vocabulary is no larger than some thousand words;
on a GPU few kernels matter more (1 GiB, not measured)."""
LEAST_ROWS = 128
"""Rows of a block, at least, however large the vocabulary: with fewer a product reads its weights too often."""


@dataclass(frozen=True)
class Sampling:
    """How one token a row is drawn: from softmax(logits / temperature), without what must not come up."""

    temperature: float = 1.0
    never: int | None = None
    """A token that does not come up at all."""
    exclude_original_token: bool = False
    """The original token does not come up at its position."""

    def scores(self, logits: Float[Tensor, "*rows V"], targets: Int64[Tensor, "*rows"]) -> Float[Tensor, "*rows V"]:
        """The logits of the distribution that is drawn from."""
        scores = logits / self.temperature
        if self.never is not None:
            scores[..., self.never] = -math.inf
        return scores.scatter(-1, targets.unsqueeze(-1), -math.inf) if self.exclude_original_token else scores

    @property
    def reuses_softmax(self) -> bool:
        """Whether the exponentials of the loss serve, without the one token that does not come up."""
        return self.temperature == 1 and not self.exclude_original_token


SAMPLED_PART = 256
"""Tokens of a part of the vocabulary, of which one is drawn before a token of it, on a GPU."""


def sample_tokens(weights: Float[Tensor, "N V"], u: Float[Tensor, " N"]) -> Int64[Tensor, " N"]:
    """One token a row in proportion to the weights, where the cumulative distribution passes `u`, from [0, 1).

    May overwrite the weights. A weight of 0 never comes up. Weights that are not numbers give any token: a diverged run is
    stopped elsewhere.
    """
    return draw_tokens(weights, u) if weights.device.type == "cpu" else draw_tokens_by_parts(weights, u)


def draw_tokens(weights: Float[Tensor, "N V"], u: Float[Tensor, " N"]) -> Int64[Tensor, " N"]:
    """`sample_tokens` by one running sum over the vocabulary, which overwrites the weights."""
    cumulative = weights.cumsum_(1)
    drawn = torch.searchsorted(cumulative, u.unsqueeze(1) * cumulative[:, -1:], right=True).squeeze(1)
    return drawn.clamp_(max=weights.shape[1] - 1)


def draw_tokens_by_parts(weights: Float[Tensor, "N V"], u: Float[Tensor, " N"]) -> Int64[Tensor, " N"]:
    """`sample_tokens` by running sums over parts of the vocabulary, and then over the tokens of one part, in float64.

    One sum reads all weights, and nothing of their size is written. A GPU adds up a running sum in parallel and may round it
    to one that rises where a weight is 0; then the likeliest token of the part is taken.
    """
    whole = weights.shape[1] // SAMPLED_PART * SAMPLED_PART
    sums = weights[:, :whole].unflatten(1, (-1, SAMPLED_PART)).sum(2, dtype=torch.float64)
    rest = weights[:, whole:].sum(1, keepdim=True, dtype=torch.float64)
    cumulative = torch.cat([sums, rest], 1).cumsum(1)
    target = u.double().unsqueeze(1) * cumulative[:, -1:]
    part = (cumulative <= target).sum(1, keepdim=True).clamp_(max=cumulative.shape[1] - 1)
    before = F.pad(cumulative, (1, 0)).gather(1, part)
    tokens = part * SAMPLED_PART + torch.arange(SAMPLED_PART, device=weights.device)
    inside = weights.gather(1, tokens.clamp(max=weights.shape[1] - 1)).masked_fill(tokens >= weights.shape[1], 0.0)
    passed = inside.double().cumsum(1) <= target - before
    place = passed.sum(1, keepdim=True).clamp_(max=SAMPLED_PART - 1)
    place = torch.where(inside.gather(1, place) > 0, place, inside.argmax(1, keepdim=True))
    return tokens.gather(1, place).squeeze(1)


class TokenScores(NamedTuple):
    """What is known of the tokens at each row. Only `nll` carries a gradient."""

    nll: Float[Tensor, "*rows"]
    """-log p(target), in float32."""
    correct: Bool[Tensor, "*rows"]
    """The target is the likeliest token, or as likely as any."""
    log_normalizer: Float[Tensor, "*rows"]
    """log of the sum of the exponentials of the logits."""
    best: Float[Tensor, "*rows"]
    """The largest logit."""
    sampled: Int64[Tensor, "*rows"] | None
    """A token drawn as `Sampling` says."""


@dataclass(frozen=True)
class Arithmetic:
    """What is done with a block of logits."""

    compare: Callable[..., tuple[Tensor, ...]]
    differentiate: Callable[..., tuple[Tensor, Tensor]]


@cache
def arithmetic(backend: str | None) -> Arithmetic:
    """`compare` and `differentiate`, compiled by that back end of torch.compile, if there is one.

    They are a dozen passes over logits, which a GPU's memory is slow to write and to read again; compiled, a few.
    """
    if backend is None:
        return Arithmetic(compare, differentiate)
    return Arithmetic(torch.compile(compare, backend=backend), torch.compile(differentiate, backend=backend))


def to_overwrite(logits: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
    """The logits in float32: themselves, where that spares memory. A compiled pass has none, and would write them back."""
    return logits.to(torch.float32, copy=True) if torch.compiler.is_compiling() else logits.float()


def compare(
    logits: Float[Tensor, "N V"], targets: Int64[Tensor, " N"], sampling: Sampling | None, u: Float[Tensor, " _"]
) -> tuple[Tensor, ...]:
    """Logit of the target, largest logit, whether they are the same, log normalizer, and the tokens drawn, if any are.

    May overwrite the logits.
    """
    exact = logits.dtype == torch.float32  # argmax is slow on a CPU; ties, which it breaks, are for lower precisions
    logits = to_overwrite(logits)
    at_target = logits.gather(1, targets.unsqueeze(1)).squeeze(1)
    best = logits.amax(1)
    correct = at_target == best if exact else logits.argmax(1) == targets
    weights = None
    if sampling is not None and not sampling.reuses_softmax:
        scores = sampling.scores(logits, targets)
        weights = scores.sub_(scores.amax(1, keepdim=True)).exp_()
    exponentials = logits.sub_(best.unsqueeze(1)).exp_()
    log_normalizer = best + exponentials.sum(1).log()
    if sampling is None:
        return at_target, best, correct, log_normalizer
    if weights is None and sampling.never is not None:
        exponentials[:, sampling.never] = 0.0
    drawn = sample_tokens(exponentials if weights is None else weights, u)
    return at_target, best, correct, log_normalizer, drawn


def differentiate(
    logits: Float[Tensor, "N V"],
    log_normalizer: Float[Tensor, " N"],
    targets: Int64[Tensor, " N"],
    gradient: Float[Tensor, " N"],
) -> tuple[Float[Tensor, "N V"], Float[Tensor, " V"]]:
    """The gradient of nll times `gradient` with respect to the logits, in their precision, and to the bias, in float32.

    May overwrite the logits.
    """
    slope = to_overwrite(logits).sub_(log_normalizer.unsqueeze(1)).exp_().mul_(gradient.unsqueeze(1))
    if torch.compiler.is_compiling():  # in the same pass, where adding up at an index takes one of its own
        here = torch.arange(slope.shape[1], device=slope.device) == targets.unsqueeze(1)
        slope = slope - here * gradient.unsqueeze(1)
    else:
        slope.scatter_add_(1, targets.unsqueeze(1), -gradient.unsqueeze(1))
    return slope.to(logits.dtype), slope.sum(0)


def score_tokens(
    network: MaskedLM,
    hidden: Float[Tensor, "*rows H"],
    targets: Int64[Tensor, "*rows"],
    sampling: Sampling | None = None,
    u: Float[Tensor, "*rows"] | None = None,
) -> TokenScores:
    """Compare what `network` says after `hidden` with the tokens `targets`; with `sampling`, draw a token for each by `u`."""
    runtime = hidden.device.type
    dtype = torch.get_autocast_dtype(runtime) if torch.is_autocast_enabled(runtime) else hidden.dtype
    rows, u = targets.shape, hidden.new_empty(0, dtype=torch.float32) if u is None else u.flatten()
    assert sampling is None or len(u) == targets.numel()
    said = network.head.transform(hidden).flatten(0, -2).to(dtype)
    word, bias = network.encoder.embeddings.word.weight.to(dtype), network.head.bias.to(dtype)
    nll, correct, log_normalizer, best, sampled = SoftmaxOverVocabulary.apply(
        said, word, bias, targets.flatten(), sampling, u, arithmetic(network.backend)
    )
    return TokenScores(
        nll.view(rows),
        correct.view(rows),
        log_normalizer.view(rows),
        best.view(rows),
        None if sampling is None else sampled.view(rows),
    )


def blocks_of_logits(
    said: Float[Tensor, "N E"], word: Float[Tensor, "V E"], bias: Float[Tensor, " V"]
) -> Iterator[tuple[slice, Float[Tensor, "_ V"]]]:
    """Blocks of rows with their logits, which may be overwritten; the next block stands in the same memory."""
    most = max(LEAST_ROWS, BLOCK["cpu" if said.device.type == "cpu" else "cuda"] // len(bias))
    memory = said.new_empty(min(most, len(said)), len(bias))
    for start in range(0, len(said), most):
        some = said[start : start + most]
        yield slice(start, start + most), torch.addmm(bias, some, word.t(), out=memory[: len(some)])


class SoftmaxOverVocabulary(torch.autograd.Function):
    """`TokenScores` of all rows, block by block, and the gradient of `nll` with respect to vectors, weights and bias."""

    @staticmethod
    def forward(
        ctx: Any,
        said: Float[Tensor, "N E"],
        word: Float[Tensor, "V E"],
        bias: Float[Tensor, " V"],
        targets: Int64[Tensor, " N"],
        sampling: Sampling | None,
        u: Float[Tensor, " _"],
        arithmetic: Arithmetic,
    ) -> tuple[Tensor, ...]:
        at_target, best, log_normalizer = (torch.empty(targets.shape, device=targets.device) for _ in range(3))
        correct, drawn = torch.empty_like(targets, dtype=torch.bool), torch.empty_like(targets)
        found = (at_target, best, correct, log_normalizer, drawn)
        for rows, logits in blocks_of_logits(said, word, bias):
            of_block = arithmetic.compare(logits, targets[rows], sampling, u[rows])
            for whole, part in zip(found, of_block, strict=False):  # nothing may be drawn
                whole[rows] = part
        ctx.save_for_backward(said, word, bias, targets, log_normalizer)
        ctx.arithmetic = arithmetic
        ctx.mark_non_differentiable(correct, log_normalizer, best, drawn)
        return log_normalizer - at_target, correct, log_normalizer, best, drawn

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, " N"], *_: Tensor) -> tuple[Tensor | None, ...]:
        said, word, bias, targets, log_normalizer = ctx.saved_tensors
        to_said, to_word, to_bias = (torch.zeros_like(t, dtype=torch.float32) for t in (said, word, bias))
        for rows, logits in blocks_of_logits(said, word, bias):
            slope, of_bias = ctx.arithmetic.differentiate(logits, log_normalizer[rows], targets[rows], gradient[rows])
            to_bias += of_bias
            to_said[rows] = slope @ word
            if word.dtype == to_word.dtype:
                to_word.addmm_(slope.t(), said[rows])  # no memory for the product
            else:
                to_word += slope.t() @ said[rows]
        return to_said.to(said.dtype), to_word.to(word.dtype), to_bias.to(bias.dtype), None, None, None, None
