"""Layouts of a batch inside the encoder: padded, [B, L, H], or packed, [T, H], without its padding.

Only attention needs to know which token belongs to which sequence. Everything else in a layer is computed token by token,
and with sequences of up to 128 tokens about one position in ten is padding, which a packed batch does not compute. Letters
of shapes as in `electra.model.layers`; T real tokens in a batch, P projections (queries, keys, values), D head size.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor


def gather_positions(x: Float[Tensor, "B L H"], positions: Int64[Tensor, "B K"]) -> Float[Tensor, "B K H"]:
    """The vectors of `x` at `positions` of their sequence."""
    return x.gather(1, positions.unsqueeze(-1).expand(-1, -1, x.shape[-1]))


@dataclass(frozen=True)
class Padded:
    """The padded layout."""

    mask: Bool[Tensor, "B L"] | None
    """True at real tokens; None if nothing is padded."""

    def pack(self, x: Float[Tensor, "B L H"]) -> Float[Tensor, "B L H"]:
        """Bring a padded batch into this layout."""
        return x

    def unpack(self, x: Float[Tensor, "B L H"]) -> Float[Tensor, "B L H"]:
        """Bring a batch in this layout back to [B, L, H]."""
        return x

    def gather(self, x: Float[Tensor, "B L H"], positions: Int64[Tensor, "B K"]) -> Float[Tensor, "B K H"]:
        """The vectors at `positions` of their sequence."""
        return gather_positions(x, positions)

    def cu_seqlens(self, x: Float[Tensor, "B L H"]) -> Int64[Tensor, " S"]:
        """The offset of each sequence among the tokens, and in the end the number of tokens; only without padding."""
        assert self.mask is None
        return torch.arange(0, x.shape[0] * x.shape[1] + 1, x.shape[1])

    def split_heads(self, x: Float[Tensor, "B L PND"], parts: int, size: int) -> Float[Tensor, "P B N L D"]:
        """Separate projections and heads, padded."""
        return x.unflatten(-1, (parts, -1, size)).permute(2, 0, 3, 1, 4)

    def merge_heads(self, x: Float[Tensor, "B N L D"]) -> Float[Tensor, "B L H"]:
        """Concatenate the heads of each token, in this layout."""
        return merge_heads(x)


@dataclass(frozen=True)
class Packed:
    """The packed layout: all real tokens, sequence after sequence. The methods are those of `Padded`."""

    mask: Bool[Tensor, "B L"]
    """True at real tokens."""
    multiple: int = 1
    """Zeros are appended up to a multiple of this many tokens. Attention ignores them, everything else is computed token by
    token, and `unpack` drops them: they change nothing."""

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
        index = (
            self.mask.flatten().cumsum(0).sub(1).view_as(self.mask)
        )  # of each padded position among the packed tokens
        return x[index.gather(1, positions)]

    def cu_seqlens(self, x: Float[Tensor, "T H"]) -> Int64[Tensor, " S"]:
        return self.offsets

    def split_heads(self, x: Float[Tensor, "T PND"], parts: int, size: int) -> Float[Tensor, "P B N L D"]:
        rows, length = self.mask.shape
        number = x.shape[-1] // (parts * size)
        indices = self.get_head_indices(number)
        x = x[: len(indices)]
        of_parts = torch.arange(parts).mul_(rows * number * length)[:, None]
        every = (indices[:, None] + of_parts).flatten()  # T P N
        padded = scatter(x.view(-1, size), every, parts * rows * number * length)
        return padded.view(parts, rows, number, length, size)

    def merge_heads(self, x: Float[Tensor, "B N L D"]) -> Float[Tensor, "T H"]:
        indices = self.get_head_indices(x.shape[1])
        return Gather.apply(x.flatten(0, 2), indices.flatten()).view(len(indices), -1)

    def get_head_indices(self, number: int) -> Int64[Tensor, "T N"]:
        """Indices of the `number` heads of each token in a padded [B, N, L], flattened."""
        row, column = self.indices
        length = self.mask.shape[1]
        return (row * number * length + column)[:, None] + torch.arange(number) * length


def split_heads(x: Float[Tensor, "B Q ND"], size: int) -> Float[Tensor, "B N Q D"]:
    """Separate the heads of each vector."""
    return x.unflatten(-1, (-1, size)).transpose(1, 2)


def merge_heads(x: Float[Tensor, "B N Q D"]) -> Float[Tensor, "B Q ND"]:
    """Concatenate the heads of each vector."""
    return x.transpose(1, 2).flatten(2)


def scatter(x: Float[Tensor, "R D"], indices: Int64[Tensor, " R"], size: int) -> Float[Tensor, "S D"]:
    """`size` vectors: those of `x` at `indices`, which are all different, and zeros elsewhere."""
    return x.new_zeros(size, x.shape[1]).index_copy_(0, indices, x)


class Gather(torch.autograd.Function):
    """The vectors of `x` at `indices`, which are all different: so the backward pass copies, where index_select's adds."""

    @staticmethod
    def forward(ctx: Any, x: Float[Tensor, "S D"], indices: Int64[Tensor, " R"]) -> Float[Tensor, "R D"]:
        ctx.save_for_backward(indices)
        ctx.size = len(x)
        return x.index_select(0, indices)

    @staticmethod
    def backward(ctx: Any, gradient: Float[Tensor, "R D"]) -> tuple[Float[Tensor, "S D"], None]:
        (indices,) = ctx.saved_tensors
        return scatter(gradient, indices, ctx.size), None
