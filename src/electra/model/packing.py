"""Layouts of a batch in the encoder: padded, [B, L, H], or packed, [T, H], without padding.

Only attention depends on the sequence of a token; everything else in a layer is computed token by token. With sequences of
up to 128 tokens, about one position in ten is padding, which a packed batch does not compute. Dimensions as in
`electra.model.layers`; T tokens of a batch without padding, P projections (queries, keys, values), D head size.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor


def gather_positions(x: Float[Tensor, "B L H"], positions: Int64[Tensor, "B K"]) -> Float[Tensor, "B K H"]:
    """Gather the vectors of `x` at `positions` of their sequence."""
    return x.gather(1, positions.unsqueeze(-1).expand(-1, -1, x.shape[-1]))


@dataclass(frozen=True)
class Padded:
    """Padded layout."""

    mask: Bool[Tensor, "B L"] | None
    """True at tokens, False at padding; None without padding."""

    def pack(self, x: Float[Tensor, "B L H"]) -> Float[Tensor, "B L H"]:
        """Convert a padded batch to this layout."""
        return x

    def unpack(self, x: Float[Tensor, "B L H"]) -> Float[Tensor, "B L H"]:
        """Convert a batch in this layout to [B, L, H]."""
        return x

    def gather(self, x: Float[Tensor, "B L H"], positions: Int64[Tensor, "B K"]) -> Float[Tensor, "B K H"]:
        """Gather the vectors at `positions` of their sequence."""
        return gather_positions(x, positions)

    def cu_seqlens(self, x: Float[Tensor, "B L H"]) -> Int64[Tensor, " S"]:
        """Offset of each sequence in the tokens, followed by the number of tokens; only without padding."""
        assert self.mask is None
        return torch.arange(0, x.shape[0] * x.shape[1] + 1, x.shape[1])

    def split_heads(self, x: Float[Tensor, "B L PND"], parts: int, size: int) -> Float[Tensor, "P B N L D"]:
        """Split projections and heads; the result is padded."""
        return x.unflatten(-1, (parts, -1, size)).permute(2, 0, 3, 1, 4)

    def merge_heads(self, x: Float[Tensor, "B N L D"]) -> Float[Tensor, "B L H"]:
        """Concatenate the heads of each token, in this layout."""
        return merge_heads(x)


@dataclass(frozen=True)
class Packed:
    """Packed layout: the concatenated tokens of all sequences. It has the same methods as `Padded`."""

    mask: Bool[Tensor, "B L"]
    """True at tokens, False at padding."""
    multiple: int = 1
    """Zeros are appended to a multiple of this many tokens. They do not affect results: attention ignores them, everything
    else is computed token by token, and `unpack` drops them."""

    @cached_property
    def indices(self) -> tuple[Int64[Tensor, " T"], Int64[Tensor, " T"]]:
        """Row and column of each token in the padded batch."""
        row, column = self.mask.nonzero().unbind(1)
        return row, column

    @cached_property
    def offsets(self) -> Int64[Tensor, " S"]:
        return F.pad(self.mask.sum(1).cumsum(0), (1, 0))

    def pack(self, x: Float[Tensor, "B L H"]) -> Float[Tensor, "T H"]:
        row, column = self.indices
        packed = Gather.apply(x.flatten(0, 1), row * x.shape[1] + column)
        missing = -len(packed) % self.multiple
        return F.pad(packed, (0, 0, 0, missing)) if missing else packed

    def unpack(self, x: Float[Tensor, "T H"]) -> Float[Tensor, "B L H"]:
        row, column = self.indices
        size, length = self.mask.shape
        return scatter(x[: len(row)], row * length + column, size * length).unflatten(0, (size, length))

    def gather(self, x: Float[Tensor, "T H"], positions: Int64[Tensor, "B K"]) -> Float[Tensor, "B K H"]:
        # Index of each padded position in the packed tokens.
        index = self.mask.flatten().cumsum(0).sub(1).view_as(self.mask)
        return x[index.gather(1, positions)]

    def cu_seqlens(self, x: Float[Tensor, "T H"]) -> Int64[Tensor, " S"]:
        return self.offsets

    def split_heads(self, x: Float[Tensor, "T PND"], parts: int, size: int) -> Float[Tensor, "P B N L D"]:
        rows, length = self.mask.shape
        number = x.shape[-1] // (parts * size)
        indices = self.get_head_indices(number)
        x = x[: len(indices)]
        part_offsets = torch.arange(parts).mul_(rows * number * length)[:, None]
        all_indices = (indices[:, None] + part_offsets).flatten()  # T P N
        padded = scatter(x.view(-1, size), all_indices, parts * rows * number * length)
        return padded.view(parts, rows, number, length, size)

    def merge_heads(self, x: Float[Tensor, "B N L D"]) -> Float[Tensor, "T H"]:
        indices = self.get_head_indices(x.shape[1])
        return Gather.apply(x.flatten(0, 2), indices.flatten()).view(len(indices), -1)

    def get_head_indices(self, number: int) -> Int64[Tensor, "T N"]:
        """Indices of the `number` heads of each token in a padded [B, N, L], flattened."""
        row, column = self.indices
        length = self.mask.shape[1]
        return (row * number * length + column)[:, None] + torch.arange(number) * length


def merge_heads(x: Float[Tensor, "B N Q D"]) -> Float[Tensor, "B Q ND"]:
    """Concatenate the heads of each vector."""
    return x.transpose(1, 2).flatten(2)


def scatter(x: Float[Tensor, "R D"], indices: Int64[Tensor, " R"], size: int) -> Float[Tensor, "S D"]:
    """Return `size` vectors: those of `x` at `indices`, which are unique, and zeros elsewhere."""
    return x.new_zeros(size, x.shape[1]).index_copy_(0, indices, x)


class Gather(torch.autograd.Function):
    """index_select for unique `indices`: the backward pass copies instead of adding."""

    @staticmethod
    def forward(ctx: Any, x: Float[Tensor, "S D"], indices: Int64[Tensor, " R"]) -> Float[Tensor, "R D"]:
        ctx.save_for_backward(indices)
        ctx.size = len(x)
        return x.index_select(0, indices)

    @staticmethod
    def backward(ctx: Any, gradient: Float[Tensor, "R D"]) -> tuple[Float[Tensor, "S D"], None]:
        (indices,) = ctx.saved_tensors
        return scatter(gradient, indices, ctx.size), None
