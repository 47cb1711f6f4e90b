"""Configurations and variants that several studies compare."""

from dataclasses import replace

from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.catalog import OBJECTIVES
from electra.pretraining.objectives.networks import GeneratorConfig
from electra.studies.compute import compute_step_flops
from electra.studies.scales import Scale
from electra.studies.study import Variant

ELECTRA, BERT = "ELECTRA", "BERT"
"""Labels of the two methods."""


def compute_budget_flops(scale: Scale) -> float:
    """Compute the budget of studies at equal compute: the FLOPs of ELECTRA for the scale's steps."""
    return compute_step_flops(scale.config) * (scale.config.steps or 0)


def set_full_size(generator: GeneratorConfig) -> GeneratorConfig:
    """Return the generator with the size and initializer range of the discriminator."""
    return replace(generator, size=1.0, initializer_range=None)


def configure_both(config: PretrainConfig) -> dict[str, tuple[str, PretrainConfig]]:
    """Return configurations of ELECTRA and BERT with the same hyperparameters."""
    return {"electra": (ELECTRA, config), "mlm": (BERT, set_objective(config, "mlm"))}


def set_objective(config: PretrainConfig, name: str) -> PretrainConfig:
    """Return the run with another objective; a discriminator's loss weight does not apply to other objectives."""
    weight = config.loss_weight if OBJECTIVES[name].discriminates else None
    return replace(config, objective=name, loss_weight=weight)


def vary_compute(compared: dict[str, tuple[str, PretrainConfig]], shares: tuple[float, ...]) -> list[Variant]:
    """Build variants at several shares of the budget, each a separate run whose learning rate ends at zero."""
    return [
        Variant(f"{name}-{share:g}", f"{line}, {share:.4g} of the budget", config, line, share=share)
        for name, (line, config) in compared.items()
        for share in shares
    ]
