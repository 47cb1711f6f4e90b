"""Checks of option values and of conflicts between options. Messages name the conflict and a valid alternative."""

from collections.abc import Iterable

from electra.config.checks import check_choice, join_choices
from electra.data.loader import BatchWarmup
from electra.errors import UsageError
from electra.model.encoder import EncoderConfig
from electra.pretraining.objectives.corruptions.generators import GENERATOR_TRAINING
from electra.pretraining.objectives.corruptions.masking import MaskingConfig
from electra.pretraining.objectives.corruptions.masking_strategies import MASKING
from electra.pretraining.objectives.networks import TYINGS, GeneratorConfig, compute_generator_sizes
from electra.pretraining.objectives.progress import FINAL, list_changing
from electra.pretraining.objectives.spec import CORRUPTIONS, GENERATORS, OBJECTIVES, TARGETS, has_generator_network
from electra.pretraining.objectives.targets.corrective import CorrectiveConfig
from electra.pretraining.objectives.targets.replaced_tokens import ContrastConfig, TokenPredictionConfig
from electra.pretraining.objectives.targets.sequence_contrast import SequenceContrastConfig
from electra.pretraining.procedures import PROCEDURES
from electra.train.config import TrainingConfig
from electra.train.schedule import Amount


def raise_first_conflict(conflicts: Iterable[tuple[bool, str]]) -> None:
    """Raise a `UsageError` with the message of the first condition that is true."""
    for conflict, message in conflicts:
        if conflict:
            raise UsageError("conflicting-options", message)


def find_size_options(
    generator: GeneratorConfig, names: Iterable[str] = ("size", "depth", "heads", "ffn")
) -> tuple[str, str]:
    """Return the options, of `names`, that make generator and discriminator differ in size, and the options to use instead.

    Both are empty if the sizes are equal.
    """
    others = [name for name in names if getattr(generator, name) not in (None, 1.0)]
    return (
        " and ".join(f"generator.{name} {getattr(generator, name):g}" for name in others),
        " ".join(f"--generator.{name} 1" for name in others),
    )


def check_generator(objective: str, main: EncoderConfig, generator: GeneratorConfig) -> None:
    """Raise a `UsageError` for conflicting generator options, if the objective has a generator."""
    check_choice("generator.kind", generator.kind, (*GENERATORS, "none"))
    check_choice("generator.training", generator.training, GENERATOR_TRAINING)
    check_choice("generator.tying", generator.tying, TYINGS)
    if not OBJECTIVES[objective].has_generator:
        return
    kind, tying, training = generator.kind, generator.tying, generator.training
    is_network = has_generator_network(objective, generator)
    row = TYINGS[tying]
    shares_layers = bool(row.equal)
    sizes, same_sizes = find_size_options(generator, row.equal)
    raise_first_conflict(
        [
            (
                kind == "none",
                f"--objective {objective} needs a generator, and generator.kind is none; set it to "
                f"{join_choices(GENERATORS)}, or use --objective mlm",
            ),
            (
                shares_layers and not is_network,
                f"generator.tying {tying} needs a network, and generator.kind is {kind}; leave one of them out",
            ),
            (
                sizes != "",
                f"generator.tying {tying} shares layers of the encoder, and {sizes} makes its size differ from the "
                f"discriminator's; use {same_sizes}, or --generator.tying embeddings",
            ),
            (
                shares_layers and generator.depth > 1,
                f"generator.tying {tying} shares layers of the encoder, and generator.depth {generator.depth:g} needs "
                "more than it has; use --generator.depth 1 or less",
            ),
            (
                shares_layers and generator.initializer_range is not None,
                f"generator.tying {tying} shares layers of the encoder, and generator.initializer_range initializes the "
                "generator's own; leave one of them out",
            ),
            (
                training != "mle" and not is_network,
                f"generator.training {training} needs a network, and generator.kind is {kind}; leave one of them out",
            ),
            (
                is_network and training not in (GENERATORS[kind].training or GENERATOR_TRAINING),
                f"generator.kind {kind} is trained by maximum likelihood only, and generator.training is {training}; "
                "leave one of them out",
            ),
            (
                training == "adversarial" and generator.mixes_frequencies,
                "generator.training adversarial rewards the generator's own samples, and generator.frequency_share replaces "
                "some of them; leave one of them out",
            ),
            (
                training == "frozen" and row.trains_generator,
                f"generator.training frozen keeps the generator's weights fixed, and generator.tying {tying} shares them with "
                "the discriminator, which is trained; use --generator.tying none",
            ),
        ]
    )
    if is_network:
        GENERATORS[kind].check(compute_generator_sizes(main, generator), generator)


def check_changing_values(
    masking: MaskingConfig, generator: GeneratorConfig, training: TrainingConfig, stem: str | None
) -> None:
    """Raise a `UsageError` for options that change over training, where their values have to be known before it."""
    configs = {"masking": masking, "generator": generator}
    changing = [f"{section}.{FINAL}{name}" for section, each in configs.items() for name in list_changing(each)]
    raise_first_conflict(
        [
            (
                training.graphs and changing != [],
                f"--training.graphs records shapes and values of an update, and {' and '.join(changing)} changes them; "
                "leave one of them out",
            ),
            (
                training.compile and generator.final_temperature is not None,
                "--training.compile compiles the sampling for one temperature, and generator.final_temperature changes it; "
                "leave one of them out",
            ),
            (
                stem is not None and changing != [],
                f"--stem continues updates that are the same for every budget, and {' and '.join(changing)} changes them with "
                "the share of the budget; leave one of them out",
            ),
        ]
    )


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


def check_procedure(procedure: str, objective: str, generator: GeneratorConfig, init: str | None) -> None:
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
                bool(TYINGS[generator.tying].equal),
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


def check_batch_warmup(warmup: BatchWarmup, batch_size: int) -> None:
    """Raise a `UsageError` if batches cannot grow to the full batch size."""
    if warmup.steps and (warmup.batch_size >= batch_size or batch_size % warmup.batch_size):
        raise UsageError(
            "no-batch-warmup",
            f"batch_warmup.batch_size {warmup.batch_size} is no smaller divisor of --training.batch-size {batch_size}; "
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
