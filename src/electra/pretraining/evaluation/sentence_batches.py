"""Batches of tokenized sentences, untouched or with one token masked."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import torch
from jaxtyping import Int64
from torch import Tensor

from electra.data.batch import Batch
from electra.data.loader import pad_batch
from electra.text.tokenizer import Tokenizer

BATCH_TOKENS = 8_192
"""Tokens per forward pass, with padding."""


def iterate_sentences(encoded: Sequence[list[int]], pad_id: int) -> Iterator[tuple[Int64[Tensor, " B"], Batch]]:
    """Yield sentences in batches of similar length, with their numbers."""
    order = sorted(range(len(encoded)), key=lambda row: len(encoded[row]))
    start = 0
    while start < len(order):
        size = 1
        while start + size < len(order) and (size + 1) * len(encoded[order[start + size]]) <= BATCH_TOKENS:
            size += 1
        rows = order[start : start + size]
        ids = [encoded[row] for row in rows]
        yield torch.tensor(rows), pad_batch(ids, [len(each) for each in ids], pad_id)
        start += size


def iterate_masked(
    encoded: Sequence[list[int]], tokenizer: Tokenizer
) -> Iterator[tuple[Int64[Tensor, " B"], Batch, Int64[Tensor, "B 1"], Int64[Tensor, "B 1"]]]:
    """Yield every sentence once for each of its tokens, with this token masked, in batches of one length.

    A batch comes with the numbers of the sentences, the masked positions, and the tokens that were there.
    """
    order = sorted(range(len(encoded)), key=lambda row: len(encoded[row]))
    for length, group in groupby(order, key=lambda row: len(encoded[row])):
        numbers = torch.tensor(list(group))
        ids = torch.tensor([encoded[row] for row in numbers.tolist()])
        inside = length - 2
        rows = torch.arange(len(ids)).repeat_interleave(inside)
        positions = (torch.arange(inside) + 1).repeat(len(ids))[:, None]
        for row, at in zip(
            rows.split(max(1, BATCH_TOKENS // length)),
            positions.split(max(1, BATCH_TOKENS // length)),
            strict=True,
        ):
            targets = ids[row].gather(1, at)
            masked = ids[row].scatter(1, at, tokenizer.mask_id)
            yield numbers[row], pad_batch(list(masked.numpy()), [length] * len(masked), tokenizer.pad_id), at, targets
