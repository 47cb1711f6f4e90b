"""The paper's hyperparameters for fine-tuning (Table 7), and the maximum lengths of the original code.

They are the defaults of a configuration, and depend on the kind of task and the size of the model.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from electra.model.encoder import EncoderConfig

BATCH_SIZE = 32
WARMUP = 0.1
"""Share of the steps in which the learning rate increases."""
WEIGHT_DECAY = 0.0
DROPOUT = 0.1


@dataclass(frozen=True)
class TaskRecipe:
    """Hyperparameters that depend on the task."""

    epochs: float = 3.0
    max_length: int = 128
    """Maximum tokens of an example, as in the original code; fewer if the encoder has fewer positions."""


TEXTS = TaskRecipe()
SMALL_TEXTS = TaskRecipe(epochs=10.0)
"""For RTE and STS-B."""
QUESTIONS = TaskRecipe(epochs=2.0, max_length=512)
TAGS = TaskRecipe(max_length=256)


@dataclass(frozen=True)
class SizeRecipe:
    """Hyperparameters that depend on the size of the model."""

    learning_rate: float
    layerwise_decay: float


SIZES: tuple[tuple[int, SizeRecipe], ...] = (
    (1024, SizeRecipe(5e-5, 0.9)),  # Large
    (768, SizeRecipe(1e-4, 0.8)),  # Base
    (0, SizeRecipe(3e-4, 0.8)),  # Small
)
"""(smallest hidden size, hyperparameters), the largest first."""


def find_size_recipe(encoder: EncoderConfig) -> SizeRecipe:
    """Return the hyperparameters of Large for a hidden size of at least 1,024, of Base of at least 768, else of Small."""
    return next(recipe for hidden_size, recipe in SIZES if encoder.hidden_size >= hidden_size)


def build_rate_factor(decay: float, num_layers: int) -> Callable[[str], float]:
    """Build a function from the name of a parameter of a `FinetunedModel` to the factor of its learning rate.

    The factors are those of the original code, with which the published scores were computed: head 1, top layer decay^2, ...,
    bottom layer decay^(n + 1), embeddings and their projection decay^(n + 2), for n = `num_layers`. A module after the last
    layer has that layer's.
    """

    def get_factor(name: str) -> float:
        if name.startswith("head."):
            return 1.0
        layer = re.match(r"encoder\.layers\.(\d+)\.", name)
        depth = int(layer[1]) + 1 if layer else num_layers if name.startswith("encoder.final.") else 0
        return float(decay ** (num_layers + 2 - depth))

    return get_factor
