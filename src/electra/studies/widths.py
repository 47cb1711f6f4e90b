"""The same run with networks of another width."""

from dataclasses import replace

from electra.model.encoder import EncoderConfig
from electra.pretraining.config import PretrainConfig
from electra.pretraining.networks import GeneratorConfig


def with_generator(config: PretrainConfig, hidden: int) -> GeneratorConfig:
    """The generator in another width; its initial kernels are fitted to it where the main network's are to theirs."""
    factor = hidden / config.model.hidden_size
    return replace(config.generator, size=factor, initializer_range=fitted_range(config.model, factor))


def fitted_range(model: EncoderConfig, factor: float) -> float:
    """Deviation of initial kernels at `factor` times the width: fitted to it if it was, BERT's if it is BERT's."""
    fitted = model.initializer_range != EncoderConfig().initializer_range
    return model.initializer_range * (factor**-0.5 if fitted else 1.0)


def with_width(config: PretrainConfig, hidden: int) -> PretrainConfig:
    """The same model with layers of another width, heads as wide as before (section 3.2: "decreasing the layer sizes").

    Initial kernels that were fitted to the width, not BERT's, are fitted to the new one.
    """
    model = config.model
    factor = hidden / model.hidden_size
    sizes = {
        "hidden_size": hidden,
        "ffn_size": round(model.ffn_size * factor),
        "num_heads": max(1, round(model.num_heads * factor)),
    }
    if model.embedding_size == model.hidden_size:
        sizes["embedding_size"] = hidden
    return replace(config, model=replace(model, **sizes, initializer_range=fitted_range(model, factor)))
