"""What an objective is, and registries of its parts.

An objective is a corruption x a target x the positions where it is scored x a weight; `catalog` has the table. A new
corruption or target is a module and a row of `CORRUPTIONS` or `TARGETS`. Code outside this package adds rows to the same
dicts. A row has what is needed before the module exists: checks of options read it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Int64
from torch import Tensor

from electra.model.encoder import EncoderConfig
from electra.pretraining.objectives.corruptions.corruption import (
    Corruption,
    FrequencySamples,
    MaskTokens,
    compute_frequencies,
)
from electra.pretraining.objectives.corruptions.generators import GENERATOR_TRAINING, GeneratorSamples, SampleSettings
from electra.pretraining.objectives.corruptions.layer_mixture import LayerMixtureSamples, resolve_mixture_layers
from electra.pretraining.objectives.corruptions.masking import MaskedPositions, MaskingConfig
from electra.pretraining.objectives.corruptions.noise import NOISE_TRAINING, FrequencyNoise
from electra.pretraining.objectives.metrics import (
    COMMON_METRICS,
    Metric,
)
from electra.pretraining.objectives.networks import Discriminator, GeneratorConfig, MaskedLM
from electra.pretraining.objectives.targets.all_tokens import AllTokensPrediction
from electra.pretraining.objectives.targets.corrective import CorrectiveConfig, CorrectiveLanguageModeling
from electra.pretraining.objectives.targets.energy import EnergyEstimation
from electra.pretraining.objectives.targets.masked_tokens import MaskedTokenPrediction
from electra.pretraining.objectives.targets.replaced_tokens import (
    ContrastConfig,
    ReplacedTokenDetection,
    TokenPredictionConfig,
)
from electra.pretraining.objectives.targets.sequence_contrast import SequenceContrastConfig
from electra.pretraining.objectives.targets.target import Target
from electra.pretraining.objectives.tying import build_generator
from electra.text.coverage import MAX_UNKNOWN


@dataclass(frozen=True)
class Objective:
    """One pre-training task."""

    corruption: str
    """Input at the masked positions: a key of `CORRUPTIONS`."""
    target: str
    """Prediction from the corrupted text: a key of `TARGETS`."""
    scored: str
    """Positions of the target's loss: a key of `SCORED_AT`."""
    weight: float
    """Weight of the target's loss in the total (section 2: lambda); `loss_weight` replaces it if there is a generator."""
    description: str
    """Short description for the log."""
    metrics: Mapping[str, Metric]
    """All metrics that its corruption and target compute, losses included, in the order of the report."""

    @property
    def has_generator(self) -> bool:
        """Whether the generator's options apply."""
        return CORRUPTIONS[self.corruption].has_generator

    @property
    def discriminates(self) -> bool:
        """Whether it detects replaced tokens, so that the metrics of a discriminator apply."""
        return TARGETS[self.target].module.detects_replacements

    @property
    def all_metrics(self) -> dict[str, Metric]:
        """The metrics common to all objectives, then its own."""
        return COMMON_METRICS | dict(self.metrics)

    def check_listed(self, names: Iterable[str]) -> None:
        """Raise a `ValueError` if a metric is not in `all_metrics`, because reports would not have it."""
        if unlisted := [name for name in names if name not in self.all_metrics]:
            raise ValueError(f"Objective.metrics ({self.description}) does not list {', '.join(unlisted)}")


SCORED_AT: dict[str, Callable[[MaskedPositions, Callable[[], MaskedPositions]], MaskedPositions | None]] = {
    "tokens": lambda masked, sample_others: None,
    "masked": lambda masked, sample_others: masked,
    # Sampled independently of the masked positions: at unmasked positions only (footnote 7 allows this interpretation) all
    # tokens would be original.
    "others": lambda masked, sample_others: sample_others(),
}
"""Positions of a target's loss by name: None for all tokens, else as many as are masked."""


