"""The objectives of the paper as one table, and the module that computes any of them.

An objective is what stands at the chosen positions x what the main network must say x where it is scored. A new one is
a row below, and a few lines in `corruption` or `prediction` if it brings a new choice.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from electra.data.loader import Batch
from electra.model.encoder import EncoderConfig, initialize
from electra.model.flops import Cost
from electra.pretraining.objectives.corruption import (
    Corrupted,
    FrequencySamples,
    GeneratorLoss,
    Masks,
    frequencies,
    ratio,
)
from electra.pretraining.objectives.generators import LEARNING, GeneratorSamples
from electra.pretraining.objectives.masking import (
    MaskedPositions,
    MaskingConfig,
    choose_positions,
    num_chosen,
    num_chosen_of,
    ordinary_tokens,
)
from electra.pretraining.objectives.masking_strategies import STRATEGIES
from electra.pretraining.objectives.networks import Discriminator, GeneratorConfig, MaskedLM, build_generator
from electra.pretraining.objectives.targets import (
    AllTokensPrediction,
    ContrastConfig,
    MaskedTokenPrediction,
    Prediction,
    ReplacedTokenDetection,
)
from electra.seeding import Draw
from electra.text.coverage import MAX_UNKNOWN


@dataclass(frozen=True)
class Objective:
    """One pre-training task."""

    corruption: Literal["generator", "masks"]
    """What stands at the chosen positions."""
    prediction: Literal["replaced", "token", "every-token"]
    """What the main network must say."""
    scored: Literal["tokens", "masked", "others"]
    """Where it is scored: at all tokens, at the chosen ones, or at as many that are drawn apart."""
    weight: float
    """Weight of its loss beside the generator's (section 2: lambda)."""
    description: str
    """For people."""


OBJECTIVES: dict[str, Objective] = {
    "electra": Objective("generator", "replaced", "tokens", 50.0, "replaced token detection"),
    "electra-15": Objective(
        "generator", "replaced", "masked", 50.0, "replaced token detection, where tokens were chosen"
    ),
    "electra-other-15": Objective(
        "generator", "replaced", "others", 50.0, "replaced token detection, at tokens drawn apart"
    ),
    "replace-mlm": Objective("generator", "token", "masked", 1.0, "masked language modeling without [MASK]"),
    "all-tokens-mlm": Objective("generator", "every-token", "tokens", 1.0, "every token's original"),
    "mlm": Objective("masks", "token", "masked", 1.0, "BERT's masked language modeling"),
}


@dataclass(frozen=True)
class Vocabulary:
    """The ids that objectives need to know."""

    size: int
    mask_id: int
    special_ids: tuple[int, ...]
    """Never chosen: [PAD], [CLS], [SEP], [MASK]."""
    unk_id: int | None = None
    """[UNK], if there is one."""


@dataclass(frozen=True)
class ObjectiveSpec:
    """All that an objective is built from."""

    objective: Objective
    main: EncoderConfig
    generator: GeneratorConfig
    masking: MaskingConfig
    vocabulary: Vocabulary
    unigrams: Int64[Tensor, " V"]
    """Counts of the tokens in the corpus."""
    contrast: ContrastConfig
    copies: bool
    """Whether a prediction of every token has the copy mechanism."""

    @property
    def frequent_unk(self) -> int | None:
        """The id of [UNK] if the corpus has so many that accuracies are measured without them too, else None."""
        unk = self.vocabulary.unk_id
        return unk if unk is not None and self.unigrams[unk] > MAX_UNKNOWN * self.unigrams.sum() else None


Main = MaskedLM | Discriminator


def frequency_samples(setting: ObjectiveSpec) -> FrequencySamples:
    """Draws from the corpus frequencies of the tokens, or from any token that is not special alike."""
    counts = setting.unigrams if setting.generator.kind == "unigram" else torch.ones_like(setting.unigrams)
    probabilities = frequencies(counts, setting.vocabulary.special_ids)
    return FrequencySamples(probabilities, setting.generator, setting.masking)


def generator_samples(setting: ObjectiveSpec, main: Main) -> GeneratorSamples | FrequencySamples:
    """What the configuration calls a generator."""
    if setting.generator.kind != "masked-lm":
        return frequency_samples(setting)
    generator = build_generator(setting.main, setting.generator, main.encoder)
    samples = LEARNING[setting.generator.learning]
    return samples(generator, setting.generator, setting.masking, setting.vocabulary.mask_id, setting.frequent_unk)


