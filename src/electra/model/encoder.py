"""The encoder: embeddings, a projection if embedding and hidden sizes differ, and a stack of layers."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from electra.config.checks import check_choice, check_range
from electra.config.options import choice_field, lookup
from electra.errors import UsageError
from electra.model.architecture import ARCHITECTURES
from electra.model.layers import TokenEmbeddings
from electra.model.packing import Packed, Padded

ATTENTION_INITIALIZERS = lookup("electra.model.initialization.ATTENTION_INITIALIZERS")


@dataclass(frozen=True)
class EncoderConfig:
    """Sizes of an encoder (paper, Table 6)."""

    vocab_size: int = 30_522
    """Tokens of the vocabulary; the size for a new tokenizer, replaced by the size of a given one."""
    embedding_size: int = 128
    """Width of the embeddings; if it differs from hidden_size, a linear layer projects them."""
    hidden_size: int = 256
    """Width of the layers."""
    num_layers: int = 12
    """Number of layers."""
    num_heads: int = 4
    """Attention heads per layer; hidden_size must be a multiple of it."""
    ffn_size: int = 1024
    """Inner width of the feed-forward network."""
    max_positions: int = 512
    """Number of position embeddings, the maximum sequence length."""
    type_vocab_size: int = 2
    """Token types: first and second segment."""
    dropout: float = 0.1
    """Dropout on the embeddings and on the outputs of attention and feed-forward."""
    attention_dropout: float = 0.1
    """Dropout on the attention probabilities."""
    layer_norm_eps: float = 1e-12
    """Epsilon of every LayerNorm."""
    initializer_range: float = 0.02
    """Standard deviation of the initial kernels and embeddings. BERT's value suits widths from 256; a narrow model needs about
    1 / sqrt(hidden_size)."""
    embedding_initializer_range: float | None = None
    """Standard deviation of the initial embeddings; by default initializer_range. In a short training, small initial
    embeddings are changed more by learning relative to their size (docs/research/log)."""
    architecture: str = choice_field("electra", lambda: ARCHITECTURES)
    """Kind of the encoder's parts."""
    attention_initializer: str = choice_field("random", ATTENTION_INITIALIZERS)
    """Initial attention. random; or neighbors: positions start as sinusoids, and each head attends to the token at a fixed
    distance, -1, 1, -2, 2 and so on, which training then changes. A small network takes much of a short run to find this."""

    def __post_init__(self) -> None:
        check_choice("model.architecture", self.architecture, ARCHITECTURES)
        check_choice("model.attention_initializer", self.attention_initializer, ATTENTION_INITIALIZERS())
        check_range(self, "model", "vocab_size", "max_positions", at_least=1, at_most=10**7)
        check_range(self, "model", "embedding_size", "hidden_size", "num_heads", at_least=1, at_most=10**9)
        check_range(self, "model", "ffn_size", at_least=1, at_most=10**10)
        check_range(self, "model", "num_layers", at_least=1, at_most=10**4)
        check_range(self, "model", "type_vocab_size", at_least=2, at_most=10**4)
        check_range(self, "model", "dropout", "attention_dropout", at_least=0, below=1)
        check_range(self, "model", "initializer_range", "embedding_initializer_range", above=0, at_most=1000)
        check_range(self, "model", "layer_norm_eps", at_least=0, at_most=1)
        if self.hidden_size % self.num_heads:
            raise UsageError(
                "indivisible",
                f"model.hidden_size is {self.hidden_size}; it must be a multiple of model.num_heads, {self.num_heads}",
            )
        ARCHITECTURES[self.architecture].check_config(self)


class Encoder(nn.Module):
    """Embeddings, their projection to the hidden size, the layers of an architecture and its final module; no pooler.

    `embeddings` is given if two networks share them, `trunk` if it is the embeddings, the projection and the first layers of
    another encoder. The vector of [CLS] is the first one.
    """

    min_padding = 0.05
    """Minimum share of padding for which a batch is packed on a CPU; with less, the copies cost more than packing saves."""

    embeddings: TokenEmbeddings
    project: nn.Module
    layers: nn.ModuleList

    def __init__(
        self, config: EncoderConfig, embeddings: TokenEmbeddings | None = None, trunk: "Encoder | None" = None
    ) -> None:
        super().__init__()
        self.config = config
        architecture = ARCHITECTURES[config.architecture]
        self.dropout = nn.Dropout(config.dropout)
        if trunk is not None:
            self.embeddings, self.project = trunk.embeddings, trunk.project
            self.layers = trunk.layers[: config.num_layers]
        else:
            self.embeddings = embeddings or architecture.build_embeddings(config)
            same = config.embedding_size == config.hidden_size
            self.project = nn.Identity() if same else nn.Linear(config.embedding_size, config.hidden_size)
            self.layers = nn.ModuleList(architecture.build_layer(config) for _ in range(config.num_layers))
        self.final = architecture.build_final(config)

    def forward(
        self,
        input_ids: Int64[Tensor, "B L"],
        token_type_ids: Int64[Tensor, "B L"],
        attention_mask: Bool[Tensor, "B L"] | None = None,
        positions: Int64[Tensor, "B K"] | None = None,
    ) -> Float[Tensor, "B Q H"]:
        """Compute the hidden states of every token, or only of those at `positions`.

        `attention_mask` is true at tokens and false at padding; None, without padding, costs nothing. Outputs at padding are
        undefined.
        """
        x = self.embed(input_ids, token_type_ids)
        layout = choose_layout(attention_mask, self.min_padding)
        x = layout.pack(x)
        for layer in self.layers[:-1]:
            x = layer(x, layout)
        last = self.final(self.layers[-1](x, layout, positions))
        return layout.unpack(last) if positions is None else last

    def embed(self, input_ids: Int64[Tensor, "B L"], token_type_ids: Int64[Tensor, "B L"]) -> Float[Tensor, "B L H"]:
        """Compute the input of the first layer."""
        return self.project(self.dropout(self.embeddings(input_ids, token_type_ids)))

    def hidden_states(
        self,
        input_ids: Int64[Tensor, "B L"],
        token_type_ids: Int64[Tensor, "B L"],
        attention_mask: Bool[Tensor, "B L"] | None = None,
    ) -> Iterator[Float[Tensor, "B L H"]]:
        """Yield the hidden states after the embeddings and after each layer; the last ones are the encoder's output."""
        yield (x := self.embed(input_ids, token_type_ids))
        layout = choose_layout(attention_mask, self.min_padding)
        x = layout.pack(x)
        for layer in self.layers[:-1]:
            x = layer(x, layout)
            yield layout.unpack(x)
        yield layout.unpack(self.final(self.layers[-1](x, layout)))


PACKED_MULTIPLE = 64
"""In bfloat16, packed tokens are padded to this multiple: oneDNN generates code for every new size (4 ms per product)."""


def choose_layout(attention_mask: Bool[Tensor, "B L"] | None, min_padding: float) -> Padded | Packed:
    """Choose the packed layout on a CPU if the batch has enough padding, otherwise the padded one.

    A GPU uses the padded layout: packed attention would need separate kernels, and CUDA graphs need constant shapes.
    """
    if attention_mask is None or attention_mask.device.type != "cpu" or torch.compiler.is_compiling():
        return Padded(attention_mask)
    if 1 - attention_mask.sum().item() / attention_mask.numel() < min_padding:
        return Padded(attention_mask)
    bfloat16 = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    return Packed(attention_mask, PACKED_MULTIPLE if bfloat16 else 1)
