"""AdamW: what decays, and the variant without bias correction, against the update rule written out."""

import pytest
import torch
from torch import nn

from electra.model.encoder import EncoderConfig
from electra.pretraining.objectives.networks import Discriminator
from electra.train.optimizer import OptimizerConfig, build_optimizer, clip_gradients, no_decay, set_learning_rate


def test_biases_and_layer_norms_do_not_decay() -> None:
    names = [name for name, _ in Discriminator(EncoderConfig(num_layers=1)).named_parameters()]
    decaying = {name for name in names if not no_decay(name)}
    assert decaying == {
        "encoder.embeddings.word.weight",
        "encoder.embeddings.position.weight",
        "encoder.embeddings.token_type.weight",
        "encoder.project.weight",
        "encoder.layers.0.attention.qkv.weight",
        "encoder.layers.0.attention.output.weight",
        "encoder.layers.0.ffn.up.weight",
        "encoder.layers.0.ffn.down.weight",
        "head.dense.weight",
        "head.score.weight",
    }


@pytest.mark.parametrize("bias_correction", [True, False])
def test_updates_against_the_rule_written_out(bias_correction: bool) -> None:
    torch.manual_seed(0)
    config = OptimizerConfig(eps=1e-3, weight_decay=0.1, bias_correction=bias_correction)
    layer = nn.Linear(3, 2).double()
    optimizer = build_optimizer(layer.named_parameters(), config)
    expected = {name: p.detach().clone() for name, p in layer.named_parameters()}
    m = {name: torch.zeros_like(p) for name, p in expected.items()}
    v = {name: torch.zeros_like(p) for name, p in expected.items()}
    for step in range(1, 8):
        rate = 0.1 / step
        set_learning_rate(optimizer, config, rate, step)
        for name, p in layer.named_parameters():
            p.grad = torch.randn_like(p)
            m[name] = config.beta1 * m[name] + (1 - config.beta1) * p.grad
            v[name] = config.beta2 * v[name] + (1 - config.beta2) * p.grad**2
            c1 = 1 - config.beta1**step if bias_correction else 1.0
            c2 = 1 - config.beta2**step if bias_correction else 1.0
            decay = 0.0 if name == "bias" else config.weight_decay
            update = (m[name] / c1) / ((v[name] / c2).sqrt() + config.eps) + decay * expected[name]
            expected[name] = expected[name] - rate * update
        optimizer.step()
        for name, p in layer.named_parameters():
            torch.testing.assert_close(p.detach(), expected[name], rtol=1e-9, atol=1e-12)


def test_one_clip_for_all_gradients() -> None:
    a, b = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    a.grad, b.grad = torch.tensor([3.0]), torch.tensor([4.0])
    assert float(clip_gradients([a, b], OptimizerConfig(clip_norm=1.0))) == pytest.approx(5.0)
    assert (float(a.grad), float(b.grad)) == pytest.approx((0.6, 0.8), rel=1e-4)
