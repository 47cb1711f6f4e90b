"""Training in two stages (section 3.2): first a masked language model, then the objective."""

import logging
from dataclasses import replace
from typing import Any

from electra.data.shards import PreparedData
from electra.errors import UsageError
from electra.model.flops import masked_lm_step_flops
from electra.pretraining.config import PretrainConfig
from electra.pretraining.objectives.corruptions.masking import count_masked_over_run
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.objectives.networks import GeneratorConfig
from electra.pretraining.objectives.targets.corrective import CorrectiveConfig
from electra.pretraining.objectives.targets.replaced_tokens import ContrastConfig, TokenPredictionConfig
from electra.pretraining.objectives.targets.sequence_contrast import SequenceContrastConfig
from electra.pretraining.stages.procedures import PROCEDURES
from electra.train.checkpoint import TrainingState

log = logging.getLogger(__name__)


def resolve_generator(config: PretrainConfig) -> GeneratorConfig:
    """Return the generator of a run's last stage: a frozen one shares no weights."""
    if not PROCEDURES[config.procedure].freezes_generator:
        return config.generator
    return replace(config.generator, tying="none", training="frozen")


def configure_stage_one(config: PretrainConfig) -> PretrainConfig:
    """Return the configuration of stage one: a masked language model.

    It has a generator's input if it samples for stage two, else BERT's: without random tokens an encoder learns less context.
    """
    procedure, masking = PROCEDURES[config.procedure], config.masking
    assert procedure.stage_one is not None
    if procedure.freezes_generator:
        masking = replace(masking, mlm_mask=masking.generator_mask, mlm_random=0.0)
    return replace(
        config,
        objective="mlm",
        procedure="joint",
        stage_one_share=None,
        model=procedure.stage_one(config.model, resolve_generator(config)),
        generator=GeneratorConfig(),
        masking=masking,
        contrast=ContrastConfig(),
        token_prediction=TokenPredictionConfig(),
        sequence_contrast=SequenceContrastConfig(),
        corrective=CorrectiveConfig(),
    )


def configure_stages(
    config: PretrainConfig, model: PretrainingModel, data: PreparedData
) -> tuple[PretrainConfig, PretrainConfig]:
    """Return the configurations of both stages, which divide the budget by `stage_one_share`, or into equally many steps.

    Each stage has a learning rate schedule of its own, and values that change do so from beginning to end in each. For equally
    many steps a budget in hours is divided by FLOPs, which determine the time only in part.

    Raises:
        UsageError: too few steps for two stages.
    """
    sizes = configure_stage_one(config).model
    length = data.manifest.seq_len
    numbers = count_masked_over_run(length, config.masking)
    stage_one_flops = sum(masked_lm_step_flops(sizes, length, number) * part for number, part in numbers.items())
    steps_share = config.stage_one_share or 0.5
    share = steps_share
    if config.stage_one_share is None and config.steps is None:
        share = stage_one_flops / (stage_one_flops + model.mean_row_flops(length))
    if config.steps is not None and not 0 < round(config.steps * share) < config.steps:
        raise UsageError(
            "too-few-steps",
            f"--procedure {config.procedure} needs a step for each stage; --steps is {config.steps}"
            + f" and --stage-one-share {config.stage_one_share}" * (config.stage_one_share is not None),
        )
    first = scale_budget(config, share, steps_share)
    first = replace(configure_stage_one(first), text=(), data=str(data.path), tokenizer=None, copy=None)
    last = scale_budget(config, 1 - share, 1 - steps_share)
    if config.steps is not None:
        last = replace(last, steps=config.steps - (first.steps or 0))
    how = "equal steps" + ", estimated by FLOPs" * (config.hours is not None)
    log.info(
        f"two stages: {first.recipe().budget} of a masked language model, then {last.recipe().budget} of --objective "
        f"{config.objective} ({how if config.stage_one_share is None else f'--stage-one-share {config.stage_one_share}'})",
        extra={"code": "two-stages"},
    )
    return first, last


def scale_budget(config: PretrainConfig, share: float, warmup_share: float) -> PretrainConfig:
    """Return the configuration with a share of its budget, and of the steps of its warm-ups."""
    return replace(
        config,
        steps=config.steps and round(config.steps * share),
        hours=config.hours and config.hours * share,
        flops=config.flops and config.flops * share,
        length_warmup=config.length_warmup.scale(warmup_share),
        batch_warmup=config.batch_warmup.scale(warmup_share),
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