CORRUPTIONS: dict[str, Callable[[ObjectiveSpec, Main], GeneratorSamples | FrequencySamples | Masks]] = {
    "generator": generator_samples,
    "masks": lambda setting, main: Masks(setting.masking, setting.vocabulary.mask_id, setting.vocabulary.size),
}
PREDICTIONS: dict[
    str, Callable[[ObjectiveSpec], ReplacedTokenDetection | MaskedTokenPrediction | AllTokensPrediction]
] = {
    "replaced": lambda setting: ReplacedTokenDetection(Discriminator(setting.main), setting.contrast),
    "token": lambda setting: MaskedTokenPrediction(MaskedLM(setting.main), setting.frequent_unk),
    "every-token": lambda setting: AllTokensPrediction(MaskedLM(setting.main), setting.copies),
}


class ForwardOutput(NamedTuple):
    """A batch after all networks."""

    chosen: MaskedPositions
    corrupted: Corrupted
    predicted: Prediction
    learnt: GeneratorLoss
    """What the generator learns from."""
    strategy_loss: Float[Tensor, "B K"] | None
    """What the choice of positions learns from."""


class PretrainingModel(nn.Module):
    """An objective with its networks: the one thing to wrap, train and save. Its initial values are drawn here."""

    def __init__(self, setting: ObjectiveSpec) -> None:
        super().__init__()
        self.setting = setting
        self.prediction = PREDICTIONS[setting.objective.prediction](setting)
        self.corruption = CORRUPTIONS[setting.objective.corruption](setting, self.prediction.network)
        self.strategy = STRATEGIES[setting.masking.strategy](
            setting.masking, setting.main.embedding_size, setting.unigrams
        )
        initialize(self, setting.main.initializer_range, setting.main.embedding_initializer_range)
        if self.generator is not None and setting.generator.initializer_range is not None:
            for own in (self.generator.encoder.layers, self.generator.head):
                initialize(own, setting.generator.initializer_range)

    @property
    def generator(self) -> MaskedLM | None:
        """The generator, where the objective has one that is a network."""
        return self.corruption.generator if isinstance(self.corruption, GeneratorSamples) else None

    @property
    def discriminates(self) -> bool:
        """Whether the main network tells replaced tokens."""
        return isinstance(self.prediction, ReplacedTokenDetection)

    @property
    def scored_everywhere(self) -> bool:
        """Whether the main network is scored at all tokens."""
        return self.setting.objective.scored == "tokens"

    def summary(self) -> str:
        """Its size in a few words."""
        main = self.setting.main
        parts = [
            f"{sum(p.numel() for p in self.parameters()) / 1e6:.2f} M parameters",
            f"{main.num_layers} layers of {main.hidden_size}",
        ]
        if self.generator is not None:
            sizes = self.generator.config
            parts.append(f"generator of {sizes.num_layers} layers of {sizes.hidden_size}")
        elif self.setting.objective.corruption == "generator":
            parts.append(f"{self.setting.generator.kind} generator")
        return ", ".join(parts)

    def run(self, batch: Batch) -> ForwardOutput:
        """Choose positions, corrupt them, and let the main network speak."""
        masking, objective = self.setting.masking, self.setting.objective
        candidates = ordinary_tokens(batch.input_ids, self.setting.vocabulary.special_ids)
        word = self.prediction.network.encoder.embeddings.word
        weights = self.strategy(batch.input_ids, word) if self.training else None  # held-out scores: all tokens alike
        number = num_chosen(batch.lengths, masking.fraction)
        weights_alone = None if weights is None else weights.detach()
        chosen = choose_positions(candidates, number, masking, batch.row_keys, weights_alone)
        corrupted = self.corruption(batch, chosen)
        if self.setting.contrast.weight and self.training:
            corrupted = corrupted.but_unchanged(batch, self.setting.contrast.unchanged)
        at = None if objective.scored == "tokens" else chosen
        if objective.scored == "others":
            # Drawn apart, whether masked or not: beside the masked ones alone (so footnote 7 can be read) all are original.
            at = choose_positions(candidates, number, masking, batch.row_keys, draw=Draw.OTHER_POSITIONS)
        predicted = self.prediction(batch, corrupted, at)
        learnt = self.corruption.learn(batch, chosen, corrupted, predicted.scores)
        # How hard the chosen tokens were: the generator knows, or the main network if it predicts them itself.
        nll = corrupted.generated.nll if corrupted.generated else predicted.loss
        return ForwardOutput(chosen, corrupted, predicted, learnt, self.strategy.loss(weights, chosen, nll))

    def forward(self, batch: Batch, counts: Mapping[str, float | Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """A micro-batch's share of the loss of a global batch with `counts` tokens, and sums for `metrics`."""
        done = self.run(batch)
        objective = self.setting.objective
        loss = objective.weight * done.predicted.loss.sum() / counts[objective.scored]
        if done.learnt.loss is not None:
            loss = loss + done.learnt.loss.sum() / counts["masked"]
        if done.predicted.sentence_loss is not None:
            loss = loss + self.setting.contrast.weight * done.predicted.sentence_loss.sum() / counts["sequences"]
        if done.strategy_loss is not None:
            loss = loss + done.strategy_loss.sum() / counts["masked"]
        return loss, self.sums(batch, done)

    def sums(self, batch: Batch, done: ForwardOutput) -> dict[str, Tensor]:
        """Everything that `metrics` is made from, for one batch."""
        sums = self.counted(batch) | done.corrupted.sums | done.predicted.sums | done.learnt.sums
        if done.strategy_loss is not None:
            sums["strategy_loss"] = done.strategy_loss.sum()
        return {name: t.detach() for name, t in sums.items()}

    def counted(self, batch: Batch) -> dict[str, Tensor]:
        """What losses are means over, from the lengths alone and on their device; padding is not counted."""
        fraction = self.setting.masking.fraction
        return {
            "sequences": torch.ones_like(batch.lengths).sum(),
            "tokens": batch.lengths.sum(),
            "masked": (masked := num_chosen(batch.lengths, fraction).sum()),
            "others": masked,
        }

    def counts(self, batch: Batch) -> dict[str, float]:
        """`counted` as numbers, from a batch on the host."""
        return {name: float(count) for name, count in self.counted(batch).items()}

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """Losses, accuracies and the rest, from sums over any number of batches."""
        corruption = self.corruption.metrics(sums)
        prediction = self.prediction.metrics(sums, sums[self.setting.objective.scored])
        own = next(iter(prediction.values()))  # the loss stands first
        loss = self.setting.objective.weight * own + self.corruption.learnt(corruption)
        loss += self.setting.contrast.weight * prediction.get("sentence_loss", 0.0)
        metrics = {**corruption, **prediction}
        if self.setting.objective.weight != 1:
            metrics["weighted_loss"] = self.setting.objective.weight * own
        if "strategy_loss" in sums:
            metrics["strategy_loss"] = ratio(sums["strategy_loss"], sums["masked"])
            loss += metrics["strategy_loss"]
        return {"loss": loss, **metrics}

    def flops(self, batch: Batch) -> float:
        """Forward and backward of a batch on the host, counted as in Appendix E: of rows as long as the longest."""
        return float(len(batch.lengths) * self.row_flops(int(batch.lengths.max())))

    def row_flops(self, length: int) -> int:
        """Forward and backward of one row, counted as in Appendix E."""
        return sum(cost.flops for cost in self.row_costs(length).values())

    def row_costs(self, length: int) -> dict[str, Cost]:
        """The same, network by network."""
        predictions = num_chosen_of(length, self.setting.masking.fraction)
        costs = {
            "generator": self.corruption.cost(length, predictions),
            "main network": self.prediction.cost(length, predictions),
            "strategy": self.strategy.cost(length),
            "strategy's look-up": self.strategy.look_up_cost(self.setting.main, length),
        }
        return {network: cost for network, cost in costs.items() if cost.forward}

    def utilized_share(self, length: int) -> float:
        """Operations of the machine for each one of Appendix E's, in rows of `length`.

        A last layer that works at the chosen positions only is counted whole, so this is slightly too much.
        """
        return sum(cost.utilized for cost in self.row_costs(length).values()) / self.row_flops(length)
