"""The encoder: embeddings, a projection where embedding and hidden sizes differ, and a stack of layers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from electra.config.checks import check_limits
from electra.errors import UsageError
from electra.model.layers import Embeddings, TransformerLayer, truncated_normal_
from electra.model.packing import Packed, Padded


@dataclass(frozen=True)
class EncoderConfig:
    """Sizes of an encoder (paper, Table 6)."""

    vocab_size: int = 30_522
    """Entries of the vocabulary; a given tokenizer decides, this is what a new one is trained to."""
    embedding_size: int = 128
    """Width of the embeddings; where it differs from hidden_size a linear layer projects."""
    hidden_size: int = 256
    """Width of the layers."""
    num_layers: int = 12
    """Number of layers."""
    num_heads: int = 4
    """Attention heads of a layer; they share hidden_size evenly."""
    ffn_size: int = 1024
    """Inner width of the feed-forward."""
    max_positions: int = 512
    """Longest sequence the position embeddings can tell apart."""
    type_vocab_size: int = 2
    """Token types: first and second segment."""
    dropout: float = 0.1
    """Dropout on the embeddings and on what attention and feed-forward add."""
    attention_dropout: float = 0.1
    """Dropout on the attention probabilities."""
    layer_norm_eps: float = 1e-12
    """Epsilon of every LayerNorm."""
    initializer_range: float = 0.02
    """Deviation of the initial kernels and embeddings. BERT's suits widths from 256; a narrow model needs about
    1 / sqrt(hidden_size)."""
    embedding_initializer_range: float | None = None
    """Deviation of the initial embeddings alone; by default initializer_range. What is learnt of a token is added to
    where it starts, so in a short training small ones end with more of it (docs/research/log)."""

    def __post_init__(self) -> None:
        least = dict.fromkeys(("vocab_size", "embedding_size", "hidden_size", "num_layers", "num_heads", "ffn_size"), 1)
        for name, minimum in (least | {"max_positions": 1, "type_vocab_size": 2}).items():
            if getattr(self, name) < minimum:
                raise UsageError(f"model.{name} is {getattr(self, name)}; it must be at least {minimum}")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"model.{name} is {getattr(self, name)}; it must be at least 0 and less than 1")
        for name in ("initializer_range", "embedding_initializer_range"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise UsageError(f"model.{name} is {value}; it must be more than 0")
        if not self.layer_norm_eps >= 0:
            raise UsageError(f"model.layer_norm_eps is {self.layer_norm_eps}; it must not be negative")
        check_limits(self, "model.", vocab_size=10**7, embedding_size=10**9, hidden_size=10**9, num_layers=10**4)
        check_limits(self, "model.", num_heads=10**9, ffn_size=10**10, max_positions=10**7, type_vocab_size=10**4)
        check_limits(self, "model.", layer_norm_eps=1, initializer_range=1000, embedding_initializer_range=1000)
        if self.hidden_size % self.num_heads:
            raise UsageError(
                f"model.hidden_size {self.hidden_size} cannot be shared evenly by model.num_heads {self.num_heads}"
            )


class Encoder(nn.Module):
    """BERT's encoder (Devlin et al., 2019) with ELECTRA's factorized embeddings; no pooler.

    `embeddings` are given where two networks share them. Hidden states come out after the last LayerNorm; the vector
    of [CLS] is simply the first one.
    """

    min_padding = 0.05
    """Share of padding in a batch on a CPU from which it is packed; less costs more in copies than it saves."""

    def __init__(self, config: EncoderConfig, embeddings: Embeddings | None = None) -> None:
        super().__init__()
        self.config = config
        self.embeddings = embeddings or Embeddings(
            config.vocab_size,
            config.embedding_size,
            config.max_positions,
            config.type_vocab_size,
            config.layer_norm_eps,
        )
        self.dropout = nn.Dropout(config.dropout)
        same = config.embedding_size == config.hidden_size
        self.project = nn.Identity() if same else nn.Linear(config.embedding_size, config.hidden_size)
        self.layers = nn.ModuleList(
            TransformerLayer(
                config.hidden_size,
                config.ffn_size,
                config.num_heads,
                config.dropout,
                config.attention_dropout,
                config.layer_norm_eps,
            )
            for _ in range(config.num_layers)
        )

    def forward(
        self,
        input_ids: Int64[Tensor, "B L"],
        token_type_ids: Int64[Tensor, "B L"],
        attention_mask: Bool[Tensor, "B L"] | None = None,
        positions: Int64[Tensor, "B K"] | None = None,
    ) -> Float[Tensor, "B Q H"]:
        """Hidden states of every token, or only of those at `positions`.

        `attention_mask` is true at real tokens; None says that nothing is padded, and costs nothing. What stands at
        padding means nothing.
        """
        x = self.embed(input_ids, token_type_ids)
        layout = choose_layout(attention_mask, self.min_padding)
        x = layout.pack(x)
        for layer in self.layers[:-1]:
            x = layer(x, layout)
        last = self.layers[-1](x, layout, positions)
        return layout.unpack(last) if positions is None else last

    def embed(self, input_ids: Int64[Tensor, "B L"], token_type_ids: Int64[Tensor, "B L"]) -> Float[Tensor, "B L H"]:
        """The input of the first layer."""
        return self.project(self.dropout(self.embeddings(input_ids, token_type_ids)))

    def hidden_states(
        self,
        input_ids: Int64[Tensor, "B L"],
        token_type_ids: Int64[Tensor, "B L"],
        attention_mask: Bool[Tensor, "B L"] | None = None,
    ) -> Iterator[Float[Tensor, "B L H"]]:
        """Hidden states after the embeddings, and after each layer."""
        yield (x := self.embed(input_ids, token_type_ids))
        layout = choose_layout(attention_mask, self.min_padding)
        x = layout.pack(x)
        for layer in self.layers:
            x = layer(x, layout)
            yield layout.unpack(x)


PACKED_MULTIPLE = 64
"""Of tokens, in bfloat16: oneDNN, which multiplies there, generates code for every new number of them (4 ms a product)."""


def choose_layout(attention_mask: Bool[Tensor, "B L"] | None, min_padding: float) -> Padded | Packed:
    """Packed on a CPU if the batch has padding enough, padded otherwise.

    A GPU has padded batches: packed attention needs kernels of its own there, and CUDA graphs need shapes that stay the same.
    """
    if attention_mask is None or attention_mask.device.type != "cpu" or torch.compiler.is_compiling():
        return Padded(attention_mask)
    if 1 - attention_mask.sum().item() / attention_mask.numel() < min_padding:
        return Padded(attention_mask)
    bfloat16 = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    return Packed(attention_mask, PACKED_MULTIPLE if bfloat16 else 1)


def build_initializers(std: float, embedding_std: float) -> dict[str, Callable[[Tensor], object]]:
    """How every parameter starts, by the end of its name; the first match counts.

    Glorot stands where the original code names no initializer, so that TensorFlow's default applied.
    """
    return {
        "norm.weight": nn.init.ones_,
        "bias": nn.init.zeros_,
        "project.weight": nn.init.xavier_uniform_,
        "score.weight": nn.init.xavier_uniform_,
        **dict.fromkeys(
            ("word.weight", "position.weight", "token_type.weight"), partial(truncated_normal_, std=embedding_std)
        ),
        "weight": partial(truncated_normal_, std=std),
    }


def initialize(module: nn.Module, std: float = 0.02, embedding_std: float | None = None) -> None:
    """Give every parameter of a network its initial value, drawn from torch's default generator.

    The deviation of embeddings is that of kernels, unless it is given.
    """
    table = build_initializers(std, std if embedding_std is None else embedding_std)
    for name, parameter in module.named_parameters():
        next(fill for ending, fill in table.items() if name.endswith(ending))(parameter.data)
