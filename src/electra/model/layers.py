"""The modules of the encoder: embeddings, self-attention, feed-forward, and BERT's post-LayerNorm layer.

Dimensions, here and in all annotations of tensors: B sequences of a batch, L tokens of a sequence, Q queries (L, or K
masked positions), E embedding size, H hidden size, F feed-forward size, N heads, D head size, V vocabulary.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from electra.model.packing import Packed, Padded, merge_heads


class TokenEmbeddings(nn.Module):
    """Base class of embeddings: masked-LM heads and masking strategies use those of the tokens."""

    word: nn.Embedding


class Embeddings(TokenEmbeddings):
    """LayerNorm of the sum of token, position and token type embeddings. ELECTRA's two networks share this module."""

    def __init__(
        self, vocab_size: int, embedding_size: int, max_positions: int, type_vocab_size: int, norm_eps: float
    ) -> None:
        super().__init__()
        self.word = nn.Embedding(vocab_size, embedding_size)
        self.position = nn.Embedding(max_positions, embedding_size)
        self.token_type = nn.Embedding(type_vocab_size, embedding_size)
        self.norm = nn.LayerNorm(embedding_size, eps=norm_eps)

    def forward(self, input_ids: Int64[Tensor, "B L"], token_type_ids: Int64[Tensor, "B L"]) -> Float[Tensor, "B L E"]:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        return self.norm(self.word(input_ids) + self.position(positions) + self.token_type(token_type_ids))


def attend(
    qkv: Float[Tensor, "*tokens QKV"], layout: Padded | Packed, head_size: int, dropout: float
) -> Float[Tensor, "*tokens H"]:
    """Self-attention within each sequence: softmax(q k^T / sqrt(D)) v, with dropout on the probabilities."""
    q, k, v = layout.split_heads(qkv, 3, head_size).unbind()
    return layout.merge_heads(F.scaled_dot_product_attention(q, k, v, build_key_mask(layout), dropout))


def build_key_mask(layout: Padded | Packed) -> Tensor | None:
    """Build the mask of tokens (not padding) with dimensions that broadcast over heads and queries."""
    return None if layout.mask is None else layout.mask[:, None, None, :]


class SelfAttention(nn.Module):
    """Multi-head attention with one linear layer for queries, keys and values."""

    def __init__(self, hidden_size: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.head_size = hidden_size // num_heads
        self.dropout = dropout
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)
        self.attend = attend  # `electra.model.cpu.enable_cpu_kernels` replaces it

    def forward(
        self,
        x: Float[Tensor, "*tokens H"],
        layout: Padded | Packed,
        positions: Int64[Tensor, "B K"] | None = None,
    ) -> Float[Tensor, "*queries H"]:
        """Attend from each token of `x`, which is in `layout`, or only from those at `positions`, to its sequence."""
        dropout = self.dropout if self.training else 0.0
        # Queries of all tokens, also for a few positions: a part of the weight alone would bypass the hooks of the layer.
        qkv = self.qkv(x)
        if positions is None:
            return self.output(self.attend(qkv, layout, self.head_size, dropout))
        q, k, v = layout.split_heads(qkv, 3, self.head_size).unbind()
        q = q.gather(2, positions[:, None, :, None].expand(-1, q.shape[1], -1, q.shape[3]))
        return self.output(merge_heads(F.scaled_dot_product_attention(q, k, v, build_key_mask(layout), dropout)))


class FeedForward(nn.Module):
    """Two linear layers around the exact (erf) GELU."""

    def __init__(self, hidden_size: int, ffn_size: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden_size, ffn_size)
        self.down = nn.Linear(ffn_size, hidden_size)

    def forward(self, x: Float[Tensor, "*tokens H"]) -> Float[Tensor, "*tokens H"]:
        return self.down(F.gelu(self.up(x)))


class TransformerLayer(nn.Module):
    """BERT's layer: LayerNorm after each residual sum."""

    def __init__(
        self,
        hidden_size: int,
        ffn_size: int,
        num_heads: int,
        dropout: float,
        attention_dropout: float,
        norm_eps: float,
    ) -> None:
        super().__init__()
        self.attention = SelfAttention(hidden_size, num_heads, attention_dropout)
        self.attention_norm = nn.LayerNorm(hidden_size, eps=norm_eps)
        self.ffn = FeedForward(hidden_size, ffn_size)
        self.ffn_norm = nn.LayerNorm(hidden_size, eps=norm_eps)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "*tokens H"],
        layout: Padded | Packed,
        positions: Int64[Tensor, "B K"] | None = None,
    ) -> Float[Tensor, "*queries H"]:
        """Compute the layer's output at every token, or only at `positions`, which skips most of the layer's other work."""
        residual = x if positions is None else layout.gather(x, positions)
        y = self.attention_norm(residual + self.dropout(self.attention(x, layout, positions)))
        return self.ffn_norm(y + self.dropout(self.ffn(y)))
