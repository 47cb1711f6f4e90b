"""Losses and metrics of an objective by name: training step, log and report use the same dicts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from torch import Tensor

Value = TypeVar("Value")
Number = TypeVar("Number", Tensor, float)


class LossTerm(NamedTuple):
    """How a loss enters the total."""

    mean_over: str
    """Name of the count to divide its sum by: tokens, masked, others or sequences."""
    weight: float = 1.0


@dataclass(frozen=True)
class Loss(Generic[Number]):
    """A loss, summed over one or more batches."""

    sum: Number
    mean_over: str
    weight: float


def build_losses(sums: Mapping[str, Number], terms: Mapping[str, LossTerm]) -> dict[str, Loss[Number]]:
    """Build the losses from `sums` in the order of `terms`; a term may be absent (the sentence loss on held-out text)."""
    return {name: Loss(sums[name], *term) for name, term in terms.items() if name in sums}


def sum_losses(losses: Mapping[str, Loss[Number]], counts: Mapping[str, float | Tensor]) -> Number:
    """Return the weighted sum of the means, added in the order of the dict."""
    # Weight before mean: the traces under tests/golden depend on the rounding of this order.
    total, *rest = [loss.weight * loss.sum / counts[loss.mean_over] for loss in losses.values()]
    for mean in rest:
        total = total + mean
    return total  # type: ignore[return-value]


@dataclass(frozen=True)
class Metric:
    """The description of one metric."""

    description: str
    """Row of the report."""
    panel: str | None = None
    """Panel of the training plot: loss, tokens, masked or discriminator; None: not plotted."""
    label: str = ""
    """Label of its line in the panel; by default the metric's name."""
    percent: bool = True
    """Whether it is a share, displayed in percent."""


def describe_loss(description: str, label: str | None = None) -> Metric:
    """Describe a loss, which is plotted if it has a label."""
    return Metric(description, "loss" if label else None, label or "", percent=False)


def merge(*parts: Mapping[str, Value]) -> dict[str, Value]:
    """Merge sums or metrics by name.

    Raises:
        ValueError: two parts have the same name, of which one would overwrite the other.
    """
    merged: dict[str, Value] = {}
    for part in parts:
        if common := merged.keys() & part.keys():
            raise ValueError(f"several sums or metrics of an objective have the name {', '.join(sorted(common))}")
        merged |= part
    return merged


COMMON_METRICS = {
    "loss": describe_loss("total loss: the weighted sum of all losses", "total"),
    "strategy_loss": describe_loss("masking strategy: error of the expected losses", "expected losses"),
    "weighted_loss": describe_loss("weighted loss of the discriminator or main encoder", "discriminator, weighted"),
    "masking_fraction": Metric("share of tokens masked, which changes", "masked", "tokens masked"),
}
GENERATOR_METRICS = {
    "generator_loss": describe_loss("generator: -log probability of the original token", "generator"),
    "generator_accuracy": Metric(
        "generator: accuracy at the masked positions, unmasked inputs included", "masked", "generator accuracy"
    ),
    "generator_accuracy_without_unk": Metric("... where the original is not [UNK]"),
    "sampled_accuracy": Metric("generator: share of samples that are the original token", "masked", "samples correct"),
    "policy_loss": describe_loss("adversarial generator: policy loss", "generator's policy"),
    "baseline_loss": describe_loss("adversarial generator: cross-entropy of the baseline"),
    "reward": Metric("adversarial generator: reward per sample", percent=False),
    "generator_temperature": Metric("generator: temperature, which changes", percent=False),
    "generator_frequency_share": Metric(
        "generator: share of samples by corpus frequency, which changes", "masked", "samples by frequency"
    ),
    "generator_loss_weight": Metric("generator: weight of its loss, which changes", percent=False),
}
MASKED_LM_METRICS = {
    "mlm_loss": describe_loss("masked-LM loss: -log probability of the original token", "masked LM"),
    "mlm_accuracy": Metric("accuracy at the masked positions, unmasked inputs included", "tokens", "accuracy"),
    "mlm_accuracy_without_unk": Metric("... where the original is not [UNK]"),
}
ALL_TOKENS_METRICS = {
    "all_tokens_loss": describe_loss("all-tokens loss: -log probability of the original token", "all tokens"),
    "all_tokens_accuracy": Metric("accuracy over all tokens", "tokens", "accuracy"),
    "restored": Metric("accuracy at the replaced tokens", "tokens", "replaced tokens restored"),
}
DETECTION_METRICS = {
    "masked_prediction_loss": describe_loss(
        "discriminator: -log probability of the tokens masked in its input", "masked"
    ),
    "filled_prediction_loss": describe_loss("discriminator: -log probability of the tokens that were filled", "filled"),
    "sentence_loss": describe_loss('sentence task: cross-entropy of "is any token replaced?"', "sentence"),
    "sequence_contrast_loss": describe_loss(
        "sequence contrast: -log probability of the other view among the micro-batch", "sequence contrast"
    ),
    "sequence_contrast_accuracy": Metric("... share of views most similar to the other view"),
    "replaced": Metric("share of tokens replaced", "masked", "tokens replaced"),
    "discriminator_loss": describe_loss("discriminator: cross-entropy per scored token"),
    "accuracy": Metric("discriminator: accuracy over all tokens", "discriminator"),
    "majority": Metric("... majority rate (always the more frequent class)", "discriminator", "majority rate"),
    "precision": Metric("discriminator: precision", "discriminator"),
    "recall": Metric("discriminator: recall", "discriminator"),
    "auc": Metric("discriminator: area under the ROC curve", "discriminator", "AUC", percent=False),
    "frequency_auc": Metric("... of token frequency alone", percent=False),
}
CORRECTIVE_METRICS = {
    **GENERATOR_METRICS,
    **DETECTION_METRICS,
    "corrective_loss": describe_loss("corrective loss: -log probability of the original token", "corrective"),
    "corrective_accuracy": Metric("accuracy at the predicted positions", "masked", "corrective accuracy"),
    "restored": ALL_TOKENS_METRICS["restored"],
}
ELECTRIC_METRICS = {
    **GENERATOR_METRICS,
    "electric_loss": describe_loss("energies: cross-entropy of noise and data", "noise or data"),
    "electric_accuracy": Metric("... accuracy", "tokens", "noise or data: accuracy"),
    "electric_noise": Metric("... share of noise"),
    "energy": Metric("... mean energy of data tokens, an estimate of -log probability", percent=False),
}
