"""How the paper fine-tunes (Table 7): rates by model size, epochs by task, layer-wise decay of the learning rate."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from electra.model.encoder import EncoderConfig


@dataclass(frozen=True)
class SizeProtocol:
    """What Table 7 varies with the size of the model."""

    learning_rate: float
    layerwise_decay: float


# From the smallest hidden size on that has it.
SIZES: tuple[tuple[int, SizeProtocol], ...] = (
    (1024, SizeProtocol(5e-5, 0.9)),  # Large
    (768, SizeProtocol(1e-4, 0.8)),  # Base
    (0, SizeProtocol(3e-4, 0.8)),  # Small
)


def size_protocol(encoder: EncoderConfig) -> SizeProtocol:
    """The row of Table 7 for an encoder: Large from a width of 1,024, Base from 768, Small below."""
    return next(protocol for width, protocol in SIZES if encoder.hidden_size >= width)


def layerwise_rates(decay: float, num_layers: int) -> Callable[[str], float]:
    """What multiplies the learning rate of each parameter of a `FinetunedModel`, by its name.

    The exponents are the original code's, which the published scores were made with: head 1, top layer decay^2, …,
    bottom layer decay^(n + 1), embeddings and their projection decay^(n + 2).
    """

    def factor(name: str) -> float:
        if name.startswith("head."):
            return 1.0
        layer = re.match(r"encoder\.layers\.(\d+)\.", name)
        depth = int(layer[1]) + 1 if layer else 0
        return float(decay ** (num_layers + 2 - depth))

    return factor
