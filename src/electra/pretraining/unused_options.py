"""Options without effect in a configuration."""

from collections.abc import Iterable, Iterator

from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.spec import OBJECTIVES


def find_unused_options(names: Iterable[str], config: PretrainConfig) -> Iterator[str]:
    """Yield a message for each option of `names` that has no effect, with the reason."""
    for name in names:
        for prefix, reason in list_reasons(config).items():
            if name.startswith(prefix):
                yield f"--{name.replace('_', '-')} has no effect: {reason}"


def list_reasons(config: PretrainConfig) -> dict[str, str]:
    """Return why options have no effect, by the prefix of their names."""
    row, objective = OBJECTIVES[config.objective], f"--objective {config.objective}"
    generator, masking = config.generator, config.masking
    found: dict[str, str] = {}
    if not row.has_generator:
        found |= dict.fromkeys(("generator.", "loss_weight", "masking.generator_mask"), f"{objective} has no generator")
    else:
        found["masking.mlm_"] = f"{objective} has no [MASK] in the input of the discriminator or main encoder"
        if generator.kind != "masked-lm":
            network = ("size", "depth", "heads", "ffn", "tying", "training", "initializer_range", "rate_factor")
            no_network = f"generator.kind {generator.kind} is not a network"
            found |= {f"generator.{name}": no_network for name in network}
        if generator.kind == "uniform":
            found["generator.temperature"] = "uniform samples stay uniform at any temperature"
    if config.procedure != "joint":
        found["generator.tying"] = f"--procedure {config.procedure} shares no weights"
    if config.copy is False and row.target != "every-token":
        found["copy"] = f"{objective} has no copy mechanism"
    if masking.strategy != "rare":
        found["masking.rarity"] = f"masking.strategy is {masking.strategy}"
    if not config.contrast.weight:
        found["contrast.unchanged"] = "contrast.weight is 0"
    if not config.length_warmup.steps:
        found["length_warmup.length"] = "length_warmup.steps is 0"
    if config.schedule.kind != "wsd":
        found["schedule.decay"] = f"schedule.kind is {config.schedule.kind}"
    if config.steps is None:
        budget = "--hours" if config.hours is not None else "--flops"
        found["schedule.warmup_steps"] = f"with {budget}, schedule.max_warmup sets the warm-up's share of the run"
    return found
