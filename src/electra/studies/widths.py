"""The same run with networks of another width."""

from dataclasses import replace

from electra.model.encoder import EncoderConfig
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.networks import GeneratorConfig


def with_generator(config: PretrainConfig, hidden: int) -> GeneratorConfig:
    """The generator in another width; its initial kernels are fitted to it where the main network's are to theirs."""
    factor = hidden / config.model.hidden_size
    kernels = config.model.initializer_range * fit(config.model, factor)
    return replace(config.generator, size=factor, initializer_range=kernels)


def fit(model: EncoderConfig, factor: float) -> float:
    """What fits initial kernels to `factor` times the width, by their deviation: 1 where a model has BERT's at any width."""
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
    model = replace(model, **sizes, initializer_range=model.initializer_range * fit(model, factor))
    if generator.initializer_range is not None:
        generator = replace(generator, initializer_range=generator.initializer_range * fit(config.model, factor))
    return replace(config, model=model, generator=generator)
