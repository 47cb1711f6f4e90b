"""What stands on an encoder in pre-training: the masked-LM head and the head that tells replaced tokens."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class MaskedLMHead(nn.Module):
    """Hidden -> embedding size, GELU, LayerNorm, then the word embeddings themselves as output layer, plus a bias."""

    def __init__(self, hidden_size: int, embedding_size: int, vocab_size: int, norm_eps: float) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, embedding_size)
        self.norm = nn.LayerNorm(embedding_size, eps=norm_eps)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(
        self, hidden: Float[Tensor, "*rows H"], word_embeddings: Float[Tensor, "V E"]
    ) -> Float[Tensor, "*rows V"]:
        """Logits over the vocabulary for each hidden vector; evaluate it only where a token is to be predicted."""
        return F.linear(self.transform(hidden), word_embeddings, self.bias)

    def transform(self, hidden: Float[Tensor, "*rows H"]) -> Float[Tensor, "*rows E"]:
        """The vector whose products with the word embeddings are the logits."""
        return self.norm(F.gelu(self.dense(hidden)))


class ReplacedTokenHead(nn.Module):
    """One logit a token: positive says "replaced" (section 2 of the paper; with the hidden layer of the original)."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.score = nn.Linear(hidden_size, 1)

    def forward(self, hidden: Float[Tensor, "B L H"]) -> Float[Tensor, "B L"]:
        return self.score(F.gelu(self.dense(hidden))).squeeze(-1)