@dataclass(frozen=True)
class Vocabulary:
    """The token ids that objectives use."""

    size: int
    mask_id: int
    special_ids: tuple[int, ...]
    """Never masked: [PAD], [CLS], [SEP], [MASK]."""
    unk_id: int | None = None
    """[UNK], if there is one."""
    continuation_ids: tuple[int, ...] = ()
    """Tokens that continue the word of the previous token."""


@dataclass(frozen=True)
class ObjectiveSpec:
    """The specification of an objective: all that is needed to build it."""

    objective: Objective
    main: EncoderConfig
    """Sizes of the discriminator or main encoder."""
    generator: GeneratorConfig
    masking: MaskingConfig
    vocabulary: Vocabulary
    unigrams: Int64[Tensor, " V"]
    """Counts of the tokens in the corpus."""
    contrast: ContrastConfig
    copies: bool
    """Whether a target with a copy mechanism uses it."""
    token_prediction: TokenPredictionConfig = field(default_factory=TokenPredictionConfig)
    sequence_contrast: SequenceContrastConfig = field(default_factory=SequenceContrastConfig)
    corrective: CorrectiveConfig = field(default_factory=CorrectiveConfig)

    @property
    def frequent_unk(self) -> int | None:
        """The id of [UNK] if it is so frequent that accuracies without it are reported too, else None."""
        unk = self.vocabulary.unk_id
        return unk if unk is not None and self.unigrams[unk] > MAX_UNKNOWN * self.unigrams.sum() else None


Main = MaskedLM | Discriminator


@dataclass(frozen=True)
class CorruptionKind:
    """A row of `CORRUPTIONS`."""

    build: Callable[[ObjectiveSpec, Main], Corruption]
    """Build the module; the main network is given for weights to share."""
    has_generator: bool = False
    """Whether it samples from a row of `GENERATORS`, so that the options `generator` and `loss_weight` apply."""
    uses: frozenset[str] = frozenset()
    """Options of `MaskingConfig` that only some corruptions read."""
    writes_masks: bool = False
    """Whether the main network reads [MASK], so that it can fill masks afterwards."""
    is_noise: bool = False
    """Whether the probabilities of its samples are needed, as noise-contrastive estimation does."""


@dataclass(frozen=True)
class GeneratorKind:
    """A row of `GENERATORS`."""

    build: Callable[[ObjectiveSpec, Main], Corruption]
    is_network: bool = False
    """Whether it is a `MaskedLM` with the sizes of `GeneratorConfig`, whose options all apply."""
    uses: frozenset[str] = frozenset()
    """Options of `GeneratorConfig` that it reads, if it is not a network; a network reads all, and these it alone."""
    training: frozenset[str] | None = None
    """Values of `GeneratorConfig.training` that it can have; None: all."""
    check: Callable[[EncoderConfig, GeneratorConfig], object] = lambda sizes, config: None
    """Raises a `UsageError` for options that a network of these sizes cannot have."""
    is_mixture: bool = False
    """Whether its samples are of another distribution than the predictions of the network that is saved."""


@dataclass(frozen=True)
class TargetKind:
    """A row of `TARGETS`."""

    module: type[Target]
    build: Callable[[ObjectiveSpec], Target]


def build_masked_lm_generator(
    spec: ObjectiveSpec, main: Main, training: Mapping[str, type[GeneratorSamples]] = GENERATOR_TRAINING
) -> Corruption:
    """Build a masked language model that is trained as `GeneratorConfig.training`, a key of `training`, specifies."""
    generator = build_generator(spec.main, spec.generator, main.encoder)
    return training[spec.generator.training](generator, build_sample_settings(spec))


def build_layer_mixture(spec: ObjectiveSpec, main: Main) -> Corruption:
    """Build a generator whose samples are predictions from several layers of one masked language model."""
    generator = build_generator(spec.main, spec.generator, main.encoder)
    layers = resolve_mixture_layers(generator.config, spec.generator)
    return LayerMixtureSamples(generator, build_sample_settings(spec), layers)


