"""Floating point operations of pre-training, counted as in Appendix E of the paper.

Its assumptions: an operation is a mathematical one (an exp counts like an add; a multiply-accumulate counts two),
the backward pass costs as much as the forward, and an embedding look-up costs a dense product with one-hot vectors.
Operations per element that are not matrix products: LayerNorm 5, GELU 8, softmax 5, dropout 4.

`torch.utils.flop_counter` counts the same matrix products, to the operation, and nothing else: no look-ups, no biases,
none of the operations per element. It counts the backward as two forwards, and the generator's last layer only at the
positions where it is computed; here that layer is whole.

Utilization of a machine is another matter than the paper's compute axis: there look-ups are free and the backward pass
costs two forwards, so it has a count of its own, `Cost.utilized`.
"""

from typing import NamedTuple

from electra.model.encoder import EncoderConfig

LAYER_NORM, GELU, SOFTMAX, DROPOUT = 5, 8, 5, 4


def attention_flops(config: EncoderConfig, length: int) -> int:
    """One token through the attention of a layer, forward, in a sequence of `length`."""
    h, n = config.hidden_size, config.num_heads
    qkv = 3 * (2 * h * h + h)
    attention = 2 * h * length + n * length * (1 + SOFTMAX + DROPOUT) + 2 * h * length  # scores, scale, weights, mix
    output = 2 * h * h + h + h * (DROPOUT + 1 + LAYER_NORM)  # kernel, bias; dropout, residual sum, LayerNorm
    return qkv + attention + output


def feed_forward_flops(config: EncoderConfig) -> int:
    """One token through the feed-forward of a layer, forward."""
    h, f = config.hidden_size, config.ffn_size
    return 2 * h * f + f + GELU * f + 2 * f * h + h + h * (DROPOUT + 1 + LAYER_NORM)


def look_up_flops(config: EncoderConfig, length: int) -> int:
    """One token's embeddings looked up by products with one-hot vectors, forward."""
    return 2 * config.embedding_size * (config.vocab_size + length + config.type_vocab_size)


def masked_lm_head_flops(config: EncoderConfig) -> int:
    """One predicted token through the masked-LM head and the softmax, forward."""
    e, v = config.embedding_size, config.vocab_size
    return 2 * config.hidden_size * e + e + e * (GELU + LAYER_NORM) + 2 * e * v + (SOFTMAX + 2) * v


def replaced_token_head_flops(config: EncoderConfig) -> int:
    """One token through the head that tells replaced tokens, forward."""
    h = config.hidden_size
    return 2 * h * h + h + GELU * h + 2 * h


def encoder_parts(config: EncoderConfig, length: int) -> dict[str, int]:
    """One sequence of `length` tokens through an encoder, forward, by part."""
    e, h = config.embedding_size, config.hidden_size
    of_a_token = {
        "embedding look-up": look_up_flops(config, length),
        "embedding sum, LayerNorm": 2 * e + e * (LAYER_NORM + DROPOUT),
        "projection": 2 * e * h + h if e != h else 0,
        "attention": config.num_layers * attention_flops(config, length),
        "feed-forward": config.num_layers * feed_forward_flops(config),
    }
    return {part: length * flops for part, flops in of_a_token.items()}


def masked_lm_parts(config: EncoderConfig, length: int, predictions: int) -> dict[str, int]:
    """One sequence through a masked language model that predicts `predictions` tokens, forward, by part."""
    return encoder_parts(config, length) | {"masked-LM head": predictions * masked_lm_head_flops(config)}


def discriminator_parts(config: EncoderConfig, length: int) -> dict[str, int]:
    """One sequence through a discriminator scored at every token, forward, by part."""
    return encoder_parts(config, length) | {"replaced-token head": length * replaced_token_head_flops(config)}


def encoder_flops(config: EncoderConfig, length: int) -> int:
    """One sequence of `length` tokens through an encoder, forward."""
    return sum(encoder_parts(config, length).values())


def inference_flops(config: EncoderConfig, length: int) -> int:
    """One sequence through an encoder and a small head: the original script's, two digits of which Table 1 prints.

    Its head is the discriminator's, at every token. One of fine-tuning on [CLS] alone would be less, by under 1 %.
    """
    return sum(discriminator_parts(config, length).values())


class Cost(NamedTuple):
    """What a network costs for one row."""

    forward: dict[str, int]
    """By part; empty where there is no network."""
    has_backward: bool = True
    """Whether a backward pass follows."""

    @property
    def flops(self) -> int:
        """Forward, and backward if there is one."""
        return (2 if self.has_backward else 1) * sum(self.forward.values())

    @property
    def look_ups(self) -> int:
        """Of `flops`, what looks embeddings up: products with one-hot vectors by Appendix E, and free on a machine."""
        return (2 if self.has_backward else 1) * self.forward.get("embedding look-up", 0)

    @property
    def utilized(self) -> int:
        """What a machine really has to do: look-ups are free, and a backward pass costs two forwards."""
        computed = sum(self.forward.values()) - self.forward.get("embedding look-up", 0)
        return (3 if self.has_backward else 1) * computed


def masked_lm_step_flops(config: EncoderConfig, length: int, predictions: int) -> int:
    """Forward and backward of one sequence through a masked language model that predicts `predictions` tokens."""
    return Cost(masked_lm_parts(config, length, predictions)).flops


def discriminator_step_flops(config: EncoderConfig, length: int) -> int:
    """Forward and backward of one sequence through a discriminator scored at every token."""
    return Cost(discriminator_parts(config, length)).flops
