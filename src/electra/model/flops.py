"""Floating point operations of pre-training, counted as in Appendix E of the paper.

Its assumptions: an operation is a mathematical one (an exp counts like an add; a multiply-accumulate counts two),
the backward pass costs as much as the forward, and an embedding look-up costs a dense product with one-hot vectors.
Operations per element that are not matrix products: LayerNorm 5, GELU 8, softmax 5, dropout 4.

Utilisation of a machine is another matter than the paper's compute axis: there look-ups are free and the backward pass
costs two forwards, so it has a count of its own, `utilised`.
"""

from electra.model.encoder import EncoderConfig

LAYER_NORM, GELU, SOFTMAX, DROPOUT = 5, 8, 5, 4


def layer_flops(config: EncoderConfig, length: int) -> int:
    """One token through one layer, forward, in a sequence of `length`."""
    h, f, n = config.hidden_size, config.ffn_size, config.num_heads
    qkv = 3 * (2 * h * h + h)
    attention = 2 * h * length + n * length * (1 + SOFTMAX + DROPOUT) + 2 * h * length  # scores, scale, weights, mix
    output = 2 * h * h + h + h * (DROPOUT + 1 + LAYER_NORM)  # kernel, bias; dropout, residual sum, LayerNorm
    ffn = 2 * h * f + f + GELU * f + 2 * f * h + h + h * (DROPOUT + 1 + LAYER_NORM)
    return qkv + attention + output + ffn


def look_up_flops(config: EncoderConfig, length: int) -> int:
    """One token's embeddings looked up by products with one-hot vectors, forward."""
    return 2 * config.embedding_size * (config.vocab_size + length + config.type_vocab_size)


def embedding_flops(config: EncoderConfig, length: int) -> int:
    """One token through the embeddings and the projection to the hidden size, forward."""
    e, h = config.embedding_size, config.hidden_size
    project = 2 * e * h + h if e != h else 0
    return look_up_flops(config, length) + 2 * e + e * (LAYER_NORM + DROPOUT) + project


def masked_lm_head_flops(config: EncoderConfig) -> int:
    """One predicted token through the masked-LM head and the softmax, forward."""
    e, v = config.embedding_size, config.vocab_size
    return 2 * config.hidden_size * e + e + e * (GELU + LAYER_NORM) + 2 * e * v + (SOFTMAX + 2) * v


def replaced_token_head_flops(config: EncoderConfig) -> int:
    """One token through the head that tells replaced tokens, forward."""
    h = config.hidden_size
    return 2 * h * h + h + GELU * h + 2 * h


def encoder_flops(config: EncoderConfig, length: int) -> int:
    """One sequence of `length` tokens through an encoder, forward: the paper's inference FLOPs."""
    return length * (embedding_flops(config, length) + config.num_layers * layer_flops(config, length))


def masked_lm_step_flops(config: EncoderConfig, length: int, predictions: int) -> int:
    """Forward and backward of one sequence through a masked language model that predicts `predictions` tokens."""
    return 2 * (encoder_flops(config, length) + predictions * masked_lm_head_flops(config))


def discriminator_step_flops(config: EncoderConfig, length: int) -> int:
    """Forward and backward of one sequence through a discriminator scored at every token."""
    return 2 * (encoder_flops(config, length) + length * replaced_token_head_flops(config))


def utilised(step_flops: int, looked_up: int) -> float:
    """What a machine really has to do for a step that costs `step_flops`, `looked_up` of it in look-ups."""
    return (step_flops - looked_up) / 2 * 3
