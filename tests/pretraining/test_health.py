"""Diagnostics find planted problems, and nothing in a healthy run."""

import math

import pytest

from electra.pretraining.reporting.diagnostics import (
    GENERATOR_PATIENCE,
    PATIENCE,
    Health,
    check_heldout,
    check_vocabulary,
)
from electra.text.coverage import Coverage

HEALTHY = {
    "loss": 20.0,
    "generator_loss": 3.0,
    "sampled_accuracy": 0.5,
    "replaced": 0.07,
    "auc": 0.9,
    "recall": 0.4,
    "gradient_norm": 0.5,
}
BERT = {"loss": 3.0, "mlm_loss": 3.0, "mlm_accuracy": 0.4, "gradient_norm": 0.5}


def problems(
    changes: dict[str, float], start: dict[str, float] = HEALTHY, done: float = 0.5, step: int = 1000
) -> list[str]:
    health = Health(vocab_size=30_522)
    for before in range(20):
        assert health.check(step + before, done, start) == []
    return [finding.problem for finding in health.check(step + 20, done, start | changes)]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"loss": math.nan}, "not a number"),
        ({"gradient_norm": math.inf}, "not a number"),
        ({"gradient_norm": 60.0}, "exploding gradients"),
        ({"loss": 30.0}, "rising loss"),
        ({"generator_loss": 10.2}, "the masked-LM loss does not fall"),
        ({"auc": 0.51}, "the discriminator only says original"),
        ({"sampled_accuracy": 0.9, "replaced": 0.015}, "too few replacements"),
        ({"sampled_accuracy": 0.01}, "too many replacements"),
    ],
)
def test_problem_is_found(changes: dict[str, float], problem: str) -> None:
    assert problems(changes) == [problem]


def test_problem_is_found_in_a_masked_lm() -> None:
    assert problems({"mlm_loss": 10.0}, start=BERT) == ["the masked-LM loss does not fall"]


def test_no_findings_early_in_a_run() -> None:
    for early in ({"done": 0.1}, {"step": PATIENCE - 50}):
        assert problems({"auc": 0.5, "sampled_accuracy": 0.0, "generator_loss": 10.3}, **early) == []


@pytest.mark.parametrize("early", [{"done": 0.4}, {"step": GENERATOR_PATIENCE - 50}])
def test_no_findings_for_low_generator_accuracy_early(early: dict) -> None:
    assert problems({"sampled_accuracy": 0.014}, **early) == []


LEARNT = {"auc": 0.753, "frequency_auc": 0.618, "recall": 0.14, "accuracy": 0.9, "majority": 0.89}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"auc": 0.62}, ["the discriminator is no better than token frequency"]),
        ({"recall": 0.001, "accuracy": 0.8901}, ["the discriminator calls nearly everything original"]),
    ],
)
def test_untrained_discriminator_is_found_at_the_end(changes: dict, expected: list[str]) -> None:
    findings = check_heldout(500, LEARNT | changes)
    assert [finding.problem for finding in findings] == expected
    assert all("train longer" in finding.advice and finding.step == 500 for finding in findings)


def test_objectives_scored_at_some_tokens_have_no_detection_findings() -> None:
    worst = LEARNT | {"auc": 0.5, "recall": 0.0}
    assert len(check_heldout(500, worst)) == 1
    assert check_heldout(500, worst, everywhere=False) == []
    assert [each.problem for each in Health(30_522).check(900, 0.5, HEALTHY | worst)] != []
    assert Health(30_522, everywhere=False).check(900, 0.5, HEALTHY | worst) == []


def test_excluding_originals_gives_no_finding_on_replacements() -> None:
    never = HEALTHY | {"sampled_accuracy": 0.0}
    (blamed,) = Health(30_522).check(1000, 0.5, never)
    assert blamed.problem == "too many replacements"
    assert Health(30_522, samples_originals=False).check(1000, 0.5, never) == []


def test_masked_lm_has_no_detection_findings() -> None:
    assert check_heldout(500, {"mlm_loss": 3.0}) == []


def test_finding_has_step_and_advice() -> None:
    health = Health(vocab_size=30_522)
    (finding,) = health.check(5, 0.9, HEALTHY | {"loss": math.nan})
    assert finding.step == 5
    assert "optimizer.learning_rate" in finding.advice


@pytest.mark.parametrize(
    ("coverage", "advice"),
    [
        (None, None),
        (Coverage(1000, 1, 900, 5), None),
        (Coverage(1000, 790, 900, 5), "79.0% of the tokens are [UNK], 0.6% of the words are split into single characters. [UNK] is"),
        (Coverage(1000, 1, 900, 500), "0.1% of the tokens are [UNK], 55.6% of the words are split into single characters. Words in"),
    ],
)  # fmt: skip
def test_low_coverage_is_found(coverage: Coverage | None, advice: str | None) -> None:
    findings = check_vocabulary(coverage)
    assert [finding.problem for finding in findings] == ["the vocabulary does not fit the text"] * (advice is not None)
    assert all(finding.advice.startswith(advice) for finding in findings)
