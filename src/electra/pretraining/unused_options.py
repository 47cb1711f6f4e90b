"""Options without effect in a configuration."""

from collections.abc import Iterable, Iterator
from dataclasses import fields

from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.catalog import OBJECTIVES
from electra.pretraining.objectives.corruptions.masking_strategies import MASKING
from electra.pretraining.objectives.spec import CORRUPTIONS, GENERATORS, TARGETS
from electra.pretraining.stages.procedures import PROCEDURES
from electra.train.schedule import SCHEDULES


def find_unused_options(names: Iterable[str], config: PretrainConfig) -> Iterator[str]:
    """Yield a message for each option of `names` that has no effect, with the reason."""
    for name in names:
        for prefix, reason in list_reasons(config).items():
            if name.startswith(prefix):
                yield f"--{name.replace('_', '-')} has no effect: {reason}"


def list_reasons(config: PretrainConfig) -> dict[str, str]:
    """Return why options have no effect, by the prefix of their names."""
    row, objective = OBJECTIVES[config.objective], f"--objective {config.objective}"
    corruption, schedule = CORRUPTIONS[row.corruption], SCHEDULES[config.schedule.kind]
    generator, strategy = config.generator, MASKING[config.masking.strategy]
    found: dict[str, str] = {}
    if not row.has_generator:
        found |= dict.fromkeys(("generator.", "loss_weight"), f"{objective} has no generator")
    else:
        kind = GENERATORS[generator.kind]
        of_networks = frozenset().union(*(each.uses for each in GENERATORS.values() if each.is_network))
        read_by_others = of_networks if kind.is_network else {each.name for each in fields(generator)} - {"kind"}
        unread = read_by_others - kind.uses
        found |= {f"generator.{name}": f"generator.kind {generator.kind} does not read it" for name in unread}
        if kind.is_network and (generator.training != "mle" or PROCEDURES[config.procedure].freezes_generator):
            names = ("generator.loss_weight", "generator.final_loss_weight")
            found |= dict.fromkeys(names, "the generator has no such loss")
    read = corruption.uses | PROCEDURES[config.procedure].uses
    others = frozenset().union(*(each.uses for each in CORRUPTIONS.values())) - read
    found |= {f"masking.{name}": f"the corruption of {objective} does not read it" for name in others}
    others = frozenset().union(*(each.uses for each in MASKING.values())) - strategy.uses
    found |= {f"masking.{name}": f"masking.strategy is {config.masking.strategy}" for name in others}
    if config.deduplicate != "minhash":
        found["dedup_threshold"] = f"--deduplicate is {config.deduplicate}"
    if config.init:
        found["model.attention_initializer"] = "--init has attention and positions of its own"
    if PROCEDURES[config.procedure].stage_one is None:
        found["stage_one_share"] = f"--procedure {config.procedure} has only one stage"
    if PROCEDURES[config.procedure].freezes_generator:
        found["generator.tying"] = f"--procedure {config.procedure} shares no weights"
    if config.copy is False and "copy" not in TARGETS[row.target].module.uses:
        found["copy"] = f"{objective} has no copy mechanism"
    if not config.contrast.weight:
        found["contrast.unchanged"] = "contrast.weight is 0"
    if not config.sequence_contrast.weight:
        names = ("sequence_contrast.crop", "sequence_contrast.temperature")
        found |= dict.fromkeys(names, "sequence_contrast.weight is 0")
    if not config.length_warmup.steps:
        found["length_warmup.length"] = "length_warmup.steps is 0"
    if not config.batch_warmup.steps:
        found["batch_warmup.size"] = "batch_warmup.steps is 0"
    if "decay" not in schedule.uses:
        found["schedule.decay"] = f"schedule.kind is {config.schedule.kind}"
    if config.steps is None:
        budget = "--hours" if config.hours is not None else "--flops"
        found["schedule.warmup_steps"] = f"with {budget}, schedule.max_warmup sets the warm-up's share of the run"
    return found
