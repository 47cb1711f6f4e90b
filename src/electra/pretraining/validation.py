"""Checks of option values and of conflicts between options. Messages name the conflict and a valid alternative."""

from collections.abc import Iterable

from electra.config.checks import check_choice, join_choices
from electra.data.loader import BatchWarmup
from electra.errors import UsageError
from electra.model.encoder import EncoderConfig
from electra.pretraining.objectives.corruptions.generators import GENERATOR_TRAINING
from electra.pretraining.objectives.corruptions.masking import MaskingConfig
from electra.pretraining.objectives.corruptions.masking_strategies import MASKING
from electra.pretraining.objectives.networks import GeneratorConfig, compute_generator_sizes
from electra.pretraining.objectives.spec import GENERATORS, OBJECTIVES, TARGETS, has_generator_network
from electra.pretraining.objectives.targets.replaced_tokens import ContrastConfig, TokenPredictionConfig
from electra.train.schedule import Amount


def raise_first_conflict(conflicts: Iterable[tuple[bool, str]]) -> None:
    """Raise a `UsageError` with the message of the first condition that is true."""
    for conflict, message in conflicts:
        if conflict:
            raise UsageError("conflicting-options", message)


def find_size_options(generator: GeneratorConfig) -> tuple[str, str]:
    """Return the options that make the generator's size differ from the discriminator's, and the options to use instead.

    Both are empty if the sizes are equal.
    """
    others = [name for name in ("size", "depth", "heads", "ffn") if getattr(generator, name) not in (None, 1.0)]
    return (
        " and ".join(f"generator.{name} {getattr(generator, name):g}" for name in others),
        " ".join(f"--generator.{name} 1" for name in others),
    )


def check_generator(objective: str, main: EncoderConfig, generator: GeneratorConfig) -> None:
    """Raise a `UsageError` for conflicting generator options, if the objective has a generator."""
    check_choice("generator.kind", generator.kind, (*GENERATORS, "none"))
    check_choice("generator.training", generator.training, GENERATOR_TRAINING)
    if not OBJECTIVES[objective].has_generator:
        return
    kind, tying, training = generator.kind, generator.tying, generator.training
    is_network = has_generator_network(objective, generator)
    sizes, same_sizes = find_size_options(generator)
    raise_first_conflict(
        [
            (
                kind == "none",
                f"--objective {objective} needs a generator, and generator.kind is none; set it to "
                f"{join_choices(GENERATORS)}, or use --objective mlm",
            ),
            (
                tying == "all" and not is_network,
                f"generator.tying all needs a network, and generator.kind is {kind}; leave one of them out",
            ),
            (
                tying == "all" and sizes != "",
                f"generator.tying all shares the encoder, and {sizes} makes its size differ from the discriminator's; "
                f"use {same_sizes}, or --generator.tying embeddings",
            ),
            (
                tying == "all" and generator.initializer_range is not None,
                "generator.tying all shares the encoder, and generator.initializer_range initializes the generator's own; "
                "leave one of them out",
            ),
            (
                training != "mle" and not is_network,
                f"generator.training {training} needs a network, and generator.kind is {kind}; leave one of them out",
            ),
            (
                training == "frozen" and tying != "none",
                f"generator.training frozen keeps the generator's weights fixed, and generator.tying {tying} shares them with "
                "the discriminator, which is trained; use --generator.tying none",
            ),
        ]
    )
    if is_network:
        compute_generator_sizes(main, generator)  # raises a UsageError for impossible sizes


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


def check_procedure(procedure: str, objective: str, generator: GeneratorConfig, init: str | None) -> None:
    """Raise a `UsageError` for options that conflict with two-stage training."""
    without = f"generator.kind {generator.kind}" if OBJECTIVES[objective].has_generator else f"--objective {objective}"
    sizes, same_sizes = find_size_options(generator)
    raise_first_conflict(
        [
            (
                not has_generator_network(objective, generator),
                f"--procedure {procedure} trains a generator first, and {without} has none to train; "
                "use --procedure joint",
            ),
            (
                generator.training != "mle",
                f"--procedure {procedure} defines how the generator is trained, and generator.training is "
                f"{generator.training}; leave one of them out",
            ),
            (
                generator.tying == "all",
                f"--procedure {procedure} freezes the generator, and generator.tying all shares its encoder with the "
                "discriminator; leave one of them out",
            ),
            (
                procedure == "two-stage" and sizes != "",
                f"--procedure two-stage copies the generator's weights to the discriminator, and {sizes} makes the sizes "
                f"differ; use {same_sizes}, or --procedure two-stage-scratch",
            ),
            (
                init is not None,
                f"--procedure {procedure} sets the discriminator's initial weights, and so does --init; "
                "leave one of them out",
            ),
        ]
    )


def check_batch_warmup(warmup: BatchWarmup, batch_size: int) -> None:
    """Raise a `UsageError` if batches cannot grow to the full batch size."""
    if warmup.steps and (warmup.size >= batch_size or batch_size % warmup.size):
        raise UsageError(
            "no-batch-warmup",
            f"batch_warmup.size {warmup.size} is no smaller divisor of --training.batch-size {batch_size}; "
            "use one, or leave --batch-warmup.steps out",
        )


def check_stem_options(stem: str | None, text: tuple[str, ...], procedure: str) -> None:
    """Raise a `UsageError` for options that conflict with a run that continues from a stem."""
    raise_first_conflict(
        [
            (
                stem is not None and text != (),
                f"--stem {stem} continues with the data of that run, and so the text {' '.join(text)} would not be read; "
                "leave one of them out",
            ),
            (
                stem is not None and procedure != "joint",
                f"--stem continues a run of one stage, and --procedure {procedure} has two; leave one of them out",
            ),
        ]
    )


def check_exports(at: tuple[str, ...], every: str | None, procedure: str) -> None:
    """Raise a `UsageError` for amounts that cannot be read, and for exports of a run whose amounts are those of two stages."""
    for text in at:
        Amount.parse("--export-at", text)
    if every is not None:
        Amount.parse("--export-every", every)
    raise_first_conflict(
        [
            (
                procedure != "joint" and bool(at or every),
                f"--export-{'at' if at else 'every'} counts the training of one stage, and --procedure {procedure} has two; "
                "leave one of them out",
            )
        ]
    )
