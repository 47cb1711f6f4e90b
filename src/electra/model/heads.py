"""Heads for pre-training: the masked-LM head and the replaced-token head."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class MaskedLMHead(nn.Module):
    """Linear layer to the embedding size, GELU, LayerNorm, and an output layer tied to the word embeddings, with a bias."""

    def __init__(self, hidden_size: int, embedding_size: int, vocab_size: int, norm_eps: float) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, embedding_size)
        self.norm = nn.LayerNorm(embedding_size, eps=norm_eps)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(
        self,
        hidden: Float[Tensor, "*rows H"],
        word_embeddings: Float[Tensor, "V E"],
        compute: Callable[..., Any] = F.linear,
    ) -> Any:
        """Compute logits over the vocabulary for each hidden vector; pass only vectors of tokens to predict.

        `compute` takes features [*rows, E], embeddings and bias [V], and returns something else in place of all logits, such
        as a loss in chunks. It is called here, so that hooks and sharding see the head as one module.
        """
        return compute(self.norm(F.gelu(self.dense(hidden))), word_embeddings, self.bias)


class ReplacedTokenHead(nn.Module):
    """One logit per token, positive for "replaced" (section 2 of the paper), with the hidden layer of the original code."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.score = nn.Linear(hidden_size, 1)

    def forward(self, hidden: Float[Tensor, "B L H"]) -> Float[Tensor, "B L"]:
        return self.score(F.gelu(self.dense(hidden))).squeeze(-1)
