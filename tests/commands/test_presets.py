"""Presets compared with the paper's Table 6, and the settings of the original code."""

from dataclasses import replace

import pytest

from electra.presets import PRESETS, base, large, micro, nano, reference, small
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.networks import compute_generator_sizes
from electra.studies.catalog import STUDIES
from electra.studies.scales import SCALES

# Table 6 and Appendix D: layers, hidden, FFN, heads, embedding, generator, mask %, learning rate, batch, steps, length
TABLE_6 = {
    "small": (12, 256, 1024, 4, 128, 1 / 4, 15, 5e-4, 128, 1_000_000, 128),
    "small++": (12, 256, 1024, 4, 128, 1.0, 15, 5e-4, 128, 4_000_000, 512),
    "base": (12, 768, 3072, 12, 768, 1 / 3, 15, 2e-4, 256, 766_000, 512),
    "base++": (12, 768, 3072, 12, 768, 1 / 3, 15, 2e-4, 256, 4_000_000, 512),
    "large": (24, 1024, 4096, 16, 1024, 1 / 4, 25, 2e-4, 2048, 1_750_000, 512),
    "bert-small": (12, 256, 1024, 4, 128, 1 / 4, 15, 5e-4, 128, 1_450_000, 128),
    "bert-base": (12, 768, 3072, 12, 768, 1 / 3, 15, 2e-4, 256, 1_000_000, 512),
    "bert-large": (24, 1024, 4096, 16, 1024, 1 / 4, 15, 2e-4, 2048, 464_000, 512),
}


@pytest.mark.parametrize("name", TABLE_6)
def test_table_6(name: str) -> None:
    c = PRESETS[name]()
    m = c.model
    assert (
        m.num_layers, m.hidden_size, m.ffn_size, m.num_heads, m.embedding_size, c.generator.size,
        100 * c.masking.fraction, c.optimizer.learning_rate, c.training.batch_size, c.steps, c.seq_len,
    ) == TABLE_6[name]  # fmt: skip
    o = c.optimizer
    assert (o.eps, o.beta1, o.beta2, o.weight_decay, o.clip_norm) == (1e-6, 0.9, 0.999, 0.01, 1.0)
    assert (m.dropout, m.attention_dropout, m.layer_norm_eps, c.schedule.warmup_steps) == (0.1, 0.1, 1e-12, 10_000)
    assert m.hidden_size // m.num_heads == 64
    assert c.schedule.warmup(c.steps) * c.steps == pytest.approx(10_000)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_consistent(name: str) -> None:
    config = PRESETS[name]()
    assert config.preset == name
    assert (config.objective == "mlm") == (name.startswith("bert-") or name in ("nano", "micro"))
    assert config.recipe().budget.steps == config.steps
    assert compute_generator_sizes(config.model, config.generator).hidden_size >= 1


@pytest.mark.parametrize(("preset", "scale"), [(nano, "tiny"), (micro, "mini")])
def test_small_presets_are_bert_of_the_study_of_elements(preset, scale: str) -> None:
    study = STUDIES["elements"](SCALES[scale]())
    (studied,) = (variant.config for variant in study.variants if variant.name == "mlm-words")
    config = preset()
    own = {name: getattr(config, name) for name in ("preset", "steps", "length_warmup", "generator", "loss_weight")}
    assert replace(studied, **own) == config
    assert config.steps is not None
    assert config.length_warmup.steps == config.steps / 2, "as in the study, half of the updates read short sequences"
    assert config.length_warmup.length == studied.length_warmup.length


def test_default_configuration_is_small() -> None:
    assert PretrainConfig() == small()


@pytest.mark.parametrize("preset", [small, base, large])
def test_reference(preset) -> None:
    plain, original = preset(), reference(preset())
    assert original.masking.with_replacement
    assert not original.optimizer.bias_correction
    assert original.schedule.kind == "linear-product"
    assert original.training.means == "local"
    assert (original.masking.mlm_mask, original.masking.mlm_random) == (0.85, 0.0)
    back = replace(
        original, masking=plain.masking, optimizer=plain.optimizer, schedule=plain.schedule, training=plain.training
    )
    assert back == plain, "nothing else changes"
    assert replace(small(), objective="mlm").objective == "mlm"
