"""The bricks of the encoder: embeddings, self-attention, feed-forward, and the post-LayerNorm layer made of them.

Letters of shapes, here and wherever tensors are annotated: B rows of a batch, L tokens of a row, Q tokens that ask
(L, or K chosen ones), E embedding size, H hidden size, F feed-forward size, N heads, D head size, V vocabulary.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from electra.model.cpu.attention import attend
from electra.model.cpu.dropout import Dropout
from electra.model.cpu.fused_layers import FusedLayer, LayerSettings, kernels_precision
from electra.model.cpu.library import why_no_kernels
from electra.model.packing import Line, Rows, heads, joined_heads


class Embeddings(nn.Module):
    """Word + position + token type, normalized. ELECTRA shares this whole block between its two networks."""

    def __init__(
        self, vocab_size: int, embedding_size: int, max_positions: int, type_vocab_size: int, norm_eps: float
    ) -> None:
        super().__init__()
        self.word = nn.Embedding(vocab_size, embedding_size)
        self.position = nn.Embedding(max_positions, embedding_size)
        self.token_type = nn.Embedding(type_vocab_size, embedding_size)
        self.norm = nn.LayerNorm(embedding_size, eps=norm_eps)

    def forward(self, input_ids: Int64[Tensor, "B L"], token_type_ids: Int64[Tensor, "B L"]) -> Float[Tensor, "B L E"]:
        positions = self.position.weight[: input_ids.shape[1]]
        return self.norm(self.word(input_ids) + positions + self.token_type(token_type_ids))


class SelfAttention(nn.Module):
    """Multi-head attention with one fused projection for queries, keys and values."""

    def __init__(self, hidden_size: int, num_heads: int, dropout: float) -> None:
        super().__init__()
        self.head_size = hidden_size // num_heads
        self.dropout = dropout
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.output = nn.Linear(hidden_size, hidden_size)

    def forward(
        self,
        x: Float[Tensor, "*tokens H"],
        layout: Rows | Line,
        queries: Float[Tensor, "B Q H"] | None = None,
    ) -> Float[Tensor, "*queries H"]:
        """Each of `queries` (default: every vector of `x`, laid as `layout` says) attends to the real tokens of its row."""
        dropout = self.dropout if self.training else 0.0
        if queries is None:
            parts = layout.split(self.qkv(x), 3, self.head_size)
            return self.output(layout.joined(attend(parts, None, layout.mask, dropout)))
        sizes = [x.shape[-1], 2 * x.shape[-1]]
        (w_q, w_kv), (b_q, b_kv) = self.qkv.weight.split(sizes), self.qkv.bias.split(sizes)
        q = heads(F.linear(queries, w_q, b_q), self.head_size)
        parts = layout.split(F.linear(x, w_kv, b_kv), 2, self.head_size)
        return self.output(joined_heads(attend(parts, q, layout.mask, dropout)))


class FeedForward(nn.Module):
    """Two linear maps around the exact (erf) GELU."""

    def __init__(self, hidden_size: int, ffn_size: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden_size, ffn_size)
        self.down = nn.Linear(ffn_size, hidden_size)

    def forward(self, x: Float[Tensor, "*tokens H"]) -> Float[Tensor, "*tokens H"]:
        return self.down(F.gelu(self.up(x)))


class TransformerLayer(nn.Module):
    """BERT's layer: LayerNorm after each residual sum."""

    fused = False
    """Whether kernels of our own compute it, where all tokens are wanted (`electra.model.encoder.enable_cpu_kernels`)."""

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
        self.dropout = Dropout(dropout)

    def forward(
        self,
        x: Float[Tensor, "*tokens H"],
        layout: Rows | Line,
        positions: Int64[Tensor, "B K"] | None = None,
    ) -> Float[Tensor, "*queries H"]:
        """The layer's output at every token, or at `positions` only (all other work of the layer is then skipped)."""
        if positions is None and self.has_kernels(x, layout):
            return self.by_kernels(x, layout)
        queries = None if positions is None else layout.at(x, positions)
        attended = self.attention(x, layout, queries)
        y = self.attention_norm(self.dropout(attended, x if queries is None else queries))
        return self.ffn_norm(self.dropout(self.ffn(y), y))

    def has_kernels(self, x: Float[Tensor, "*tokens H"], layout: Rows | Line) -> bool:
        """Whether kernels are to compute this layer, and can."""
        return (
            self.fused
            and x.device.type == "cpu"
            and self.ffn.up.weight.dtype == torch.float32
            and kernels_precision() is not None
            and (isinstance(layout, Line) or layout.mask is None)
            and not torch.compiler.is_compiling()
            and why_no_kernels() is None  # it may have come from another process
        )

    def by_kernels(self, x: Float[Tensor, "*tokens H"], layout: Rows | Line) -> Float[Tensor, "*tokens H"]:
        """The same by `FusedLayer`."""
        settings = LayerSettings(
            x.shape[-1] // self.attention.head_size,
            self.attention_norm.eps,
            self.dropout.p if self.training else 0.0,
            self.attention.dropout if self.training else 0.0,
        )
        return FusedLayer.apply(x.flatten(0, -2), layout.starts(x), settings, *self.parameters()).view(x.shape)


def truncated_normal_(weight: Tensor, std: float) -> None:
    """BERT's initial values: normal, cut at two deviations."""
    torch.nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)