def build_sample_settings(spec: ObjectiveSpec) -> SampleSettings:
    """Collect what a generator that is a network needs to sample."""
    frequencies = None
    if spec.generator.mixes_frequencies:
        frequencies = compute_frequencies(spec.unigrams, spec.vocabulary.special_ids)
    return SampleSettings(spec.generator, spec.masking, spec.vocabulary.mask_id, spec.frequent_unk, frequencies)


def build_frequency_generator(spec: ObjectiveSpec, counts: Int64[Tensor, " V"]) -> Corruption:
    """Build a generator that samples tokens in proportion to `counts`."""
    return FrequencySamples(compute_frequencies(counts, spec.vocabulary.special_ids), spec.generator, spec.masking)


GENERATORS: dict[str, GeneratorKind] = {
    "masked-lm": GeneratorKind(build_masked_lm_generator, is_network=True),
    "layer-mixture": GeneratorKind(
        build_layer_mixture,
        is_network=True,
        uses=frozenset({"mixture_layers"}),
        training=frozenset({"mle"}),
        check=resolve_mixture_layers,
        is_mixture=True,
    ),
    "unigram": GeneratorKind(
        lambda spec, main: build_frequency_generator(spec, spec.unigrams),
        uses=frozenset({"temperature", "exclude_original_token"}),
    ),
    # Uniform samples stay uniform at any temperature.
    "uniform": GeneratorKind(
        lambda spec, main: build_frequency_generator(spec, torch.ones_like(spec.unigrams)),
        uses=frozenset({"exclude_original_token"}),
    ),
}
"""By `GeneratorConfig.kind`."""

CORRUPTIONS: dict[str, CorruptionKind] = {
    "generator": CorruptionKind(
        lambda spec, main: GENERATORS[spec.generator.kind].build(spec, main),
        has_generator=True,
        uses=frozenset({"generator_mask"}),
    ),
    "masks": CorruptionKind(
        lambda spec, main: MaskTokens(spec.masking, spec.vocabulary.mask_id, spec.vocabulary.size),
        uses=frozenset({"mlm_mask", "mlm_random"}),
        writes_masks=True,
    ),
    "generator-noise": CorruptionKind(
        lambda spec, main: build_masked_lm_generator(spec, main, NOISE_TRAINING), has_generator=True, is_noise=True
    ),
    "unigram-noise": CorruptionKind(
        lambda spec, main: FrequencyNoise(spec.unigrams, spec.vocabulary.special_ids, spec.masking), is_noise=True
    ),
}
TARGETS: dict[str, TargetKind] = {
    "replaced": TargetKind(
        ReplacedTokenDetection,
        lambda spec: ReplacedTokenDetection(
            Discriminator(spec.main),
            spec.vocabulary.mask_id,
            spec.contrast,
            spec.token_prediction,
            spec.sequence_contrast,
        ),
    ),
    "token": TargetKind(
        MaskedTokenPrediction, lambda spec: MaskedTokenPrediction(MaskedLM(spec.main), spec.frequent_unk)
    ),
    "every-token": TargetKind(AllTokensPrediction, lambda spec: AllTokensPrediction(MaskedLM(spec.main), spec.copies)),
    "corrected": TargetKind(
        CorrectiveLanguageModeling,
        lambda spec: CorrectiveLanguageModeling(
            Discriminator(spec.main),
            spec.vocabulary.mask_id,
            spec.contrast,
            spec.sequence_contrast,
            spec.corrective,
            spec.copies,
        ),
    ),
    "energy": TargetKind(
        EnergyEstimation,
        lambda spec: EnergyEstimation(Discriminator(spec.main), spec.objective.scored == "tokens"),
    ),
}


def list_main_directories() -> list[str]:
    """List the names that the directory of a discriminator or main encoder can have in a run."""
    return list(dict.fromkeys(kind.module.directory for kind in TARGETS.values()))
