"""Forward FLOPs of one token in parts of an encoder, counted as in Appendix E (see `electra.model.flops`)."""

LAYER_NORM, GELU, SOFTMAX, DROPOUT = 5, 8, 5, 4
"""Operations per element outside matrix products."""


def embedding_flops(embedding_size: int, hidden_size: int, looked_up: int) -> dict[str, int]:
    """FLOPs of embeddings and their projection, by part; a look-up is a product with `looked_up` vectors."""
    e, h = embedding_size, hidden_size
    return {
        "embedding look-up": 2 * e * looked_up,
        "embedding sum, LayerNorm": 2 * e + e * (LAYER_NORM + DROPOUT),
        "projection": 2 * e * h + h if e != h else 0,
    }


def attention_flops(hidden_size: int, num_heads: int, length: int) -> int:
    """FLOPs of the attention, in a sequence of `length`."""
    h, n = hidden_size, num_heads
    qkv = 3 * (2 * h * h + h)
    attention = 2 * h * length + n * length * (1 + SOFTMAX + DROPOUT) + 2 * h * length  # scores, scale, weights, mix
    output = 2 * h * h + h + h * (DROPOUT + 1 + LAYER_NORM)  # kernel, bias; dropout, residual sum, LayerNorm
    return qkv + attention + output


def feed_forward_flops(hidden_size: int, ffn_size: int) -> int:
    """FLOPs of the feed-forward network."""
    h, f = hidden_size, ffn_size
    return 2 * h * f + f + GELU * f + 2 * f * h + h + h * (DROPOUT + 1 + LAYER_NORM)
