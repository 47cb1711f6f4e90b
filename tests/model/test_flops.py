"""FLOPs against the figures that the original script prints and the paper's tables."""

import math

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from electra.model.encoder import Encoder, EncoderConfig
from electra.model.flops import discriminator_step_flops, encoder_flops, layer_flops, masked_lm_step_flops
from electra.presets import base, large, small
from electra.pretraining.config import PretrainConfig
from electra.pretraining.networks import generator_sizes

# The original script counts a masked-LM head for this share of the tokens, whatever the mask percent.
HEAD = 0.15625


def run(config: PretrainConfig, steps: float, batch: int, mlm_only: bool = False) -> float:
    length, predictions = config.seq_len, round(HEAD * config.seq_len)
    if mlm_only:
        return batch * steps * masked_lm_step_flops(config.model, length, predictions)
    generator = generator_sizes(config.model, config.generator)
    return (
        batch
        * steps
        * (masked_lm_step_flops(generator, length, predictions) + discriminator_step_flops(config.model, length))
    )


@pytest.mark.parametrize(
    ("config", "steps", "mlm_only", "printed"),
    [
        (small(), 1e6, False, 1.294e18),
        (small(), 1.45e6, True, 1.419e18),
        (base(), 766e3, False, 6.425e19),
        (large(), 400e3, False, 7.118e20),
        (large(), 1.75e6, False, 3.114e21),
    ],
    ids=["small", "bert-small", "base", "large-400k", "large-1.75M"],
)
def test_the_original_scripts_figures(config: PretrainConfig, steps: float, mlm_only: bool, printed: float) -> None:
    """The figures on record are cut, not rounded, to four digits."""
    counted = run(config, steps, config.training.batch_size, mlm_only)
    digit = 10 ** (math.floor(math.log10(printed)) - 3)
    assert printed <= counted * (1 + 1e-12) < printed + digit


def test_inference_flops_of_table_1() -> None:
    assert encoder_flops(small().model, 128) == pytest.approx(3.7e9, rel=0.02)
    assert encoder_flops(base().model, 128) == pytest.approx(2.9e10, rel=0.02)


def test_matrix_products_against_torchs_counter() -> None:
    config = EncoderConfig(num_layers=2)
    encoder, length = Encoder(config).eval(), 64
    ids = torch.zeros(1, length, dtype=torch.long)
    # torch does not count its fused attention on the CPU, so take the one made of two matrix products.
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        encoder(ids, ids)
    h, f, e = config.hidden_size, config.ffn_size, config.embedding_size
    products = 2 * (8 * h * h + 4 * h * f + 4 * h * length) + 2 * e * h
    assert counter.get_total_flops() == length * products
    # Biases, softmax, dropout, LayerNorm and GELU are the rest of a layer: small beside its matrix products.
    assert 1.0 < layer_flops(config, length) / (8 * h * h + 4 * h * f + 4 * h * length) < 1.03
