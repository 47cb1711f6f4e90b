"""The objectives of the paper as one table, and the module that computes any of them.

An objective is what stands at the chosen positions x what the main network must say x where it is scored. A new one is
a row below, and a few lines in `corruption` or `prediction` if it brings a new choice.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from electra.data.loader import Batch
from electra.model.encoder import EncoderConfig, initialise
from electra.model.flops import look_up_flops, masked_lm_step_flops, utilised
from electra.pretraining.corruption import Corrupted, GeneratorSamples, Masks
from electra.pretraining.masking import Chosen, MaskingConfig, choose_positions, num_chosen
from electra.pretraining.networks import Discriminator, GeneratorConfig, MaskedLM, generator_sizes
from electra.pretraining.prediction import Predicted, ReplacedOrOriginal, WhichToken


@dataclass(frozen=True)
class Objective:
    """One pre-training task."""

    corruption: Literal["generator", "masks"]
    """What stands at the chosen positions."""
    prediction: Literal["replaced", "token"]
    """What the main network must say."""
    scored: Literal["tokens", "masked"]
    """Where it is scored: at all tokens, or at the chosen ones."""
    weight: float
    """Weight of its loss beside the generator's (section 2: lambda)."""
    description: str
    """For people."""


OBJECTIVES: dict[str, Objective] = {
    "electra": Objective("generator", "replaced", "tokens", 50.0, "replaced token detection"),
    "mlm": Objective("masks", "token", "masked", 1.0, "BERT's masked language modelling"),
}


@dataclass(frozen=True)
class Vocabulary:
    """The ids that objectives need to know."""

    size: int
    mask_id: int
    special_ids: tuple[int, ...]
    """Never chosen: [PAD], [CLS], [SEP], [MASK]."""


@dataclass(frozen=True)
class Setting:
    """All that an objective is built from."""

    objective: Objective
    main: EncoderConfig
    generator: GeneratorConfig
    masking: MaskingConfig
    vocabulary: Vocabulary


def generator_samples(setting: Setting, main: MaskedLM | Discriminator) -> GeneratorSamples:
    """A generator that shares the main network's embeddings."""
    sizes = generator_sizes(setting.main, setting.generator)
    generator = MaskedLM(sizes, main.encoder.embeddings)
    return GeneratorSamples(generator, setting.generator.temperature, setting.masking, setting.vocabulary.mask_id)


CORRUPTIONS: dict[str, Callable[[Setting, MaskedLM | Discriminator], GeneratorSamples | Masks]] = {
    "generator": generator_samples,
    "masks": lambda setting, main: Masks(setting.masking, setting.vocabulary.mask_id, setting.vocabulary.size),
}
PREDICTIONS: dict[str, Callable[[Setting], ReplacedOrOriginal | WhichToken]] = {
    "replaced": lambda setting: ReplacedOrOriginal(Discriminator(setting.main)),
    "token": lambda setting: WhichToken(MaskedLM(setting.main)),
}


class PretrainingModel(nn.Module):
    """An objective with its networks: the one thing to wrap, train and save. Its initial values are drawn here."""

    def __init__(self, setting: Setting) -> None:
        super().__init__()
        self.setting = setting
        self.prediction = PREDICTIONS[setting.objective.prediction](setting)
        self.corruption = CORRUPTIONS[setting.objective.corruption](setting, self.prediction.network)
        initialise(self, setting.main.initializer_range)

    @property
    def generator(self) -> MaskedLM | None:
        """The generator, where the objective has one."""
        return self.corruption.generator if isinstance(self.corruption, GeneratorSamples) else None

    def summary(self) -> str:
        """Its size in a few words."""
        main = self.setting.main
        parts = [
            f"{sum(p.numel() for p in self.parameters()) / 1e6:.2f} M parameters",
            f"{main.num_layers} layers of {main.hidden_size}",
        ]
        if self.generator is not None:
            parts.append(f"generator of {self.generator.config.hidden_size}")
        return ", ".join(parts)

    def run(self, batch: Batch) -> tuple[Chosen, Corrupted, Predicted]:
        """Choose positions, corrupt them, and let the main network speak."""
        chosen = choose_positions(
            batch.input_ids, batch.lengths, self.setting.vocabulary.special_ids, self.setting.masking
        )
        corrupted = self.corruption(batch, chosen)
        return chosen, corrupted, self.prediction(batch, chosen, corrupted)

    def forward(self, batch: Batch, counts: Mapping[str, float]) -> tuple[Tensor, dict[str, Tensor]]:
        """A micro-batch's share of the loss of a global batch with `counts` tokens, and sums for `metrics`."""
        chosen, corrupted, predicted = self.run(batch)
        objective = self.setting.objective
        loss = objective.weight * predicted.loss.sum() / counts[objective.scored]
        if corrupted.nll is not None:
            loss = loss + corrupted.nll.sum() / counts["masked"]
        return loss, self.sums(batch, chosen, corrupted, predicted)

    def sums(self, batch: Batch, chosen: Chosen, corrupted: Corrupted, predicted: Predicted) -> dict[str, Tensor]:
        """Everything that `metrics` is made from, for one batch."""
        counted = {"tokens": batch.lengths.sum(), "masked": chosen.used.sum()}
        return {name: t.detach() for name, t in (counted | corrupted.sums | predicted.sums).items()}

    def counts(self, batch: Batch) -> dict[str, float]:
        """Tokens that are not padding, and chosen ones; from the lengths alone, on the host."""
        masked = num_chosen(batch.lengths, self.setting.masking.fraction).sum()
        return {"tokens": float(batch.lengths.sum()), "masked": float(masked)}

    def metrics(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """Losses, accuracies and the rest, from sums over any number of batches."""
        corruption = self.corruption.metrics(sums)
        prediction = self.prediction.metrics(sums, sums[self.setting.objective.scored])
        own = next(iter(prediction.values()))  # the loss stands first
        loss = self.setting.objective.weight * own + corruption.get("generator_loss", 0.0)
        return {"loss": loss, **corruption, **prediction}

    def flops(self, batch: Batch) -> float:
        """Forward and backward of a batch, counted as in Appendix E, for the shapes that are really computed."""
        rows, length = batch.input_ids.shape
        return float(rows * self.row_flops(length))

    def row_flops(self, length: int) -> int:
        """Forward and backward of one row, counted as in Appendix E."""
        predictions = int(num_chosen(torch.tensor([length]), self.setting.masking.fraction))
        flops = self.prediction.flops(length, predictions)
        if self.generator is not None:
            flops += masked_lm_step_flops(self.generator.config, length, predictions)
        return flops

    def utilised_share(self, length: int) -> float:
        """Operations of the machine for each one of Appendix E's, in rows of `length`.

        A last layer that works at the chosen positions only is counted whole, so this is slightly too much.
        """
        encoders = 1 if self.generator is None else 2
        looked_up = 2 * length * encoders * look_up_flops(self.setting.main, length)
        return utilised(self.row_flops(length), looked_up) / self.row_flops(length)
