"""Checks of options that only some objectives read."""

from electra.config.checks import check_choice
from electra.pretraining.objectives.catalog import OBJECTIVES, has_generator_network
from electra.pretraining.objectives.corruptions.masking import MaskingConfig
from electra.pretraining.objectives.corruptions.masking_strategies import MASKING
from electra.pretraining.objectives.networks import GeneratorConfig
from electra.pretraining.objectives.spec import CORRUPTIONS, GENERATORS, TARGETS
from electra.pretraining.objectives.targets.corrective import CorrectiveConfig
from electra.pretraining.objectives.targets.replaced_tokens import ContrastConfig, TokenPredictionConfig
from electra.pretraining.objectives.targets.sequence_contrast import SequenceContrastConfig
from electra.pretraining.validation.conflicts import raise_first_conflict


def check_task(
    objective: str,
    generator: GeneratorConfig,
    masking: MaskingConfig,
    contrast: ContrastConfig,
    token_prediction: TokenPredictionConfig,
    copies: bool,
) -> None:
    """Raise a `UsageError` for options that conflict with the objective or with the masking strategy."""
    check_choice("masking.strategy", masking.strategy, MASKING)
    row, strategy = OBJECTIVES[objective], masking.strategy
    has_generator, uses = row.has_generator, TARGETS[row.target].module.uses
    needs_losses = MASKING[strategy].needs_losses
    raise_first_conflict(
        [
            (
                generator.training == "adversarial" and not row.discriminates,
                f"generator.training adversarial needs a discriminator, and --objective {objective} has none; "
                "use --objective electra",
            ),
            (
                copies and "copy" not in uses,
                f"--copy needs predictions of all tokens, and --objective {objective} has none; "
                "use --objective all-tokens-mlm",
            ),
            (
                contrast.weight > 0 and "contrast" not in uses,
                f"contrast.weight has no effect on the target of --objective {objective}; use --objective electra",
            ),
            (
                token_prediction.any and "token_prediction" not in uses,
                f"token_prediction has no effect on the target of --objective {objective}; use --objective electra",
            ),
            (
                MASKING[strategy].masks_units and masking.with_replacement,
                f"masking.strategy {strategy} masks units of several tokens, which masking.with_replacement cannot sample; "
                "leave one of them out",
            ),
            (
                needs_losses and has_generator and not has_generator_network(objective, generator),
                f"masking.strategy {strategy} is trained on the losses of a masked language model, and generator.kind "
                f"{generator.kind} has none; use --generator.kind masked-lm, or --masking.strategy rare",
            ),
            (
                needs_losses and not has_generator and row.scored == "tokens",
                f"masking.strategy {strategy} is trained on the losses at the masked positions, and the loss of "
                f"--objective {objective} is at all tokens; use --masking.strategy rare",
            ),
        ]
    )


def check_coco_lm(objective: str, sequence_contrast: SequenceContrastConfig, corrective: CorrectiveConfig) -> None:
    """Raise a `UsageError` for the tasks of COCO-LM if the objective's target does not read them."""
    uses = TARGETS[OBJECTIVES[objective].target].module.uses
    raise_first_conflict(
        [
            (
                sequence_contrast.weight > 0 and "sequence_contrast" not in uses,
                f"sequence_contrast.weight has no effect on the target of --objective {objective}; use --objective electra or "
                "corrective-lm",
            ),
            (
                corrective.all_tokens and "corrective" not in uses,
                f"corrective.all_tokens has no effect on the target of --objective {objective}; use --objective corrective-lm",
            ),
        ]
    )


def check_noise(objective: str, generator: GeneratorConfig, masking: MaskingConfig) -> None:
    """Raise a `UsageError` for options with which the probabilities of noise are not known, if the objective needs them."""
    row = OBJECTIVES[objective]
    if not CORRUPTIONS[row.corruption].is_noise:
        return
    needs = f"--objective {objective} needs the probability of each sample"
    raise_first_conflict(
        [
            (
                masking.with_replacement,
                f"{needs}, and masking.with_replacement samples some positions twice; use --masking.with-replacement false",
            ),
            (
                masking.strategy != "uniform" and row.scored == "tokens",
                f"{needs} and of its position, and masking.strategy is {masking.strategy}; use --masking.strategy uniform",
            ),
            (
                row.has_generator and not has_generator_network(objective, generator),
                f"{needs} of a network, and generator.kind is {generator.kind}; use --objective electric-unigram",
            ),
            (
                row.has_generator and generator.kind in GENERATORS and GENERATORS[generator.kind].is_mixture,
                f"{needs} of one network, and generator.kind {generator.kind} mixes several; use --generator.kind masked-lm",
            ),
            (
                row.has_generator and generator.temperature != 1,
                f"{needs}, which is computed without a temperature, and generator.temperature is {generator.temperature:g}; "
                "use --generator.temperature 1",
            ),
            (
                generator.final_temperature is not None or generator.mixes_frequencies,
                f"{needs}, which is that of the network alone at temperature 1; leave generator.final_temperature and "
                "generator.frequency_share out",
            ),
            (
                row.has_generator and generator.exclude_original_token,
                f"{needs}, and with generator.exclude_original_token the original has none; leave one of them out",
            ),
        ]
    )
