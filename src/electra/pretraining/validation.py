"""Settings that exclude each other: each clash is named in one line, with what would work instead."""

from collections.abc import Iterable

from electra.errors import UsageError
from electra.model.encoder import EncoderConfig
from electra.pretraining.objectives.masking import MaskingConfig
from electra.pretraining.objectives.model import OBJECTIVES
from electra.pretraining.objectives.networks import GeneratorConfig, generator_sizes
from electra.pretraining.objectives.targets import ContrastConfig


def refuse(clashes: Iterable[tuple[bool, str]]) -> None:
    """Raise a `UsageError` with the message of the first clash that is there."""
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
    """What a generator's own settings exclude beside the main network's, where the objective has one at all."""
    if OBJECTIVES[objective].corruption != "generator":
        return
    kind, tying, learning = generator.kind, generator.tying, generator.learning
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
                learning != "likelihood" and not is_network,
                f"generator.learning {learning} is for a network, and generator.kind is {kind}; leave one of them out",
            ),
            (
                learning == "none" and tying != "none",
                f"generator.learning none keeps the generator as it is, and generator.tying {tying} lets the discriminator "
                "change it; take --generator.tying none",
            ),
        ]
    )
    if is_network:
        generator_sizes(main, generator)  # complains if they cannot be


def check_task(
    objective: str, generator: GeneratorConfig, masking: MaskingConfig, contrast: ContrastConfig, copies: bool
) -> None:
    """What an objective excludes."""
    row = OBJECTIVES[objective]
    discriminates, has_generator = row.prediction == "replaced", row.corruption == "generator"
    scored = "says of tokens only whether they were replaced" if discriminates else "predicts the masked tokens alone"
    refuse(
        [
            (
                generator.learning == "adversarial" and not discriminates,
                f"generator.learning adversarial needs a discriminator to fool, and --objective {objective} has none; "
                "take --objective electra",
            ),
            (
                copies and row.prediction != "every-token",
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
                f"masking.strategy hard learns from the losses of a masked language model, and generator.kind "
                f"{generator.kind} has none; take --generator.kind masked-lm, or --masking.strategy rare",
            ),
        ]
    )


def check_procedure(procedure: str, objective: str, generator: GeneratorConfig, init: str | None) -> None:
    """What training in two stages excludes."""
    has_network = OBJECTIVES[objective].corruption == "generator" and generator.kind == "masked-lm"
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
                generator.learning != "likelihood",
                f"--procedure {procedure} decides when the generator learns, and generator.learning is "
                f"{generator.learning}; leave one of them out",
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
