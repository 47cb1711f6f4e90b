"""Initial weights of networks."""

import math
from collections.abc import Callable, Sequence
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


TRUNCATED_STD = 0.8796
"""Deviation of a standard normal distribution that is truncated at two deviations."""


def attend_to_neighbors(encoders: Sequence[Encoder]) -> None:
    """Let every head of every layer attend to the token at a distance of -1, 1, -2, 2, ...

    Positions become sinusoids with the deviation of the words before their truncation. Each head reads frequencies of its own,
    evenly spread with some jitter, so that the dot product of two positions is large only if they are equal. Its queries are
    rotated by its distance, as in rotary embeddings (Su et al., 2021); keys are not. The encoders share their embeddings. The
    first one determines the frequencies; a head of another one reads a part of those of the same head.

    Raises:
        UsageError: the architecture has other layers or embeddings than BERT's, or the embeddings are too small for the number
            of heads.
    """
    config, embeddings = encoders[0].config, encoders[0].embeddings
    head_sizes = [each.config.hidden_size // each.config.num_heads for each in encoders]
    pairs = 0 if min(head_sizes) < 2 else min(config.embedding_size // config.num_heads, head_sizes[0]) // 2
    attentions = [module for module in encoders[0].modules() if isinstance(module, SelfAttention)]
    if not attentions or not pairs or not isinstance(embeddings, Embeddings):
        reason = (
            f"each of {config.num_heads} heads needs two values, also of model.embedding_size {config.embedding_size}"
            if attentions and not pairs
            else f"model.architecture {config.architecture} has no self-attention or no position embeddings"
        )
        raise UsageError(
            "conflicting-options",
            f"model.attention_initializer neighbors is impossible, because {reason}; use --model.attention-initializer random",
        )
    frequencies = math.pi * (torch.arange(pairs) + torch.rand(config.num_heads, pairs)) / pairs
    phases = 2 * math.pi * torch.rand(config.num_heads * pairs)
    position = embeddings.position.weight.data
    angles = torch.arange(len(position))[:, None] * frequencies.flatten() + phases
    waves = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
    std = embeddings.word.weight.data.std() / TRUNCATED_STD
    position[:, : waves.shape[1]] = math.sqrt(2) * std * waves  # a wave has a deviation of 1 / sqrt(2)
    for encoder in encoders:
        rotate_queries(encoder, frequencies)


def rotate_queries(encoder: Encoder, frequencies: Float[Tensor, "N P"]) -> None:
    """Set queries and keys of all layers for positions whose pair p of block n has the frequency `frequencies[n, p]`.

    A block is 2 P values of an embedding. A projection to at least as many values as the embedding has is inverted. One to
    fewer values is set to copy the pairs that are read, which are at most half of its outputs.
    """
    config = encoder.config
    blocks, pairs = frequencies.shape
    head_size = config.hidden_size // config.num_heads
    narrow = config.hidden_size < config.embedding_size
    number = max(1, min(pairs, head_size // (4 if narrow else 2)))
    read = torch.arange(number) * pairs // number  # evenly spread
    scale = (NEIGHBOR_LOGIT * math.sqrt(head_size) / number) ** 0.5
    queries, keys = torch.zeros(2, config.num_heads, head_size, config.embedding_size)
    copies = torch.zeros(config.num_heads, 2 * number, config.embedding_size)
    for head, distance in enumerate(list_distances(config.num_heads)):
        block = head % blocks
        values = (2 * (block * pairs + read)[:, None] + torch.arange(2)).flatten()
        copies[head, torch.arange(2 * number), values] = 1.0
        queries[head, : 2 * number] = scale * build_rotation(distance * frequencies[block, read]) @ copies[head]
        keys[head, : 2 * number] = scale * copies[head]
    weights = torch.cat([queries.flatten(0, 1), keys.flatten(0, 1)])
    if isinstance(encoder.project, nn.Linear):
        projection = encoder.project.weight.data
        if narrow:
            projection[: copies.shape[0] * copies.shape[1]] = copies.flatten(0, 1)
        weights = weights @ torch.linalg.pinv(projection)
    for attention in encoder.modules():
        if isinstance(attention, SelfAttention):
            attention.qkv.weight.data[: len(weights)] = weights


def list_distances(heads: int) -> list[int]:
    """List a distance for each head: -1, 1, -2, 2, ..."""
    return [sign * distance for distance in range(1, heads + 1) for sign in (-1, 1)][:heads]


def build_rotation(angles: Float[Tensor, " P"]) -> Float[Tensor, "R R"]:
    """Build the matrix that turns pairs (sin x, cos x) into (sin(x + angle), cos(x + angle)); R is 2 P."""
    sine, cosine = angles.sin(), angles.cos()
    blocks = torch.stack([torch.stack([cosine, sine], -1), torch.stack([-sine, cosine], -1)], -2)
    return torch.block_diag(*blocks)


ATTENTION_INITIALIZERS: dict[str, Callable[[Sequence[Encoder]], None]] = {
    "random": lambda encoders: None,
    "neighbors": attend_to_neighbors,
}
"""By `EncoderConfig.attention_initializer`: what is done after `initialize` with encoders that share their embeddings."""


def initialize_attention(module: nn.Module) -> None:
    """Apply the attention initializer of the encoders in `module`, the first encoder with certain embeddings first."""
    sharing: dict[nn.Module, list[Encoder]] = {}
    for encoder in module.modules():
        if isinstance(encoder, Encoder):
            sharing.setdefault(encoder.embeddings, []).append(encoder)
    for encoders in sharing.values():
        ATTENTION_INITIALIZERS[encoders[0].config.attention_initializer](encoders)
