"""The objectives by name. A new one is a row; code outside this package adds rows to the same dict."""

from electra.pretraining.objectives.metrics import (
    ALL_TOKENS_METRICS,
    CORRECTIVE_METRICS,
    DETECTION_METRICS,
    ELECTRIC_METRICS,
    GENERATOR_METRICS,
    MASKED_LM_METRICS,
)
from electra.pretraining.objectives.networks import GeneratorConfig
from electra.pretraining.objectives.spec import GENERATORS, Objective

ELECTRA_METRICS = GENERATOR_METRICS | DETECTION_METRICS
OBJECTIVES: dict[str, Objective] = {
    "electra": Objective("generator", "replaced", "tokens", 50.0, "replaced token detection", ELECTRA_METRICS),
    "electra-15": Objective(
        "generator", "replaced", "masked", 50.0, "replaced token detection at the masked positions", ELECTRA_METRICS
    ),
    "electra-other-15": Objective(
        "generator", "replaced", "others", 50.0, "replaced token detection at other random positions", ELECTRA_METRICS
    ),
    "replace-mlm": Objective(
        "generator",
        "token",
        "masked",
        1.0,
        "masked language modeling without [MASK]",
        GENERATOR_METRICS | MASKED_LM_METRICS,
    ),
    "all-tokens-mlm": Objective(
        "generator",
        "every-token",
        "tokens",
        1.0,
        "language modeling of all tokens",
        GENERATOR_METRICS | ALL_TOKENS_METRICS,
    ),
    "mlm": Objective("masks", "token", "masked", 1.0, "BERT's masked language modeling", MASKED_LM_METRICS),
    "corrective-lm": Objective(
        "generator", "corrected", "tokens", 50.0, "corrective language modeling", CORRECTIVE_METRICS
    ),
    "electric": Objective(
        "generator-noise", "energy", "masked", 50.0, "energies, by noise-contrastive estimation", ELECTRIC_METRICS
    ),
    "electric-unigram": Objective(
        "unigram-noise", "energy", "tokens", 1.0, "energies, with noise by token frequency", ELECTRIC_METRICS
    ),
}


def has_generator_network(objective: str, generator: GeneratorConfig) -> bool:
    """Whether the objective has a generator that is a network."""
    kind = GENERATORS.get(generator.kind)
    return OBJECTIVES[objective].has_generator and kind is not None and kind.is_network
