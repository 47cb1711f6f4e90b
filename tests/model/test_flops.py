"""FLOPs against torch's own counter on real passes; against the paper and its script: studies/test_paper_tables.py."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from electra.model.encoder import EncoderConfig
from electra.model.flops import discriminator_parts, encoder_parts, masked_lm_parts
from electra.presets import small
from electra.pretraining.objectives.networks import Discriminator, MaskedLM


def beside_products(config: EncoderConfig, length: int) -> int:
    """FLOPs of one token in an encoder that torch's counter leaves out: all operations but products of matrices."""
    e, h, f, n = config.embedding_size, config.hidden_size, config.ffn_size, config.num_heads
    look_up = 2 * e * (config.vocab_size + length + config.type_vocab_size)
    sum_norm_dropout = e * (2 + 5 + 4)
    project_bias = h if e != h else 0
    attention = 3 * h + n * length * (1 + 5 + 4) + h + h * (4 + 1 + 5)  # biases; scale, softmax, dropout; the residual
    feed_forward = f + 8 * f + h + h * (4 + 1 + 5)  # bias, GELU, bias; dropout, residual sum, LayerNorm
    return look_up + sum_norm_dropout + project_bias + config.num_layers * (attention + feed_forward)


def counted_by_torch(network: Discriminator | MaskedLM, *inputs: torch.Tensor) -> tuple[int, int]:
    """Count the matrix products of a forward pass, and of a forward and a backward pass."""
    # torch does not count fused attention on the CPU, so attention is computed as two matrix products.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        logits = network(inputs[0], torch.zeros_like(inputs[0]), None, *inputs[1:])
        forward = counter.get_total_flops()
        logits.sum().backward()
    return forward, counter.get_total_flops()


SIZES = {
    "projected": EncoderConfig(600, embedding_size=32, hidden_size=64, num_layers=3, num_heads=4, ffn_size=96),
    "not projected": EncoderConfig(600, embedding_size=64, hidden_size=64, num_layers=2, num_heads=2, ffn_size=96),
}
LENGTH, PREDICTIONS = 24, 4
IDS = torch.arange(2 * LENGTH).view(2, LENGTH)


@pytest.mark.parametrize("config", SIZES.values(), ids=SIZES)
def test_discriminator_flops_equal_those_of_torchs_counter(config: EncoderConfig) -> None:
    forward, both = counted_by_torch(Discriminator(config), IDS)
    ours = sum(discriminator_parts(config, LENGTH).values())
    head = config.hidden_size + 8 * config.hidden_size  # bias, GELU
    assert forward == 2 * (ours - LENGTH * (beside_products(config, LENGTH) + head))
    assert both == 3 * forward, "torch counts a backward pass as two forward passes, the paper as one"


@pytest.mark.parametrize("config", SIZES.values(), ids=SIZES)
def test_masked_lm_flops_equal_those_of_torchs_counter(config: EncoderConfig) -> None:
    """Besides, its last layer is counted whole, and after queries, keys and values works at the predicted positions only."""
    forward, both = counted_by_torch(MaskedLM(config), IDS, torch.tensor([[1, 5, 9, 13], [2, 3, 4, 23]]))
    ours = sum(masked_lm_parts(config, LENGTH, PREDICTIONS).values())
    e, h, f = config.embedding_size, config.hidden_size, config.ffn_size
    head = e + e * (8 + 5) + (5 + 2) * config.vocab_size  # bias, GELU, LayerNorm, softmax
    scores_and_mix, output, feed_forward = 4 * h * LENGTH, 2 * h * h, 4 * h * f
    spared = (LENGTH - PREDICTIONS) * (scores_and_mix + output + feed_forward)
    assert forward == 2 * (ours - LENGTH * beside_products(config, LENGTH) - PREDICTIONS * head - spared)
    assert both == 3 * forward


def test_matrix_products_are_most_of_the_flops() -> None:
    """Biases, softmax, dropout, LayerNorm and GELU are 1 to 3 % of a layer; embedding look-ups are 30 to 40 %."""
    config, length = small().model, 128
    layers = sum(encoder_parts(config, length)[part] for part in ("attention", "feed-forward"))
    look_ups = encoder_parts(config, length)["embedding look-up"]
    elementwise = length * beside_products(config, length) - look_ups
    assert 0.01 < elementwise / layers < 0.03
    assert 0.3 < look_ups / layers < 0.4
