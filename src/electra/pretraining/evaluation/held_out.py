"""Held-out metrics, and sentences with the discriminator's probabilities."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from electra.data.batch import Batch
from electra.pretraining.objectives.corruptions.masking import mark_real_tokens
from electra.pretraining.objectives.model import PretrainingModel
from electra.pretraining.objectives.targets.detection_metrics import compute_auc, compute_histogram
from electra.runtime.setup import Runtime


@dataclass(frozen=True)
class Evaluation:
    """Metrics on held-out text, and histograms of logits and token rarity for the plots."""

    metrics: dict[str, float]
    histograms: dict[str, list[float]]


def evaluate(
    model: PretrainingModel,
    batches: Iterable[Batch],
    unigrams: Int64[Tensor, " V"],
    runtime: Runtime,
) -> Evaluation:
    """Evaluate `model` on held-out batches, without dropout.

    Masks and samples depend only on the example, not on the run's seed, so runs can be compared.

    With a discriminator, `frequency_auc` is a baseline: the AUC of token rarity in the training text (`unigrams`: counts) as
    the score, or of its negative if that is better. Special tokens, which are never replaced, count as the most frequent.
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
            for replaced, histogram in compute_rarity_histograms(batch, output.corrupted.input_ids, rarity).items():
                frequency[replaced] = histogram + frequency[replaced] if len(frequency[replaced]) else histogram
    metrics = model.metrics(sums)
    model.train(was_training)
    histograms = {name: tensor.tolist() for name, tensor in sums.items() if name.startswith("scores_")}
    if model.discriminates:
        auc = compute_auc(frequency[True], frequency[False])
        metrics["frequency_auc"] = max(auc, 1 - auc)
        histograms |= {"rarity_replaced": frequency[True].tolist(), "rarity_original": frequency[False].tolist()}
    return Evaluation(metrics | {"evaluated_tokens": float(sums["tokens"])}, histograms)


def compute_rarity_histograms(
    batch: Batch, corrupted_ids: Int64[Tensor, "B L"], rarity: Tensor
) -> dict[bool, Float64[Tensor, " bins"]]:
    """Compute histograms of the rarity of replaced (True) and of original tokens (False)."""
    real = mark_real_tokens(corrupted_ids, batch.lengths)
    changed = corrupted_ids != batch.input_ids
    score = rarity[corrupted_ids] - 10  # the histogram's range is -10 to 10, that of -log(frequency) 0 to about 20
    return {True: compute_histogram(score, real & changed), False: compute_histogram(score, real & ~changed)}


@dataclass(frozen=True)
class Sample:
    """A corrupted held-out sentence with the discriminator's probabilities."""

    tokens: list[str]
    originals: list[str | None]
    """The original token if it was replaced, else None."""
    probabilities: list[float]
    """The discriminator's probability that the token was replaced."""


def collect_samples(model: PretrainingModel, batch: Batch, vocabulary: list[str], runtime: Runtime) -> list[Sample]:
    """Return the corrupted rows of `batch` with the discriminator's probabilities; empty without these."""
    if not model.discriminates:
        return []
    was_training = model.training
    model.eval()
    batch = batch.to(runtime.device)
    with torch.no_grad(), runtime.autocast():
        output = model(batch)
    model.train(was_training)
    if output.prediction.logits is None:
        return []
    rows = []
    for row, length in enumerate(batch.lengths.tolist()):
        corrupted = output.corrupted.input_ids[row, :length].tolist()
        original = batch.input_ids[row, :length].tolist()
        rows.append(
            Sample(
                tokens=[vocabulary[i] for i in corrupted],
                originals=[None if a == b else vocabulary[b] for a, b in zip(corrupted, original, strict=True)],
                probabilities=output.prediction.logits[row, :length].float().sigmoid().tolist(),
            )
        )
    return rows
