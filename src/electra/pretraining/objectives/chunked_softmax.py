"""Chunked cross-entropy and sampling: a softmax over the vocabulary that never holds all logits.

Logits are the largest tensor of a training step by far. Here they exist for one block of rows at a time: loss, argmax and
sample are computed from them, and the backward pass recomputes them. That costs one more matrix product and saves writing,
reading and (on a CPU) mapping the memory several times. `tests/pretraining/test_token_scores.py` compares it with the plain
softmax.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable

from electra.pretraining.objectives.sampling import Sampling, sample_tokens

BLOCK = {"cpu": 2**18, "cuda": 2**28}
"""Logits that exist at once: on a CPU what stays in a core's cache, if the vocabulary has no more than some thousand tokens;
on a GPU few kernels matter more (1 GiB, not measured)."""
LEAST_ROWS = 128
"""Rows of a block, at least, however large the vocabulary: with fewer a product reads its weights too often."""


class TokenScores(NamedTuple):
    """Loss, argmax and sample of each row. Only `nll` carries a gradient."""

    nll: Float[Tensor, "*rows"]
    """-log p(target), in float32."""
    correct: Bool[Tensor, "*rows"]
    """The target is the likeliest token, or as likely as any."""
    log_normalizer: Float[Tensor, "*rows"]
    """log of the sum of the exponentials of the logits."""
    best: Float[Tensor, "*rows"]
    """The largest logit."""
    sampled: Int64[Tensor, "*rows"] | None
    """A sample of the distribution that `Sampling` defines."""


@dataclass(frozen=True)
class BlockFunctions:
    """The computations on a block of logits."""

    block_forward: Callable[..., tuple[Tensor, ...]]
    block_backward: Callable[..., tuple[Tensor, Tensor]]


@cache
def get_block_functions(backend: str | None) -> BlockFunctions:
    """`block_forward` and `block_backward`, compiled by that back end of torch.compile, if there is one.

    They are a dozen passes over logits, which a GPU's memory is slow to write and to read again; compiled, a few.
    """
    if backend is None:
        return BlockFunctions(block_forward, block_backward)
    return BlockFunctions(torch.compile(block_forward, backend=backend), torch.compile(block_backward, backend=backend))


def to_overwrite(logits: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
    """The logits in float32: themselves, where that spares memory. A compiled pass has none, and would write them back."""
    return logits.to(torch.float32, copy=True) if torch.compiler.is_compiling() else logits.float()


def block_forward(
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


def block_backward(
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
    features: Float[Tensor, "*rows E"],
    word: Float[Tensor, "V E"],
    bias: Float[Tensor, " V"],
    targets: Int64[Tensor, "*rows"],
    sampling: Sampling | None = None,
    u: Float[Tensor, "*rows"] | None = None,
    backend: str | None = None,
) -> TokenScores:
    """Cross-entropy of `targets` under softmax(features @ word.T + bias), and with `sampling` one sample per row.

    `u` are numbers from [0, 1) for the samples, `backend` is torch.compile's.
    """
    runtime = features.device.type
    dtype = torch.get_autocast_dtype(runtime) if torch.is_autocast_enabled(runtime) else None
    rows, u = targets.shape, features.new_empty(0, dtype=torch.float32) if u is None else u.flatten()
    assert sampling is None or len(u) == targets.numel()
    features = features.flatten(0, -2)
    if dtype is not None:
        features, word, bias = features.to(dtype), word.to(dtype), bias.to(dtype)
    nll, correct, log_normalizer, best, sampled = ChunkedSoftmax.apply(
        features, word, bias, targets.flatten(), sampling, u, get_block_functions(backend)
    )
    return TokenScores(
        nll.view(rows),
        correct.view(rows),
        log_normalizer.view(rows),
        best.view(rows),
        None if sampling is None else sampled.view(rows),
    )


def iterate_logit_blocks(
    features: Float[Tensor, "N E"], word: Float[Tensor, "V E"], bias: Float[Tensor, " V"]
) -> Iterator[tuple[slice, Float[Tensor, "_ V"]]]:
    """Blocks of rows with their logits, which may be overwritten; the next block overwrites the same memory."""
    most = max(LEAST_ROWS, BLOCK["cpu" if features.device.type == "cpu" else "cuda"] // len(bias))
    memory = features.new_empty(min(most, len(features)), len(bias))
    for start in range(0, len(features), most):
        some = features[start : start + most]
        yield slice(start, start + most), torch.addmm(bias, some, word.t(), out=memory[: len(some)])


class ChunkedSoftmax(torch.autograd.Function):
    """`TokenScores` of all rows, block by block, and the gradient of `nll` with respect to vectors, weights and bias."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Float[Tensor, "N E"],
        word: Float[Tensor, "V E"],
        bias: Float[Tensor, " V"],
        targets: Int64[Tensor, " N"],
        sampling: Sampling | None,
        u: Float[Tensor, " _"],
        functions: BlockFunctions,
    ) -> tuple[Tensor, ...]:
        at_target, best, log_normalizer = (torch.empty(targets.shape, device=targets.device) for _ in range(3))
        correct, drawn = torch.empty_like(targets, dtype=torch.bool), torch.empty_like(targets)
        found = (at_target, best, correct, log_normalizer, drawn)
        for rows, logits in iterate_logit_blocks(features, word, bias):
            of_block = functions.block_forward(logits, targets[rows], sampling, u[rows])
            for whole, part in zip(found, of_block, strict=False):  # nothing may be drawn
                whole[rows] = part
        ctx.save_for_backward(features, word, bias, targets, log_normalizer)
        ctx.functions = functions
        ctx.mark_non_differentiable(correct, log_normalizer, best, drawn)
        return log_normalizer - at_target, correct, log_normalizer, best, drawn

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, " N"], *_: Tensor) -> tuple[Tensor | None, ...]:
        features, word, bias, targets, log_normalizer = ctx.saved_tensors
        to_features, to_word, to_bias = (torch.zeros_like(t, dtype=torch.float32) for t in (features, word, bias))
        for rows, logits in iterate_logit_blocks(features, word, bias):
            slope, of_bias = ctx.functions.block_backward(logits, log_normalizer[rows], targets[rows], gradient[rows])
            to_bias += of_bias
            to_features[rows] = slope @ word
            if word.dtype == to_word.dtype:
                to_word.addmm_(slope.t(), features[rows])  # no memory for the product
            else:
                to_word += slope.t() @ features[rows]
        return to_features.to(features.dtype), to_word.to(word.dtype), to_bias.to(bias.dtype), None, None, None, None
