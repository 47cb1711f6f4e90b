"""Pooling: the vector of a text from the hidden states of its tokens.

Shapes: B examples, L tokens, H hidden size, Q = 1 or L.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from electra.data.batch import Batch


class Pooling(nn.Module):
    """The hidden state of [CLS], as in the paper (section 3.1)."""

    only_cls = True
    """Whether it reads [CLS] alone; then `hidden` is [B, 1, H]."""

    def forward(self, hidden: Float[Tensor, "B Q H"], inputs: Batch) -> Float[Tensor, "B H"]:
        """Compute the vector of each text."""
        return hidden[:, 0]


class MeanPooling(Pooling):
    """The mean over all tokens of a text, [CLS] and [SEP] included, without padding."""

    only_cls = False

    def forward(self, hidden: Float[Tensor, "B L H"], inputs: Batch) -> Float[Tensor, "B H"]:
        """Compute the vector of each text."""
        return remove_padding(hidden, inputs).sum(1) / inputs.lengths[:, None]


class AttentionPooling(Pooling):
    """A weighted mean over the same tokens: the weights are a softmax of q h / sqrt(H) with a learned query q.

    The query is zero at first, so that training starts from the mean.
    """

    only_cls = False

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(hidden_size))

    def forward(self, hidden: Float[Tensor, "B L H"], inputs: Batch) -> Float[Tensor, "B H"]:
        """Compute the vector of each text."""
        hidden = remove_padding(hidden, inputs)
        scores = hidden @ self.query / len(self.query) ** 0.5
        weights = scores.masked_fill(~build_token_mask(inputs), -torch.inf).softmax(1)
        return (weights[:, :, None] * hidden).sum(1)


def build_token_mask(inputs: Batch) -> Bool[Tensor, "B L"]:
    """Build a mask that is True at tokens and False at padding."""
    if inputs.attention_mask is None:
        return torch.ones_like(inputs.input_ids, dtype=torch.bool)
    return inputs.attention_mask


def remove_padding(hidden: Float[Tensor, "B L H"], inputs: Batch) -> Float[Tensor, "B L H"]:
    """Set the hidden states at padding, which are undefined, to zero."""
    return hidden.masked_fill(~build_token_mask(inputs)[:, :, None], 0.0)


POOLINGS: dict[str, Callable[[int], Pooling]] = {
    "cls": lambda hidden_size: Pooling(),
    "mean": lambda hidden_size: MeanPooling(),
    "attention": AttentionPooling,
}
"""By name: a function of the hidden size."""
