"""Base class of targets."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from electra.data.batch import Batch
from electra.model.flops import Cost
from electra.pretraining.objectives.corruptions.corruption import (
    CorruptedBatch,
)
from electra.pretraining.objectives.corruptions.masking import MaskedPositions
from electra.pretraining.objectives.metrics import LossTerm
from electra.pretraining.objectives.networks import Discriminator, MaskedLM


class Prediction(NamedTuple):
    """Output of a target for one batch."""

    logits: Float[Tensor, "B L"] | None
    """A discriminator's logits; None for predictions over the vocabulary, whose logits are not stored."""
    losses: dict[str, Tensor]
    """By name, one value per position or sequence, 0 where unscored."""
    sums: dict[str, Tensor]
    """Sums for `metrics`."""
    hidden: Float[Tensor, "B L H"] | None = None
    """Hidden states of the corrupted batch, for further losses of a subclass."""


class Target(nn.Module, ABC):
    """The network that reads the corrupted batch, and its loss."""

    head: str
    """Kind of the network's head, a key of `electra.model.architecture.Architecture.classes`."""
    directory: str = "discriminator"
    """Name of the network's directory in a run. `electra finetune --model RUN` finds discriminator, masked_lm and
    energy_model; a network with another name is given as RUN/NAME."""
    network: Discriminator | MaskedLM
    loss_name: str
    """Name of its loss, whose positions and weight `Objective` defines."""
    loss_terms: Mapping[str, LossTerm] = MappingProxyType({})
    """Its other losses."""
    detects_replacements: bool = False
    """Whether its logits classify every token of the input as replaced or original, with the metrics, figures and adversarial
    generators of a discriminator."""
    uses: frozenset[str] = frozenset()
    """Options that it reads: copy, contrast, corrective, sequence_contrast, token_prediction. The others are refused or
    have no effect."""

    @property
    def other_heads(self) -> dict[str, nn.Module]:
        """Networks with the same encoder and other heads, by kind of head; they are saved in the same directory."""
        return {}

    def share_head(self, generator: MaskedLM) -> None:
        """Predict tokens with the generator's head, which has the same encoder (`generator.tying all`)."""

    def change_input(
        self, batch: Batch, corrupted: CorruptedBatch, sample_others: Callable[[], MaskedPositions]
    ) -> CorruptedBatch:
        """Change the input in training; `sample_others` samples other random positions, as many as are masked."""
        return corrupted

    def metrics(self, sums: Mapping[str, Tensor], scored: Tensor) -> dict[str, float]:
        """Metrics other than the losses; `scored` is the number of scored positions."""
        return {}

    @abstractmethod
    def forward(self, batch: Batch, corrupted: CorruptedBatch, at: MaskedPositions | None) -> Prediction:
        """Predict from the corrupted batch; `at` are the scored positions, None for all tokens."""

    @abstractmethod
    def cost(self, length: int, predictions: int) -> Cost:
        """FLOPs of one row with `predictions` masked positions."""
