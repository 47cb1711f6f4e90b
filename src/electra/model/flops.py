"""FLOPs of pre-training, counted as in Appendix E of the paper.

Assumptions: operations are mathematical operations (an exp counts as one, like an add; a multiply-accumulate counts as two),
the backward pass costs as much as the forward pass, and an embedding look-up costs a dense product with one-hot vectors.
Operations per element outside matrix products: LayerNorm 5, GELU 8, softmax 5, dropout 4.

`torch.utils.flop_counter` counts exactly the same matrix products, but no look-ups, biases or operations per element. It
counts the backward pass as two forward passes, and the generator's last layer only at the positions where it is computed;
here that layer is counted at all positions.

Hardware utilization is not the paper's measure of compute: look-ups are free and the backward pass costs two forward passes.
It has a separate count, `Cost.utilized`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from electra.model.architecture import ARCHITECTURES
from electra.model.encoder import EncoderConfig
from electra.model.layer_flops import GELU, LAYER_NORM, SOFTMAX


def masked_lm_head_flops(config: EncoderConfig) -> int:
    """Forward FLOPs of one predicted token in the masked-LM head and the softmax."""
    e, v = config.embedding_size, config.vocab_size
    return 2 * config.hidden_size * e + e + e * (GELU + LAYER_NORM) + 2 * e * v + (SOFTMAX + 2) * v


def replaced_token_head_flops(config: EncoderConfig) -> int:
    """Forward FLOPs of one token in the replaced-token head."""
    h = config.hidden_size
    return 2 * h * h + h + GELU * h + 2 * h


def encoder_parts(config: EncoderConfig, length: int) -> dict[str, int]:
    """Forward FLOPs of an encoder for one sequence of `length` tokens, by part."""
    architecture = ARCHITECTURES[config.architecture]
    per_layer = architecture.layer_flops(config, length)
    per_token = architecture.other_flops(config, length)
    per_token |= {part: config.num_layers * flops for part, flops in per_layer.items()}
    return {part: length * flops for part, flops in per_token.items()}


def masked_lm_parts(config: EncoderConfig, length: int, predictions: int) -> dict[str, int]:
    """Forward FLOPs of a masked language model for one sequence with `predictions` predicted tokens, by part."""
    return encoder_parts(config, length) | {"masked-LM head": predictions * masked_lm_head_flops(config)}


def discriminator_parts(config: EncoderConfig, length: int) -> dict[str, int]:
    """Forward FLOPs of a discriminator for one sequence, with logits at every token, by part."""
    return encoder_parts(config, length) | {"replaced-token head": length * replaced_token_head_flops(config)}


def encoder_flops(config: EncoderConfig, length: int) -> int:
    """Forward FLOPs of an encoder for one sequence of `length` tokens."""
    return sum(encoder_parts(config, length).values())


def inference_flops(config: EncoderConfig, length: int) -> int:
    """Forward FLOPs of an encoder and a small head for one sequence, as in the original script; Table 1 has two digits.

    The head is the discriminator's, at every token. A fine-tuning head on [CLS] only would reduce the total by under 1 %.
    """
    return sum(discriminator_parts(config, length).values())


def sum_parts(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    """Add FLOPs by part."""
    return {part: a.get(part, 0) + b.get(part, 0) for part in (*a, *b)}


class Cost(NamedTuple):
    """FLOPs of a network for one row."""

    forward: dict[str, int]
    """Forward FLOPs by part; empty if there is no network."""
    has_backward: bool = True
    """Whether there is a backward pass."""

    @property
    def flops(self) -> int:
        """FLOPs of the forward pass, and of the backward pass if there is one."""
        return (2 if self.has_backward else 1) * sum(self.forward.values())

    @property
    def look_ups(self) -> int:
        """Part of `flops` for embedding look-ups: one-hot products by Appendix E, but free on real hardware."""
        return (2 if self.has_backward else 1) * self.forward.get("embedding look-up", 0)

    @property
    def utilized(self) -> int:
        """FLOPs on real hardware: look-ups are free, and a backward pass costs two forward passes."""
        computed = sum(self.forward.values()) - self.forward.get("embedding look-up", 0)
        return (3 if self.has_backward else 1) * computed


def average_costs(weighted: Sequence[tuple[dict[str, Cost], float]]) -> dict[str, Cost]:
    """Average costs by network, which have the same parts, with weights that sum to 1; rounded to whole FLOPs."""

    def average(network: str, part: str) -> int:
        return round(sum(weight * costs[network].forward[part] for costs, weight in weighted))

    first, _ = weighted[0]
    return {
        network: cost._replace(forward={part: average(network, part) for part in cost.forward})
        for network, cost in first.items()
    }


def masked_lm_step_flops(config: EncoderConfig, length: int, predictions: int) -> int:
    """Forward and backward FLOPs of a masked language model for one sequence with `predictions` predicted tokens."""
    return Cost(masked_lm_parts(config, length, predictions)).flops


def discriminator_step_flops(config: EncoderConfig, length: int) -> int:
    """Forward and backward FLOPs of a discriminator for one sequence, with logits at every token."""
    return Cost(discriminator_parts(config, length)).flops
