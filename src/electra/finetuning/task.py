"""What the run of a fine-tuning asks of a task and of its head. Each kind of task is a room that offers both."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from electra.finetuning.batching import Features, LabeledBatch
from electra.model.encoder import EncoderConfig

Outputs = list[dict[str, np.ndarray]]
"""What a head said of each feature, by name; arrays over tokens may be padded."""


@runtime_checkable  # for the checks of types under test, as for Task
class Head(Protocol):
    """What stands on the encoder: an `nn.Module` whose parameters start as the original code's (Glorot, zero biases)."""

    only_cls: bool
    """Whether it reads the hidden state of [CLS] alone: then `hidden` has no other."""

    def loss(self, hidden: Float[Tensor, "B Q H"], batch: LabeledBatch) -> Float[Tensor, " B"]:
        """The loss of each example."""

    def predict(self, hidden: Float[Tensor, "B Q H"], batch: LabeledBatch) -> dict[str, Tensor]:
        """What it says of each example: tensors whose first dimension is the example. No targets are there."""


@runtime_checkable
class Task(Protocol):
    """One task: its data, its head, its scores."""

    @property
    def name(self) -> str:
        """As on the command line."""

    @property
    def main_metric(self) -> str:
        """The one of `score` that stands for the task in a table."""

    @property
    def scored(self) -> tuple[str, ...]:
        """Splits with labels that are scored after training, the one that stands for the task first."""

    @property
    def predicted(self) -> tuple[str, ...]:
        """Splits that are only predicted."""

    def head(self, encoder: EncoderConfig) -> nn.Module:
        """A fresh `Head`."""

    def features(self, split: str) -> Features:
        """The encoded examples of "train", of one of `scored`, or of one of `predicted` (whose targets may be empty).

        Raises:
            DataError: the split is missing, empty or broken; the message names file and place.
        """

    def score(self, split: str, outputs: Outputs) -> dict[str, float]:
        """Metrics in percent, over all examples of the split, from the outputs for `features(split)` in their order."""

    def predictions(self, split: str, outputs: Outputs) -> list[dict[str, Any]]:
        """What is predicted for each example of the split, as it is written to `predictions-SPLIT.jsonl`."""

    def logits(self, split: str, outputs: Outputs) -> Float[np.ndarray, "N C"] | None:
        """Of each example of the split, as an ensemble averages them over runs; None where that has no meaning."""

    def settings(self) -> Mapping[str, Any]:
        """What `electra predict` has to know of the task, as JSON."""
