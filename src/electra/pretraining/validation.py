"""Checks of options against the tables and against each other. Messages name the conflict and a valid alternative."""

from collections.abc import Collection, Iterable

from electra.errors import UsageError
from electra.model.encoder import EncoderConfig
from electra.pretraining.objectives.generators import GENERATOR_TRAINING
from electra.pretraining.objectives.masking import MaskingConfig
from electra.pretraining.objectives.masking_strategies import MASKING
from electra.pretraining.objectives.networks import GeneratorConfig, generator_sizes
from electra.pretraining.objectives.spec import GENERATORS, OBJECTIVES
from electra.pretraining.objectives.targets import ContrastConfig


def check_choice(option: str, value: str, choices: Collection[str]) -> None:
    """Raise a `UsageError` if `value` is not one of `choices`, which are the keys of a table."""
    if value not in choices:
        raise UsageError(f"{option} is {value!r}; it must be one of {', '.join(choices)}")


def refuse(clashes: Iterable[tuple[bool, str]]) -> None:
    """Raise a `UsageError` with the message of the first condition that is true."""
    for clash, message in clashes:
        if clash:
            raise UsageError(message)


def other_sizes(generator: GeneratorConfig) -> tuple[str, str]:
    """The options that make a generator of another size than the discriminator, and those that would not; empty if none do."""
    others = [name for name in ("size", "depth", "heads", "ffn") if getattr(generator, name) not in (None, 1.0)]
    return (
        " and ".join(f"generator.{name} {getattr(generator, name):g}" for name in others),
        " ".join(f"--generator.{name} 1" for name in others),
    )


def check_generator(objective: str, main: EncoderConfig, generator: GeneratorConfig) -> None:
    """Raise a `UsageError` for options of the generator that exclude each other, if the objective has a generator."""
    check_choice("generator.kind", generator.kind, (*GENERATORS, "none"))
    check_choice("generator.training", generator.training, GENERATOR_TRAINING)
    if not OBJECTIVES[objective].has_generator:
        return
    kind, tying, training = generator.kind, generator.tying, generator.training
    is_network = kind == "masked-lm"
    sizes, same_sizes = other_sizes(generator)
    refuse(
        [
            (
                kind == "none",
                f"--objective {objective} needs a generator, and generator.kind is none: it can be masked-lm, unigram or "
                "uniform; or take --objective mlm",
            ),
            (
                tying == "all" and not is_network,
                f"generator.tying all is for a network, and generator.kind is {kind}; leave one of them out",
            ),
            (
                tying == "all" and sizes != "",
                f"generator.tying all shares the whole encoder, and {sizes} would make it another than the discriminator's; "
                f"take {same_sizes}, or --generator.tying embeddings",
            ),
            (
                tying == "all" and generator.initializer_range is not None,
                "generator.tying all shares the whole encoder, and generator.initializer_range would be another; "
                "leave one of them out",
            ),
            (
                training != "mle" and not is_network,
                f"generator.training {training} is for a network, and generator.kind is {kind}; leave one of them out",
            ),
            (
                training == "frozen" and tying != "none",
                f"generator.training frozen keeps the generator as it is, and generator.tying {tying} lets the discriminator "
                "change it; take --generator.tying none",
            ),
        ]
    )
    if is_network:
        generator_sizes(main, generator)  # raises a UsageError for impossible sizes


def check_task(
    objective: str, generator: GeneratorConfig, masking: MaskingConfig, contrast: ContrastConfig, copies: bool
) -> None:
    """Raise a `UsageError` for options that the objective, or a strategy of masking, excludes."""
    check_choice("masking.strategy", masking.strategy, MASKING)
    row = OBJECTIVES[objective]
    discriminates, has_generator = row.discriminates, row.has_generator
    scored = "classifies tokens as replaced or original" if discriminates else "predicts the masked tokens alone"
    refuse(
        [
            (
                generator.training == "adversarial" and not discriminates,
                f"generator.training adversarial needs a discriminator, and --objective {objective} has none; "
                "take --objective electra",
            ),
            (
                copies and row.target != "every-token",
                f"--copy is for predictions of every token, and --objective {objective} {scored}; "
                "take --objective all-tokens-mlm",
            ),
            (
                contrast.weight > 0 and not discriminates,
                f"contrast.weight adds a task to a discriminator, and --objective {objective} has none; "
                "take --objective electra",
            ),
            (
                masking.strategy == "hard" and has_generator and generator.kind != "masked-lm",
                f"masking.strategy hard is trained on the losses of a masked language model, and generator.kind "
                f"{generator.kind} has none; take --generator.kind masked-lm, or --masking.strategy rare",
            ),
        ]
    )


def check_procedure(procedure: str, objective: str, generator: GeneratorConfig, init: str | None) -> None:
    """Raise a `UsageError` for options that two-stage training excludes."""
    has_network = OBJECTIVES[objective].has_generator and generator.kind == "masked-lm"
    without = f"generator.kind {generator.kind}" if objective != "mlm" else f"--objective {objective}"
    sizes, same_sizes = other_sizes(generator)
    refuse(
        [
            (
                not has_network,
                f"--procedure {procedure} trains a generator first, and {without} has none to train; "
                "take --procedure joint",
            ),
            (
                generator.training != "mle",
                f"--procedure {procedure} decides when the generator is trained, and generator.training is "
                f"{generator.training}; leave one of them out",
            ),
            (
                generator.tying == "all",
                f"--procedure {procedure} freezes the generator, and generator.tying all makes it the discriminator; "
                "leave one of them out",
            ),
            (
                procedure == "two-stage" and sizes != "",
                f"--procedure two-stage gives the generator's weights to the discriminator, and {sizes} would make them of "
                f"another size; take {same_sizes}, or --procedure two-stage-scratch",
            ),
            (
                init is not None,
                f"--procedure {procedure} starts the discriminator itself, and --init names other weights; "
                "leave one of them out",
            ),
        ]
    )
