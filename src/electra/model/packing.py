"""How the tokens of a batch lie: in rows with their padding, or in one line without it.

Only attention needs rows. All else that a layer does is done token by token, and in a batch of the paper's 128 tokens a row
one place in ten is padding: a line spares it. Letters of shapes as in `electra.model.layers`; T real tokens in a batch.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor


def gather_positions(x: Float[Tensor, "B L H"], positions: Int64[Tensor, "B K"]) -> Float[Tensor, "B K H"]:
    """The vectors of `x` that stand at `positions` of their row."""
    return x.gather(1, positions.unsqueeze(-1).expand(-1, -1, x.shape[-1]))


@dataclass(frozen=True)
class Rows:
    """Rows as they are."""

    mask: Bool[Tensor, "B L"] | None
    """True at real tokens; None where nothing is padded."""

    def laid(self, x: Float[Tensor, "B L H"]) -> Float[Tensor, "B L H"]:
        """`x` as the layers take it."""
        return x

    def unlaid(self, x: Float[Tensor, "B L H"]) -> Float[Tensor, "B L H"]:
        """What `laid` gave, as rows."""
        return x

    def at(self, x: Float[Tensor, "B L H"], positions: Int64[Tensor, "B K"]) -> Float[Tensor, "B K H"]:
        """The vectors at `positions` of their row."""
        return gather_positions(x, positions)

    def starts(self, x: Float[Tensor, "B L H"]) -> Int64[Tensor, " S"]:
        """Where each row begins among all tokens that attention is to see, and how many there are; of rows without padding."""
        assert self.mask is None
        return torch.arange(0, x.shape[0] * x.shape[1] + 1, x.shape[1])

    def split(self, x: Float[Tensor, "B L PND"], parts: int, size: int) -> Float[Tensor, "P B N L D"]:
        """The heads, of `size`, of each of the `parts` that vectors consist of."""
        return x.unflatten(-1, (parts, -1, size)).permute(2, 0, 3, 1, 4)

    def joined(self, x: Float[Tensor, "B N L D"]) -> Float[Tensor, "B L H"]:
        """The vectors of which `x` has the heads."""
        return joined_heads(x)


@dataclass(frozen=True)
class Line:
    """All real tokens in one line, row after row; `Rows` says what the methods do. Padding comes back as zeros."""

    mask: Bool[Tensor, "B L"]
    """True at real tokens."""
    multiple: int = 1
    """Zeros fill the line up to a multiple of this many tokens, for layers by kernels of our own. Attention does not see them,
    and as all else is done token by token and they do not come back, they change nothing."""

    @cached_property
    def places(self) -> tuple[Int64[Tensor, " T"], Int64[Tensor, " T"]]:
        """Row and column of each token."""
        row, column = self.mask.nonzero().unbind(1)
        return row, column

    @cached_property
    def first_and_last(self) -> Int64[Tensor, " S"]:
        """The number of each row's first token, and that of all tokens."""
        return F.pad(self.mask.sum(1).cumsum(0), (1, 0))

    def laid(self, x: Float[Tensor, "B L H"]) -> Float[Tensor, "T H"]:
        row, column = self.places
        line = Collected.apply(x.flatten(0, 1), row * x.shape[1] + column)
        missing = -len(line) % self.multiple
        return F.pad(line, (0, 0, 0, missing)) if missing else line

    def unlaid(self, x: Float[Tensor, "T H"]) -> Float[Tensor, "B L H"]:
        row, column = self.places
        size, length = self.mask.shape
        return spread(x[: len(row)], row * length + column, size * length).unflatten(0, (size, length))

    def at(self, x: Float[Tensor, "T H"], positions: Int64[Tensor, "B K"]) -> Float[Tensor, "B K H"]:
        number = self.mask.flatten().cumsum(0).sub(1).view_as(self.mask)  # of each place in the line
        return x[number.gather(1, positions)]

    def starts(self, x: Float[Tensor, "T H"]) -> Int64[Tensor, " S"]:
        return self.first_and_last

    def split(self, x: Float[Tensor, "T PND"], parts: int, size: int) -> Float[Tensor, "P B N L D"]:
        rows, length = self.mask.shape
        number = x.shape[-1] // (parts * size)
        places = self.head_places(number)
        x = x[: len(places)]
        of_parts = torch.arange(parts).mul_(rows * number * length)[:, None]
        every = (places[:, None] + of_parts).flatten()  # T P N
        apart = spread(x.view(-1, size), every, parts * rows * number * length)
        return apart.view(parts, rows, number, length, size)

    def joined(self, x: Float[Tensor, "B N L D"]) -> Float[Tensor, "T H"]:
        places = self.head_places(x.shape[1])
        return Collected.apply(x.flatten(0, 2), places.flatten()).view(len(places), -1)

    def head_places(self, number: int) -> Int64[Tensor, "T N"]:
        """Where the `number` heads of each token stand among those of all rows, [B, N, L] flattened."""
        row, column = self.places
        length = self.mask.shape[1]
        return (row * number * length + column)[:, None] + torch.arange(number) * length


def heads(x: Float[Tensor, "B Q ND"], size: int) -> Float[Tensor, "B N Q D"]:
    """Vectors as heads of `size`."""
    return x.unflatten(-1, (-1, size)).transpose(1, 2)


def joined_heads(x: Float[Tensor, "B N Q D"]) -> Float[Tensor, "B Q ND"]:
    """Heads as vectors again."""
    return x.transpose(1, 2).flatten(2)


def spread(x: Float[Tensor, "R D"], places: Int64[Tensor, " R"], size: int) -> Float[Tensor, "S D"]:
    """`size` vectors: those of `x` at `places`, of which none is named twice, and zeros elsewhere."""
    return x.new_zeros(size, x.shape[1]).index_copy_(0, places, x)


class Collected(torch.autograd.Function):
    """The vectors of `x` at `places`, of which none is named twice; so the gradient is copied, where torch adds it up."""

    @staticmethod
    def forward(ctx: Any, x: Float[Tensor, "S D"], places: Int64[Tensor, " R"]) -> Float[Tensor, "R D"]:
        ctx.save_for_backward(places)
        ctx.size = len(x)
        return x.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, gradient: Float[Tensor, "R D"]) -> tuple[Float[Tensor, "S D"], None]:
        (places,) = ctx.saved_tensors
        return spread(gradient, places, ctx.size), None
