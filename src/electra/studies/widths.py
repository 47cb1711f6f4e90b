"""Configurations with networks of another width."""

from dataclasses import replace
from typing import Any

from electra.model.encoder import EncoderConfig
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.networks import GeneratorConfig


def scale_generator(config: PretrainConfig, hidden: int) -> GeneratorConfig:
    """Return the generator with another width; its initializer range is scaled unless the discriminator has BERT's."""
    factor = hidden / config.model.hidden_size
    kernels = config.model.initializer_range * compute_initializer_scale(config.model, factor)
    return replace(config.generator, size=factor, initializer_range=kernels)


def compute_initializer_scale(model: EncoderConfig, factor: float) -> float:
    """Return the factor of the initializer range for `factor` times the width; 1 for BERT's range, which is fixed."""
    return factor**-0.5 if model.initializer_range != EncoderConfig().initializer_range else 1.0


def scale_width(config: PretrainConfig, hidden: int) -> PretrainConfig:
    """Return the model with layers of another width and heads of the same size (section 3.2: "decreasing the layer sizes").

    Initializer ranges other than BERT's are scaled to the new width, also the generator's.
    """
    model, generator = config.model, config.generator
    factor = hidden / model.hidden_size
    sizes: dict[str, Any] = {
        "hidden_size": hidden,
        "ffn_size": round(model.ffn_size * factor),
        "num_heads": max(1, round(model.num_heads * factor)),
    }
    if model.embedding_size == model.hidden_size:
        sizes["embedding_size"] = hidden
    model = replace(
        model, **sizes, initializer_range=model.initializer_range * compute_initializer_scale(model, factor)
    )
    if generator.initializer_range is not None:
        generator = replace(
            generator, initializer_range=generator.initializer_range * compute_initializer_scale(config.model, factor)
        )
    return replace(config, model=model, generator=generator)
