"""Held-out metrics: deterministic, with a correct frequency baseline."""

import math

import pytest
import torch
from sklearn.metrics import roc_auc_score
from support.tiny_models import PAD, SPECIAL, batch, model

from electra.pretraining.evaluation.held_out import collect_samples, evaluate
from electra.runtime.setup import Runtime

CPU = Runtime(torch.device("cpu"), torch.float32)
UNIGRAMS = torch.randint(1, 1000, (64,), generator=torch.Generator().manual_seed(3))


def test_evaluation_is_deterministic_and_without_dropout() -> None:
    electra = model()
    batches = [batch(seed=4), batch(seed=5)]
    first = evaluate(electra, batches, UNIGRAMS, CPU)
    torch.manual_seed(99)
    assert evaluate(electra, batches, UNIGRAMS, CPU) == first
    assert electra.training, "the mode is restored"
    assert first.metrics["evaluated_tokens"] == 220
    assert first.metrics["replaced"] > 0.1


def test_frequency_auc_equals_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metric is the AUC of log frequency over the discriminator's input."""
    electra, seen = model(), []
    run = electra.run

    def spy(inputs):
        result = run(inputs)
        seen.append((inputs, result[1].input_ids))
        return result

    monkeypatch.setattr(electra, "run", spy)
    evaluation = evaluate(electra, [batch(seed=s, lengths=(40,) * 30) for s in range(4)], UNIGRAMS, CPU)
    scores, labels = [], []
    for inputs, corrupted in seen:
        real = inputs.input_ids != PAD
        scores += [-99.0 if int(i) in SPECIAL else -math.log(int(UNIGRAMS[i])) for i in corrupted[real]]
        labels += (corrupted != inputs.input_ids)[real].tolist()
    auc = roc_auc_score(labels, scores)
    assert evaluation.metrics["frequency_auc"] == pytest.approx(max(auc, 1 - auc), abs=2e-3)


def test_mlm_has_neither_frequency_auc_nor_samples() -> None:
    bert = model("mlm")
    evaluation = evaluate(bert, [batch()], UNIGRAMS, CPU)
    assert "frequency_auc" not in evaluation.metrics
    assert not evaluation.histograms
    assert collect_samples(bert, batch(), [str(i) for i in range(64)], CPU) == []


def test_samples_have_replaced_and_original_tokens() -> None:
    inputs = batch(lengths=(40, 12))
    shown = collect_samples(model(), inputs, [f"w{i}" for i in range(64)], CPU)
    assert [len(sample.tokens) for sample in shown] == [40, 12]
    for row, sample in enumerate(shown):
        assert any(sample.originals)
        for place, (token, original) in enumerate(zip(sample.tokens, sample.originals, strict=True)):
            assert (original or token) == f"w{inputs.input_ids[row, place]}"
            assert token != original
        assert all(0 <= p <= 1 for p in sample.probabilities)
