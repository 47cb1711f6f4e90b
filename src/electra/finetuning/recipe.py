"""The paper's recipe for fine-tuning, all of it (Table 7, and the lengths of the original code).

What a configuration leaves open is taken from here. It depends on the kind of task and on the size of the model.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from electra.model.encoder import EncoderConfig

BATCH_SIZE = 32
WARMUP = 0.1
"""Share of the steps in which the learning rate rises."""
WEIGHT_DECAY = 0.0
DROPOUT = 0.1


@dataclass(frozen=True)
class TaskRecipe:
    """What differs by task."""

    epochs: float = 3.0
    max_length: int = 128
    """Tokens of an example, as in the original code; shorter where the encoder has fewer positions."""


TEXTS = TaskRecipe()
SMALL_TEXTS = TaskRecipe(epochs=10.0)
"""RTE and STS-B."""
QUESTIONS = TaskRecipe(epochs=2.0, max_length=512)
TAGS = TaskRecipe(max_length=256)


@dataclass(frozen=True)
class SizeRecipe:
    """What differs by the size of the model."""

    learning_rate: float
    layerwise_decay: float


SIZES: tuple[tuple[int, SizeRecipe], ...] = (
    (1024, SizeRecipe(5e-5, 0.9)),  # Large
    (768, SizeRecipe(1e-4, 0.8)),  # Base
    (0, SizeRecipe(3e-4, 0.8)),  # Small
)
"""(smallest hidden size, recipe), the largest first."""


def find_size_recipe(encoder: EncoderConfig) -> SizeRecipe:
    """The recipe of Large from a hidden size of 1,024 on, of Base from 768, of Small below."""
    return next(recipe for hidden_size, recipe in SIZES if encoder.hidden_size >= hidden_size)


def layerwise_rates(decay: float, num_layers: int) -> Callable[[str], float]:
    """The factor of the learning rate by the name of a parameter of a `FinetunedModel`.

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
