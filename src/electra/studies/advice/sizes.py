"""Sizes that are recommended, in ascending order."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from electra.model.encoder import EncoderConfig
from electra.presets import base, micro, nano, small
from electra.pretraining.config import PretrainConfig


@dataclass(frozen=True)
class ModelSize:
    """A size of the network with the hyperparameters that belong to it."""

    build: Callable[[], PretrainConfig]
    """Its run, with a number of steps; the objective is replaced."""
    origin: str
    """Where its hyperparameters are from."""
    published: tuple[float, float] = (0.0, 0.0)
    """Range of the training FLOPs of the paper's models of this size."""


def four_layers() -> PretrainConfig:
    """Return a third of the layers of Small, with shorter sequences, a smaller batch and a smaller vocabulary."""
    config = small()
    return replace(
        config,
        seq_len=64,
        model=EncoderConfig(num_layers=4, vocab_size=16_384),
        training=replace(config.training, batch_size=64),
    )


SIZES: dict[str, ModelSize] = {
    "tiny": ModelSize(nano, "those of the preset nano"),
    "mini": ModelSize(micro, "those of the preset micro"),
    "4x256": ModelSize(four_layers, "those of ELECTRA-Small for a third of its layers, which no study has tested"),
    "small": ModelSize(small, "those of ELECTRA-Small (Table 6 of the paper)", (8.9e16, 1.4e18)),
    "base": ModelSize(base, "those of ELECTRA-Base (Table 6 of the paper)", (6.4e19, 6.4e19)),
}
"""By name. The studies run those that are named as one of their scales."""
