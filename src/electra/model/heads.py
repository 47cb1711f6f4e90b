"""Heads for pre-training: the masked-LM head and the replaced-token head."""

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
        self, hidden: Float[Tensor, "*rows H"], word_embeddings: Float[Tensor, "V E"]
    ) -> Float[Tensor, "*rows V"]:
        """Compute logits over the vocabulary for each hidden vector; pass only vectors of tokens to predict."""
        return F.linear(self.transform(hidden), word_embeddings, self.bias)

    def transform(self, hidden: Float[Tensor, "*rows H"]) -> Float[Tensor, "*rows E"]:
        """Compute the vectors whose products with the word embeddings are the logits, except the bias."""
        return self.norm(F.gelu(self.dense(hidden)))


class ReplacedTokenHead(nn.Module):
    """One logit per token, positive for "replaced" (section 2 of the paper), with the hidden layer of the original code."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.score = nn.Linear(hidden_size, 1)

    def forward(self, hidden: Float[Tensor, "B L H"]) -> Float[Tensor, "B L"]:
        return self.score(F.gelu(self.dense(hidden))).squeeze(-1)
