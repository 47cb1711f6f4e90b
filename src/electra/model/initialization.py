"""Initial weights of networks."""

import math
from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from electra.errors import UsageError
from electra.model.encoder import Encoder
from electra.model.layers import Embeddings, SelfAttention


def truncated_normal_(weight: Tensor, std: float) -> None:
    """Fill with BERT's initial values: normal, truncated at two standard deviations."""
    torch.nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)


def build_initializers(std: float, embedding_std: float) -> dict[str, Callable[[Tensor], object]]:
    """Build the table of initializers: end of a parameter's name -> function; the first match applies.

    Glorot is used where the original code has no initializer, so that TensorFlow's default applied.
    """
    return {
        "bias": nn.init.zeros_,
        "project.weight": nn.init.xavier_uniform_,
        "score.weight": nn.init.xavier_uniform_,
        **dict.fromkeys(
            ("word.weight", "position.weight", "token_type.weight"), partial(truncated_normal_, std=embedding_std)
        ),
        "weight": partial(truncated_normal_, std=std),
    }


def initialize(module: nn.Module, std: float = 0.02, embedding_std: float | None = None) -> None:
    """Initialize the parameters of a network with torch's default generator.

    The standard deviation of embeddings is `std` by default. Parameters with a name that is not in the table of initializers
    keep their values.
    """
    table = build_initializers(std, std if embedding_std is None else embedding_std)
    norms = {
        f"{name}.weight".lstrip(".")
        for name, each in module.named_modules()
        if isinstance(each, (nn.LayerNorm, nn.RMSNorm))
    }
    for name, parameter in module.named_parameters():
        fill = (
            nn.init.ones_ if name in norms else next((fill for end, fill in table.items() if name.endswith(end)), None)
        )
        if fill is not None:
            fill(parameter.data)


NEIGHBOR_LOGIT = 6.0
"""Attention logit of the token at a head's distance if inputs were positions alone. Words and token types are as large, so the
weight of that token is about a half among 32 tokens."""


def attend_to_neighbors(encoder: Encoder) -> None:
    """Let every head of every layer attend to the token at a distance of -1, 1, -2, 2, ...

    Positions become sinusoids. Each head reads frequencies of its own, evenly spread with some jitter, so that the dot product
    of two positions is large only if they are equal. Its queries are rotated by its distance, as in rotary embeddings (Su et
    al., 2021); keys are not. Where embeddings are projected, weights apply through the inverse of the projection.

    Raises:
        UsageError: the architecture has other layers or embeddings than BERT's, or the embeddings are too small for the number
            of heads.
    """
    config, embeddings = encoder.config, encoder.embeddings
    attentions = [module for module in encoder.modules() if isinstance(module, SelfAttention)]
    heads, head_size = config.num_heads, config.hidden_size // config.num_heads
    pairs = min(config.embedding_size // heads, head_size) // 2
    if not attentions or not pairs or not isinstance(embeddings, Embeddings):
        reason = (
            f"model.embedding_size {config.embedding_size} has less than two values for each of {heads} heads"
            if attentions and not pairs
            else f"model.architecture {config.architecture} has no self-attention or no position embeddings"
        )
        raise UsageError(
            "conflicting-options",
            f"model.attention_initializer neighbors is impossible, because {reason}; use --model.attention-initializer random",
        )
    frequencies = math.pi * (torch.arange(pairs) + torch.rand(heads, pairs)) / pairs
    phases = 2 * math.pi * torch.rand(heads * pairs)
    position = embeddings.position.weight.data
    angles = torch.arange(len(position))[:, None] * frequencies.flatten() + phases
    waves = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
    std = config.embedding_initializer_range or config.initializer_range
    position[:, : waves.shape[1]] = math.sqrt(2) * std * waves  # a wave has a deviation of 1 / sqrt(2)
    scale = (NEIGHBOR_LOGIT * math.sqrt(head_size) / pairs) ** 0.5
    queries, keys = torch.zeros(2, heads, head_size, config.embedding_size)
    for head, distance in enumerate(list_distances(heads)):
        block = slice(2 * pairs * head, 2 * pairs * (head + 1))
        queries[head, : 2 * pairs, block] = scale * build_rotation(distance * frequencies[head])
        keys[head, : 2 * pairs, block] = scale * torch.eye(2 * pairs)
    weights = torch.cat([queries.flatten(0, 1), keys.flatten(0, 1)])
    if isinstance(encoder.project, nn.Linear):
        weights = weights @ torch.linalg.pinv(encoder.project.weight.data)
    for attention in attentions:
        attention.qkv.weight.data[: len(weights)] = weights


def list_distances(heads: int) -> list[int]:
    """List a distance for each head: -1, 1, -2, 2, ..."""
    return [sign * distance for distance in range(1, heads + 1) for sign in (-1, 1)][:heads]


def build_rotation(angles: Float[Tensor, " P"]) -> Float[Tensor, "R R"]:
    """Build the matrix that turns pairs (sin x, cos x) into (sin(x + angle), cos(x + angle)); R is 2 P."""
    sine, cosine = angles.sin(), angles.cos()
    blocks = torch.stack([torch.stack([cosine, sine], -1), torch.stack([-sine, cosine], -1)], -2)
    return torch.block_diag(*blocks)


ATTENTION_INITIALIZERS: dict[str, Callable[[Encoder], None]] = {
    "random": lambda encoder: None,
    "neighbors": attend_to_neighbors,
}
"""By `EncoderConfig.attention_initializer`: what is done after `initialize`."""


def initialize_attention(module: nn.Module) -> None:
    """Apply the attention initializer of every encoder in `module`."""
    for encoder in module.modules():
        if isinstance(encoder, Encoder):
            ATTENTION_INITIALIZERS[encoder.config.attention_initializer](encoder)
