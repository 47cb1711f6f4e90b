"""Training in two stages (section 3.2): first the generator alone, then, with the generator frozen, the discriminator."""

import logging
from dataclasses import replace
from typing import Any

from electra.data.shards import PreparedData
from electra.errors import UsageError
from electra.model.flops import masked_lm_step_flops
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.masking import num_masked_of
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.objectives.networks import GeneratorConfig, generator_sizes
from electra.pretraining.objectives.targets import ContrastConfig
from electra.train.checkpoint import TrainingState

log = logging.getLogger(__name__)


def generator_of(config: PretrainConfig) -> GeneratorConfig:
    """The generator of a run's last stage: after a first stage it is frozen and ties no weights."""
    if config.procedure == "joint":
        return config.generator
    return replace(config.generator, tying="none", training="frozen")


def generator_alone(config: PretrainConfig) -> PretrainConfig:
    """The configuration of the first stage: a masked language model of the generator's sizes, on the generator's input."""
    return replace(
        config,
        objective="mlm",
        procedure="joint",
        model=generator_sizes(config.model, generator_of(config)),
        generator=GeneratorConfig(),
        masking=replace(config.masking, mlm_mask=config.masking.generator_mask, mlm_random=0.0),
        contrast=ContrastConfig(),
    )


def stages(
    config: PretrainConfig, model: PretrainingModel, data: PreparedData
) -> tuple[PretrainConfig, PretrainConfig]:
    """The configurations of both stages. They share the budget so that each has as many steps.

    By the clock the shares are those of the FLOPs, which time follows in part only.
    """
    sizes = generator_alone(config).model
    length = data.manifest.seq_len
    alone = masked_lm_step_flops(sizes, length, num_masked_of(length, config.masking.fraction))
    share = 0.5 if config.steps is not None else alone / (alone + model.row_flops(length))
    if config.steps == 1:
        raise UsageError(f"--procedure {config.procedure} needs a step for each stage; --steps is 1")
    first = replace(generator_alone(budgeted(config, share)), text=(), data=str(data.path), tokenizer=None, copy=None)
    last = budgeted(config, 1 - share)
    if config.steps is not None:
        last = replace(last, steps=config.steps - (first.steps or 0))
    budgets = f"{first.recipe().budget} of the generator alone, then {last.recipe().budget} of the discriminator"
    log.info(f"two stages: {budgets} (as many steps each{', by FLOPs' * (config.hours is not None)})")
    return first, last


def budgeted(config: PretrainConfig, share: float) -> PretrainConfig:
    """The configuration with a share of its budget; length warm-up takes half of its steps."""
    return replace(
        config,
        steps=config.steps and round(config.steps * share),
        hours=config.hours and config.hours * share,
        flops=config.flops and config.flops * share,
        length_warmup=config.length_warmup.scaled(0.5),
    )


def earlier(summary: dict[str, Any]) -> TrainingState:
    """The final state of the first stage, from its summary (empty except on the main process)."""
    return TrainingState(**{name: summary[name] for name in ("step", "seconds", "tokens", "flops") if name in summary})


def sum_states(first: TrainingState, last: TrainingState) -> TrainingState:
    """Steps, time, tokens and FLOPs of both stages."""
    return replace(
        last,
        step=first.step + last.step,
        seconds=first.seconds + last.seconds,
        tokens=first.tokens + last.tokens,
        flops=first.flops + last.flops,
    )
