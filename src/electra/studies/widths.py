"""Configurations of the same run with networks of another width."""

from dataclasses import replace

from electra.model.encoder import EncoderConfig
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.networks import GeneratorConfig


def with_generator(config: PretrainConfig, hidden: int) -> GeneratorConfig:
    """Return the generator of another width; its initializer range is scaled where the discriminator's is not BERT's."""
    factor = hidden / config.model.hidden_size
    kernels = config.model.initializer_range * initializer_scale(config.model, factor)
    return replace(config.generator, size=factor, initializer_range=kernels)


def initializer_scale(model: EncoderConfig, factor: float) -> float:
    """Factor of the initializer range at `factor` times the width; 1 for models with BERT's range, which is fixed."""
    return factor**-0.5 if model.initializer_range != EncoderConfig().initializer_range else 1.0


def with_width(config: PretrainConfig, hidden: int) -> PretrainConfig:
    """The same model with layers of another width, heads as wide as before (section 3.2: "decreasing the layer sizes").

    Initial kernels that were fitted to the width, not BERT's, are fitted to the new one; so are the generator's.
    """
    model, generator = config.model, config.generator
    factor = hidden / model.hidden_size
    sizes = {
        "hidden_size": hidden,
        "ffn_size": round(model.ffn_size * factor),
        "num_heads": max(1, round(model.num_heads * factor)),
    }
    if model.embedding_size == model.hidden_size:
        sizes["embedding_size"] = hidden
    model = replace(model, **sizes, initializer_range=model.initializer_range * initializer_scale(model, factor))
    if generator.initializer_range is not None:
        generator = replace(
            generator, initializer_range=generator.initializer_range * initializer_scale(config.model, factor)
        )
    return replace(config, model=model, generator=generator)
