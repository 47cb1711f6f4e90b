"""Chunked cross-entropy and sampling: a softmax over the vocabulary without all logits in memory.

Logits are by far the largest tensor of a training step. Here they exist for one block of rows at a time: loss, argmax and
sample are computed from the block, and the backward pass recomputes it. This costs one more matrix product and saves writing,
reading and (on a CPU) mapping the memory several times. `tests/pretraining/objectives/test_chunked_softmax.py` compares it
with the plain softmax.
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

BLOCK_SIZE = {"cpu": 2**18, "cuda": 2**28}
"""Logits per block. On a CPU: what fits a core's cache, for a vocabulary of up to some thousand tokens. On a GPU (1 GiB, not
measured) a small number of kernels matters more."""
MIN_BLOCK_ROWS = 128
"""Fewest rows of a block, for any vocabulary: with fewer, the matrix product reads the weights too often."""


class TokenScores(NamedTuple):
    """Loss, argmax and sample of each row. Only `nll` carries a gradient."""

    nll: Float[Tensor, "*rows"]
    """-log p(target), in float32."""
    correct: Bool[Tensor, "*rows"]
    """The target is the most likely token, or equally likely."""
    log_normalizer: Float[Tensor, "*rows"]
    """logsumexp of the logits."""
    best: Float[Tensor, "*rows"]
    """The largest logit."""
    sampled: Int64[Tensor, "*rows"] | None
    """A sample from the distribution of `Sampling`."""


@dataclass(frozen=True)
class BlockFunctions:
    """The functions of a block of logits."""

    block_forward: Callable[..., tuple[Tensor, ...]]
    block_backward: Callable[..., tuple[Tensor, Tensor]]


@cache
def get_block_functions(backend: str | None) -> BlockFunctions:
    """Return `block_forward` and `block_backward`, compiled if a back end of torch.compile is given.

    Uncompiled they make a dozen passes over the logits in GPU memory, compiled only a few.
    """
    if backend is None:
        return BlockFunctions(block_forward, block_backward)
    return BlockFunctions(torch.compile(block_forward, backend=backend), torch.compile(block_backward, backend=backend))


def to_float32(logits: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
    """Convert the logits to float32, in eager mode without a copy if they already are.

    Compiled code saves nothing by working in place: it would have to write the overwritten logits back.
    """
    return logits.to(torch.float32, copy=True) if torch.compiler.is_compiling() else logits.float()


def block_forward(
    logits: Float[Tensor, "N V"], targets: Int64[Tensor, " N"], sampling: Sampling | None, u: Float[Tensor, " _"]
) -> tuple[Tensor, ...]:
    """Return target logit, largest logit, whether these are equal, log normalizer, and with `sampling` the sampled tokens.

    May overwrite the logits.
    """
    exact = logits.dtype == torch.float32  # argmax, slow on a CPU, is needed only to break the ties of lower precisions
    logits = to_float32(logits)
    target_logit = logits.gather(1, targets.unsqueeze(1)).squeeze(1)
    best = logits.amax(1)
    correct = target_logit == best if exact else logits.argmax(1) == targets
    weights = None
    if sampling is not None and not sampling.reuses_softmax:
        scores = sampling.scores(logits, targets)
        weights = scores.sub_(scores.amax(1, keepdim=True)).exp_()
    exponentials = logits.sub_(best.unsqueeze(1)).exp_()
    log_normalizer = best + exponentials.sum(1).log()
    if sampling is None:
        return target_logit, best, correct, log_normalizer
    if weights is None and sampling.excluded is not None:
        exponentials[:, sampling.excluded] = 0.0
    sampled = sample_tokens(exponentials if weights is None else weights, u)
    return target_logit, best, correct, log_normalizer, sampled


def block_backward(
    logits: Float[Tensor, "N V"],
    log_normalizer: Float[Tensor, " N"],
    targets: Int64[Tensor, " N"],
    gradient: Float[Tensor, " N"],
) -> tuple[Float[Tensor, "N V"], Float[Tensor, " V"]]:
    """Return the gradients of nll with respect to logits (in their precision) and bias (float32), times `gradient`.

    May overwrite the logits.
    """
    grad_logits = to_float32(logits).sub_(log_normalizer.unsqueeze(1)).exp_().mul_(gradient.unsqueeze(1))
    if torch.compiler.is_compiling():  # fused into the same pass, whereas scatter_add takes a pass of its own
        is_target = torch.arange(grad_logits.shape[1], device=grad_logits.device) == targets.unsqueeze(1)
        grad_logits = grad_logits - is_target * gradient.unsqueeze(1)
    else:
        grad_logits.scatter_add_(1, targets.unsqueeze(1), -gradient.unsqueeze(1))
    return grad_logits.to(logits.dtype), grad_logits.sum(0)


def score_tokens(
    features: Float[Tensor, "*rows E"],
    word: Float[Tensor, "V E"],
    bias: Float[Tensor, " V"],
    targets: Int64[Tensor, "*rows"],
    sampling: Sampling | None = None,
    u: Float[Tensor, "*rows"] | None = None,
    backend: str | None = None,
) -> TokenScores:
    """Compute the cross-entropy of `targets` under softmax(features @ word.T + bias), and with `sampling` one sample per row.

    `u` are the samples' random numbers from [0, 1), `backend` is torch.compile's.
    """
    device = features.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
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
    """Yield blocks of rows with their logits, which may be overwritten; all blocks use the same memory."""
    block_rows = max(MIN_BLOCK_ROWS, BLOCK_SIZE["cpu" if features.device.type == "cpu" else "cuda"] // len(bias))
    memory = features.new_empty(min(block_rows, len(features)), len(bias))
    for start in range(0, len(features), block_rows):
        block = features[start : start + block_rows]
        yield slice(start, start + block_rows), torch.addmm(bias, block, word.t(), out=memory[: len(block)])


class ChunkedSoftmax(torch.autograd.Function):
    """`TokenScores` of all rows, block by block, and the gradient of `nll` with respect to features, weights and bias."""

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
        target_logit, best, log_normalizer = (torch.empty(targets.shape, device=targets.device) for _ in range(3))
        correct, sampled = torch.empty_like(targets, dtype=torch.bool), torch.empty_like(targets)
        outputs = (target_logit, best, correct, log_normalizer, sampled)
        for rows, logits in iterate_logit_blocks(features, word, bias):
            block_outputs = functions.block_forward(logits, targets[rows], sampling, u[rows])
            for output, block_output in zip(outputs, block_outputs, strict=False):  # without sampling one output fewer
                output[rows] = block_output
        ctx.save_for_backward(features, word, bias, targets, log_normalizer)
        ctx.functions = functions
        ctx.mark_non_differentiable(correct, log_normalizer, best, sampled)
        return log_normalizer - target_logit, correct, log_normalizer, best, sampled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Float[Tensor, " N"], *_: Tensor) -> tuple[Tensor | None, ...]:
        features, word, bias, targets, log_normalizer = ctx.saved_tensors
        grad_features, grad_word, grad_bias = (torch.zeros_like(t, dtype=torch.float32) for t in (features, word, bias))
        for rows, logits in iterate_logit_blocks(features, word, bias):
            grad_logits, block_bias = ctx.functions.block_backward(
                logits, log_normalizer[rows], targets[rows], gradient[rows]
            )
            grad_bias += block_bias
            grad_features[rows] = grad_logits @ word
            if word.dtype == grad_word.dtype:
                grad_word.addmm_(grad_logits.t(), features[rows])  # without memory for the product
            else:
                grad_word += grad_logits.t() @ features[rows]
        gradients = (grad_features.to(features.dtype), grad_word.to(word.dtype), grad_bias.to(bias.dtype))
        return *gradients, None, None, None, None
