"""Checks of the generator's options."""

from electra.config.checks import check_choice, join_choices
from electra.model.encoder import EncoderConfig
from electra.pretraining.objectives.catalog import OBJECTIVES, has_generator_network
from electra.pretraining.objectives.corruptions.generators import GENERATOR_TRAINING
from electra.pretraining.objectives.corruptions.masking import MaskingConfig
from electra.pretraining.objectives.corruptions.masking_strategies import MASKING
from electra.pretraining.objectives.networks import GeneratorConfig, compute_generator_sizes
from electra.pretraining.objectives.progress import FINAL, list_changing
from electra.pretraining.objectives.spec import CORRUPTIONS, GENERATORS
from electra.pretraining.objectives.tying import TYINGS
from electra.pretraining.validation.conflicts import find_size_options, raise_first_conflict
from electra.train.config import TrainingConfig


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
    shares_layers = bool(row.same_size)
    sizes, same_sizes = find_size_options(generator, row.same_size)
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


def check_samples(objective: str, generator: GeneratorConfig, masking: MaskingConfig, steps: int | None) -> None:
    """Raise a `UsageError` for options with which a generator's samples cannot be made before training."""
    if generator.samples is None or not OBJECTIVES[objective].has_generator:
        return
    raise_first_conflict(
        [
            (
                generator.training != "frozen",
                f"generator.samples are made before training, and a generator with generator.training {generator.training} "
                "changes in it; use --generator.training frozen, or leave --generator.samples out",
            ),
            (
                steps is None,
                "generator.samples are made for a number of updates, and the budget is not one; set --steps",
            ),
            (
                CORRUPTIONS[OBJECTIVES[objective].corruption].is_noise or MASKING[masking.strategy].needs_losses,
                f"--objective {objective} with masking.strategy {masking.strategy} needs the generator's probabilities, and "
                "generator.samples has tokens only; leave --generator.samples out",
            ),
        ]
    )


def check_changing_values(
    objective: str, masking: MaskingConfig, generator: GeneratorConfig, training: TrainingConfig, stem: str | None
) -> None:
    """Raise a `UsageError` for options that change over training, where their values have to be known before it."""
    is_network = has_generator_network(objective, generator)
    configs: dict[str, MaskingConfig | GeneratorConfig] = {"masking": masking}
    configs |= {"generator": generator} if is_network else {}
    changing = [f"{section}.{FINAL}{name}" for section, each in configs.items() for name in list_changing(each)]
    raise_first_conflict(
        [
            (
                training.graphs and changing != [],
                f"--training.graphs records shapes and values of an update, which change with {' and '.join(changing)}; "
                "leave one of them out",
            ),
            (
                stem is not None and changing != [],
                f"--stem continues updates that are the same for every budget, and {' and '.join(changing)} changes them with "
                "the share of the budget; leave one of them out",
            ),
        ]
    )
