"""The held-out metrics of a pre-trained pair, and sentences that show what it does."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from electra.data.loader import Batch
from electra.pretraining.objectives.detection_metrics import area_under_curve, score_histogram
from electra.pretraining.objectives.masking import real_tokens
from electra.pretraining.objectives.model import PretrainingModel
from electra.runtime.setup import Runtime


@dataclass(frozen=True)
class Evaluation:
    """Metrics on held-out text, and histograms of logits and token rarity for the pictures."""

    metrics: dict[str, float]
    histograms: dict[str, list[float]]


def evaluate(
    model: PretrainingModel,
    batches: Iterable[Batch],
    unigrams: Int64[Tensor, " V"],
    runtime: Runtime,
) -> Evaluation:
    """Score `model` on held-out batches, dropout off.

    Masks and samples depend on the example alone, not on the run's seed, so that runs can be compared.

    With a discriminator, `frequency_auc` is what the tokens' frequencies in the training text (`unigrams`: counts) alone
    reach: the AUC of rarity as the score, or of its negative if that is better. Special tokens, which are never replaced,
    count as the most frequent ones.
    """
    was_training = model.training
    model.eval()
    counts = unigrams.double() + 0.5
    counts[list(model.spec.vocabulary.special_ids)] = counts.sum()
    rarity = -torch.log(counts / counts.sum()).float().to(runtime.device)
    sums: dict[str, Tensor] = {}
    frequency = {True: torch.zeros(0), False: torch.zeros(0)}
    for host_batch in batches:
        batch = host_batch.to(runtime.device)
        with torch.no_grad(), runtime.autocast():
            output = model(batch)
        for name, tensor in output.sums.items():
            sums[name] = sums[name] + tensor.double() if name in sums else tensor.double()
        if model.discriminates:
            for replaced, histogram in rarity_histograms(batch, output.corrupted.input_ids, rarity).items():
                frequency[replaced] = histogram + frequency[replaced] if len(frequency[replaced]) else histogram
    model.train(was_training)
    metrics = model.metrics(sums)
    histograms = {name: tensor.tolist() for name, tensor in sums.items() if name.startswith("scores_")}
    if model.discriminates:
        auc = area_under_curve(frequency[True], frequency[False])
        metrics["frequency_auc"] = max(auc, 1 - auc)
        histograms |= {"rarity_replaced": frequency[True].tolist(), "rarity_original": frequency[False].tolist()}
    return Evaluation(metrics | {"evaluated_tokens": float(sums["tokens"])}, histograms)


def rarity_histograms(
    batch: Batch, corrupted_ids: Int64[Tensor, "B L"], rarity: Tensor
) -> dict[bool, Float64[Tensor, " bins"]]:
    """Histograms of how rare the replaced and the original tokens of a corrupted batch are."""
    real = real_tokens(corrupted_ids, batch.lengths)
    changed = corrupted_ids != batch.input_ids
    score = rarity[corrupted_ids] - 10  # the histogram reaches from -10 to 10, -log(frequency) from 0 to about 20
    return {True: score_histogram(score, real & changed), False: score_histogram(score, real & ~changed)}


@dataclass(frozen=True)
class Sample:
    """A held-out sentence after corruption, with the discriminator's probabilities."""

    tokens: list[str]
    originals: list[str | None]
    """The original token, where it was replaced."""
    probabilities: list[float]
    """The discriminator's probability that the token was replaced."""


def samples(model: PretrainingModel, batch: Batch, vocabulary: list[str], runtime: Runtime) -> list[Sample]:
    """The rows of `batch` after corruption, with the discriminator's probabilities; [] without a discriminator."""
    if not model.discriminates:
        return []
    was_training = model.training
    model.eval()
    batch = batch.to(runtime.device)
    with torch.no_grad(), runtime.autocast():
        output = model(batch)
    model.train(was_training)
    assert output.prediction.logits is not None
    rows = []
    for row, length in enumerate(batch.lengths.tolist()):
        seen = output.corrupted.input_ids[row, :length].tolist()
        original = batch.input_ids[row, :length].tolist()
        rows.append(
            Sample(
                tokens=[vocabulary[i] for i in seen],
                originals=[None if a == b else vocabulary[b] for a, b in zip(seen, original, strict=True)],
                probabilities=output.prediction.logits[row, :length].float().sigmoid().tolist(),
            )
        )
    return rows
