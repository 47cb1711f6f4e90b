"""Table 7 of the paper and the layer-wise learning rates, compared with the values of the original code."""

import pytest
import torch
from torch import nn

from electra.finetuning.model import FinetunedModel
from electra.finetuning.recipe import build_rate_factor, find_size_recipe
from electra.model.encoder import Encoder, EncoderConfig
from electra.presets import PRESETS
from electra.train.optimizer import OptimizerConfig, build_optimizer, set_learning_rate


@pytest.mark.parametrize(
    ("preset", "rate", "decay"), [("small", 3e-4, 0.8), ("base", 1e-4, 0.8), ("large", 5e-5, 0.9), ("tiny", 3e-4, 0.8)]
)
def test_rates_by_size(preset: str, rate: float, decay: float) -> None:
    recipe = find_size_recipe(PRESETS[preset]().model)
    assert (recipe.learning_rate, recipe.layerwise_decay) == (rate, decay)


@pytest.mark.parametrize(
    ("layers", "decay", "top", "bottom", "embeddings"),
    [(12, 0.8, 0.64, 0.0550, 0.0440), (24, 0.9, 0.81, 0.0718, 0.0646)],
)
def test_layerwise_rates_are_those_of_the_original_code(layers, decay, top, bottom, embeddings) -> None:
    factor = build_rate_factor(decay, layers)
    assert factor("head.output.weight") == 1.0
    assert factor(f"encoder.layers.{layers - 1}.ffn.up.weight") == pytest.approx(top, abs=5e-5)
    assert factor("encoder.final.weight") == factor(f"encoder.layers.{layers - 1}.ffn.up.weight")
    assert factor("encoder.layers.0.attention.qkv.bias") == pytest.approx(bottom, abs=5e-5)
    for name in ("encoder.embeddings.word.weight", "encoder.embeddings.norm.bias", "encoder.project.weight"):
        assert factor(name) == pytest.approx(embeddings, abs=5e-5)


def test_optimizer_uses_the_rates() -> None:
    """The first step of Adam has the size of the learning rate, for any gradient."""
    model = FinetunedModel(Encoder(EncoderConfig(vocab_size=9, num_layers=2, max_positions=8)), nn.Linear(256, 2))
    config = OptimizerConfig(learning_rate=0.1, weight_decay=0.0, eps=1e-12)
    factor = build_rate_factor(0.5, 2)
    optimizer = build_optimizer(model.named_parameters(), config, factor)
    set_learning_rate(optimizer, config, 0.1, 1)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    optimizer.step()
    for name, p in model.named_parameters():
        torch.testing.assert_close(
            before[name] - p.detach(), torch.full_like(p, 0.1 * factor(name)), rtol=1e-4, atol=1e-6
        )
