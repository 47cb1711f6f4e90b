"""Checks of the procedure, the stem, exports and batches of a run."""

from electra.data.loader import BatchWarmup
from electra.errors import UsageError
from electra.pretraining.objectives.catalog import OBJECTIVES, has_generator_network
from electra.pretraining.objectives.networks import GeneratorConfig
from electra.pretraining.objectives.spec import GENERATORS
from electra.pretraining.objectives.tying import TYINGS
from electra.pretraining.stages.procedures import PROCEDURES
from electra.pretraining.validation.conflicts import find_size_options, raise_first_conflict
from electra.train.schedule import Amount


def check_procedure(
    procedure: str, objective: str, generator: GeneratorConfig, init: str | None, freeze: tuple[str, ...]
) -> None:
    """Raise a `UsageError` for options that conflict with training in two stages."""
    row = PROCEDURES[procedure]
    if row.stage_one is None:
        return
    sizes, same_sizes = find_size_options(generator)
    raise_first_conflict(
        [
            (
                init is not None,
                f"--procedure {procedure} sets the discriminator's initial weights, and so does --init; "
                "leave one of them out",
            ),
            (
                bool(freeze),
                f"--procedure {procedure} has two stages, whose parameters have other names, and --training.freeze names "
                "parameters; leave one of them out",
            ),
            (
                not OBJECTIVES[objective].has_generator,
                f"--procedure {procedure} trains a masked language model first, and --objective {objective} has no second "
                "stage; use --procedure joint, or --objective electra",
            ),
            (
                not row.freezes_generator and generator.training == "frozen" and sizes != "",
                f"--procedure {procedure} gives a frozen generator the weights of stage one, which has the discriminator's "
                f"size, and {sizes} makes its size differ; use {same_sizes}",
            ),
        ]
    )
    if row.freezes_generator:
        check_frozen_generator(procedure, objective, generator)


def check_initial_generator(init: str | None, given: str | None, objective: str, generator: GeneratorConfig) -> None:
    """Raise a `UsageError` for a `given` --init-generator without --init, or without a generator that is a network."""
    raise_first_conflict(
        [
            (
                given is not None and init is None,
                f"--init-generator {given} has a vocabulary and sizes for the discriminator of --init, which is missing; "
                "give both",
            ),
            (
                given is not None and not has_generator_network(objective, generator),
                f"--init-generator {given} starts a generator that is a network, and --objective {objective} with "
                f"generator.kind {generator.kind} has none; leave --init-generator out",
            ),
        ]
    )


def check_frozen_generator(procedure: str, objective: str, generator: GeneratorConfig) -> None:
    """Raise a `UsageError` for options that conflict with a procedure whose second stage freezes the generator."""
    without = f"generator.kind {generator.kind}" if OBJECTIVES[objective].has_generator else f"--objective {objective}"
    sizes, same_sizes = find_size_options(generator)
    trained_as = GENERATORS[generator.kind].training if has_generator_network(objective, generator) else None
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
                trained_as is not None and "frozen" not in trained_as,
                f"--procedure {procedure} freezes the generator, and generator.kind {generator.kind} cannot be frozen; "
                "use --generator.kind masked-lm",
            ),
            (
                bool(TYINGS[generator.tying].same_size),
                f"--procedure {procedure} freezes the generator, and generator.tying {generator.tying} shares layers with the "
                "discriminator; leave one of them out",
            ),
            (
                PROCEDURES[procedure].starts_discriminator and sizes != "",
                f"--procedure {procedure} copies the generator's weights to the discriminator, and {sizes} makes the sizes "
                f"differ; use {same_sizes}, or --procedure two-stage-scratch",
            ),
        ]
    )


def check_batch_warmup(warmup: BatchWarmup, batch_size: int, reason_for_micro_batches: str) -> None:
    """Raise a `UsageError` if batches cannot grow to the full batch size, or the loss depends on that of micro-batches."""
    raise_first_conflict(
        [
            (
                warmup.steps > 0 and reason_for_micro_batches != "",
                f"--batch-warmup.steps changes the size of micro-batches, on which the loss depends: "
                f"{reason_for_micro_batches}; leave one of them out",
            )
        ]
    )
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
