"""Batches of tokenized sentences, untouched or with one token masked."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from electra.data.batch import Batch
from electra.data.loader import pad_batch

BATCH_TOKENS = 8_192
"""Tokens per forward pass, with padding."""


class TokenizedSentence(NamedTuple):
    """The input of a network for one sentence."""

    ids: list[int]
    """With the special tokens around the sentence."""
    token_types: list[int]
    scored: list[int]
    """Positions of the tokens whose log-probabilities are summed: all but special tokens."""


class MaskedBatch(NamedTuple):
    """Sentences of one length, each with one token masked."""

    batch: Batch
    positions: Int64[Tensor, "B 1"]
    """Of the masked token."""
    targets: Int64[Tensor, "B 1"]
    """The token that was there."""
    tokens: Int64[Tensor, " B"]
    """Its number among the scored tokens of all sentences."""


def number_sentences(sentences: Sequence[TokenizedSentence]) -> Int64[Tensor, " N"]:
    """Return the number of the sentence of each scored token of all sentences."""
    counts = torch.tensor([len(each.scored) for each in sentences])
    return torch.arange(len(sentences)).repeat_interleave(counts)


def count_masked_tokens(sentences: Sequence[TokenizedSentence]) -> int:
    """Count the tokens in the batches of `iterate_masked`."""
    return sum(len(each.ids) * len(each.scored) for each in sentences)


def iterate_sentences(
    sentences: Sequence[TokenizedSentence], pad_id: int
) -> Iterator[tuple[Int64[Tensor, " B"], Batch]]:
    """Yield sentences in batches of similar length, with their numbers."""
    order = sorted(range(len(sentences)), key=lambda row: len(sentences[row].ids))
    start = 0
    while start < len(order):
        size = 1
        while start + size < len(order) and (size + 1) * len(sentences[order[start + size]].ids) <= BATCH_TOKENS:
            size += 1
        rows = order[start : start + size]
        ids = [sentences[row].ids for row in rows]
        yield torch.tensor(rows), pad_batch(ids, [len(each) for each in ids], pad_id)
        start += size


def iterate_masked(
    sentences: Sequence[TokenizedSentence], mask_id: int, max_tokens: int = BATCH_TOKENS
) -> Iterator[MaskedBatch]:
    """Yield every sentence once for each of its scored tokens, with this token masked, in batches of one length.

    A batch has at most `max_tokens` tokens and `BATCH_TOKENS`, but at least one row.
    """
    counts = torch.tensor([len(each.scored) for each in sentences])
    starts = counts.cumsum(0) - counts
    order = sorted(range(len(sentences)), key=lambda row: len(sentences[row].ids))
    for length, group in groupby(order, key=lambda row: len(sentences[row].ids)):
        numbers = list(group)
        ids, token_types = (torch.tensor([sentences[row][field] for row in numbers]) for field in (0, 1))
        rows = torch.arange(len(numbers)).repeat_interleave(counts[numbers])
        positions = torch.tensor([position for row in numbers for position in sentences[row].scored])[:, None]
        tokens = torch.cat([starts[row] + torch.arange(len(sentences[row].scored)) for row in numbers])
        size = max(1, min(BATCH_TOKENS, max_tokens) // length)
        for row, at, token in zip(rows.split(size), positions.split(size), tokens.split(size), strict=True):
            masked = ids[row].scatter(1, at, mask_id)
            batch = Batch(masked, token_types[row], torch.full((len(row),), length), None)
            yield MaskedBatch(batch, at, ids[row].gather(1, at), token)


def gather_log_probabilities(logits: Float[Tensor, "B V"], targets: Int64[Tensor, "B 1"]) -> Float[Tensor, " B"]:
    """Compute the log-probability of a token of each row, on the CPU."""
    return logits.log_softmax(-1).gather(1, targets.to(logits.device))[:, 0].cpu()
