"""Two-stage training (section 3.2): first the generator, then the discriminator with the generator frozen."""

import logging
from dataclasses import replace
from typing import Any

from electra.data.shards import PreparedData
from electra.errors import UsageError
from electra.model.flops import masked_lm_step_flops
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.corruptions.masking import count_masked_over_run
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.objectives.networks import GeneratorConfig, compute_generator_sizes
from electra.pretraining.objectives.targets.replaced_tokens import ContrastConfig, TokenPredictionConfig
from electra.train.checkpoint import TrainingState

log = logging.getLogger(__name__)


def resolve_generator(config: PretrainConfig) -> GeneratorConfig:
    """Return the generator of a run's last stage: after stage one it is frozen and shares no weights."""
    if config.procedure == "joint":
        return config.generator
    return replace(config.generator, tying="none", training="frozen")


def configure_stage_one(config: PretrainConfig) -> PretrainConfig:
    """Return the configuration of stage one: a masked language model with the generator's sizes and input."""
    return replace(
        config,
        objective="mlm",
        procedure="joint",
        model=compute_generator_sizes(config.model, resolve_generator(config)),
        generator=GeneratorConfig(),
        masking=replace(config.masking, mlm_mask=config.masking.generator_mask, mlm_random=0.0),
        contrast=ContrastConfig(),
        token_prediction=TokenPredictionConfig(),
    )


def configure_stages(
    config: PretrainConfig, model: PretrainingModel, data: PreparedData
) -> tuple[PretrainConfig, PretrainConfig]:
    """Return the configurations of both stages, which divide the budget so that each has as many steps.

    Each stage has a learning rate schedule of its own, and values that change do so from beginning to end in each.
    A budget in hours is divided by FLOPs, which determine the time only in part.
    """
    sizes = configure_stage_one(config).model
    length = data.manifest.seq_len
    numbers = count_masked_over_run(length, config.masking)
    alone = sum(masked_lm_step_flops(sizes, length, number) * part for number, part in numbers.items())
    share = 0.5 if config.steps is not None else alone / (alone + model.mean_row_flops(length))
    if config.steps == 1:
        raise UsageError("too-few-steps", f"--procedure {config.procedure} needs a step for each stage; --steps is 1")
    first = replace(
        configure_stage_one(scale_budget(config, share)), text=(), data=str(data.path), tokenizer=None, copy=None
    )
    last = scale_budget(config, 1 - share)
    if config.steps is not None:
        last = replace(last, steps=config.steps - (first.steps or 0))
    budgets = f"{first.recipe().budget} of the generator, then {last.recipe().budget} of the discriminator"
    log.info(
        f"two stages: {budgets} (equal steps{', estimated by FLOPs' * (config.hours is not None)})",
        extra={"code": "two-stages"},
    )
    return first, last


def scale_budget(config: PretrainConfig, share: float) -> PretrainConfig:
    """Return the configuration with a share of its budget; each stage has half of the length warm-up's steps."""
    return replace(
        config,
        steps=config.steps and round(config.steps * share),
        hours=config.hours and config.hours * share,
        flops=config.flops and config.flops * share,
        length_warmup=config.length_warmup.scale(0.5),
    )


def read_final_state(summary: dict[str, Any]) -> TrainingState:
    """Return the final state of stage one from its summary, which only the main process has."""
    return TrainingState(**{name: summary[name] for name in ("step", "seconds", "tokens", "flops") if name in summary})


def sum_states(first: TrainingState, last: TrainingState) -> TrainingState:
    """Add up steps, time, tokens and FLOPs of both stages."""
    return replace(
        last,
        step=first.step + last.step,
        seconds=first.seconds + last.seconds,
        tokens=first.tokens + last.tokens,
        flops=first.flops + last.flops,
    )
