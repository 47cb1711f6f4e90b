"""Default hyperparameters of fine-tuning: those of the paper (Table 7) from ELECTRA-Small up, others for narrower encoders.

They depend on the kind of task, the hidden size and, for narrow encoders, the number of training examples. The values for
narrow encoders are from a search (runs/finetuning_recipe.py, docs/research/log/2026-11-24-fine-tuning-recipe.md). Maximum
lengths are those of the original code.
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
    pooling: str | None = None
    """A key of `classification.pooling.POOLINGS`; None: that of the size."""


TEXTS = TaskRecipe()
SMALL_TEXTS = TaskRecipe(epochs=10.0)
"""For RTE and STS-B."""
QUESTIONS = TaskRecipe(epochs=2.0, max_length=512)
TAGS = TaskRecipe(max_length=256)
VECTORS = TaskRecipe(epochs=1.0, pooling="mean")
"""For sentence vectors; not from the paper. One epoch as in SimCSE (Gao et al., 2021) without labels."""


@dataclass(frozen=True)
class SizeRecipe:
    """Hyperparameters that depend on the size of the model."""

    source: str
    """Where they are from, for a message."""
    learning_rate: float
    layerwise_decay: float
    pooling: str = "cls"
    """A key of `classification.pooling.POOLINGS`."""
    min_epochs: tuple[tuple[int, float], ...] = ()
    """(largest number of training examples, smallest number of epochs), the fewest examples first; beyond the last number, the
    epochs are those of the task."""

    def choose_epochs(self, recipe: TaskRecipe, examples: int) -> float:
        """Return the epochs of a task with this number of training examples."""
        least = (epochs for most, epochs in self.min_epochs if examples <= most)
        return max(recipe.epochs, next(least, 0.0))


SIZES: tuple[tuple[int, SizeRecipe], ...] = (
    (1024, SizeRecipe("Table 7, Large", 5e-5, 0.9)),
    (768, SizeRecipe("Table 7, Base", 1e-4, 0.8)),
    (256, SizeRecipe("Table 7, Small", 3e-4, 0.8)),
    (0, SizeRecipe("a search for encoders narrower than 256", 1e-3, 0.8, "cls", ((10_000, 10.0),))),
)
"""(smallest hidden size, hyperparameters), the largest first."""


def find_size_recipe(encoder: EncoderConfig) -> SizeRecipe:
    """Return the hyperparameters of the first size in `SIZES` that is not larger than the encoder's hidden size."""
    return next(recipe for hidden_size, recipe in SIZES if encoder.hidden_size >= hidden_size)


def choose_pooling(given: str | None, encoder: EncoderConfig) -> str:
    """Return the given pooling of text classification; if it is None, the default of the size."""
    return given or find_size_recipe(encoder).pooling


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
