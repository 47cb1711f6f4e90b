"""Forward FLOPs of one token in a layer, counted as in Appendix E of the paper (see `electra.model.flops`)."""

LAYER_NORM, GELU, SOFTMAX, DROPOUT = 5, 8, 5, 4
"""Operations per element outside matrix products."""


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
