"""Table 7 of the paper and the layer-wise learning rates, compared with the values of the original code."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from electra.finetuning.classification.pooling import POOLINGS
from electra.finetuning.model import FinetunedModel
from electra.finetuning.recipe import (
    QUESTIONS,
    SIZES,
    SMALL_TEXTS,
    TEXTS,
    SizeRecipe,
    build_rate_factor,
    choose_pooling,
    find_size_recipe,
)
from electra.model.encoder import Encoder, EncoderConfig
from electra.presets import PRESETS
from electra.train.optimizer import OptimizerConfig, build_optimizer, set_learning_rate


@pytest.mark.parametrize(("preset", "rate", "decay"), [("small", 3e-4, 0.8), ("base", 1e-4, 0.8), ("large", 5e-5, 0.9)])
def test_sizes_of_the_paper_have_its_values(preset: str, rate: float, decay: float) -> None:
    model = PRESETS[preset]().model
    recipe = find_size_recipe(model)
    assert (recipe.learning_rate, recipe.layerwise_decay, choose_pooling(None, model)) == (rate, decay, "cls")
    for examples in (1, 10**6):
        assert recipe.choose_epochs(TEXTS, examples) == 3
        assert recipe.choose_epochs(SMALL_TEXTS, examples) == 10
        assert recipe.choose_epochs(QUESTIONS, examples) == 2


def test_table_7_begins_at_width_256() -> None:
    small = PRESETS["small"]().model
    assert find_size_recipe(replace(small, hidden_size=256)).learning_rate == 3e-4
    assert find_size_recipe(replace(small, hidden_size=255, num_heads=1)) == find_size_recipe(PRESETS["tiny"]().model)


def test_narrow_encoders_have_the_values_of_the_search() -> None:
    """docs/research/log/2026-11-24-fine-tuning-recipe.md, Decision."""
    model = PRESETS["tiny"]().model
    recipe = find_size_recipe(model)
    assert (recipe.learning_rate, recipe.layerwise_decay, choose_pooling(None, model)) == (1e-3, 0.8, "cls")
    assert [recipe.choose_epochs(TEXTS, examples) for examples in (100, 10_000, 10_001)] == [10, 10, 3]
    assert choose_pooling("mean", model) == "mean"


def test_epochs_decrease_with_the_examples() -> None:
    recipe = SizeRecipe("here", 1e-3, 0.8, min_epochs=((100, 30.0), (1_000, 5.0)))
    numbers = (1, 100, 101, 1_000, 1_001)
    assert [recipe.choose_epochs(TEXTS, number) for number in numbers] == [30, 30, 5, 5, 3]
    assert [recipe.choose_epochs(SMALL_TEXTS, number) for number in numbers] == [30, 30, 10, 10, 10]


def test_records_of_sizes_are_valid() -> None:
    """The largest size comes first, the last one has all encoders, and epochs do not increase with the examples."""
    sizes = [size for size, _ in SIZES]
    assert sizes == sorted(set(sizes), reverse=True)
    assert sizes[-1] == 0
    for _, recipe in SIZES:
        assert recipe.pooling in POOLINGS
        examples, epochs = zip(*recipe.min_epochs, strict=True) if recipe.min_epochs else ((), ())
        assert list(examples) == sorted(set(examples))
        assert list(epochs) == sorted(epochs, reverse=True)


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
