"""The studies by name."""

from collections.abc import Callable

from electra.studies.catalog.crossover import crossover
from electra.studies.catalog.elements import elements
from electra.studies.catalog.paper_studies import (
    convergence,
    efficiency,
    generator_size,
    learning_rate,
    model_size,
    negative_results,
    objectives,
    training_algorithms,
    tying,
)
from electra.studies.scales import Scale
from electra.studies.study import Study

STUDIES: dict[str, Callable[[Scale], Study]] = {
    "objectives": objectives,
    "generator-size": generator_size,
    "training-algorithms": training_algorithms,
    "tying": tying,
    "model-size": model_size,
    "convergence": convergence,
    "efficiency": efficiency,
    "negative-results": negative_results,
    "learning-rate": learning_rate,
    "elements": elements,
    "crossover": crossover,
}
