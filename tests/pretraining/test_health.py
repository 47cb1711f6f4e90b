"""The health checks find each kind of problem in changed metrics, and none in metrics of a healthy run."""

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


def find_codes(
    changes: dict[str, float], start: dict[str, float] = HEALTHY, done: float = 0.5, step: int = 1000
) -> list[str]:
    health = Health(vocab_size=30_522)
    for before in range(20):
        assert health.check(step + before, done, start) == []
    return [finding.code for finding in health.check(step + 20, done, start | changes)]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"loss": math.nan}, "not-finite"),
        ({"gradient_norm": math.inf}, "not-finite"),
        ({"gradient_norm": 60.0}, "exploding-gradients"),
        ({"loss": 30.0}, "rising-loss"),
        ({"generator_loss": 10.2}, "high-masked-lm-loss"),
        ({"auc": 0.51}, "low-auc"),
        ({"sampled_accuracy": 0.9, "replaced": 0.015}, "too-few-replacements"),
        ({"sampled_accuracy": 0.01}, "too-many-replacements"),
    ],
)
def test_problem_is_found(changes: dict[str, float], code: str) -> None:
    assert find_codes(changes) == [code]


def test_loss_may_rise_where_options_change() -> None:
    changing = Health(vocab_size=30_522, changes=True)
    for step in range(20):
        assert changing.check(1000 + step, 0.5, HEALTHY) == []
    assert changing.check(1020, 0.5, HEALTHY | {"loss": 30.0}) == []


def test_problem_is_found_in_a_masked_lm() -> None:
    assert find_codes({"mlm_loss": 10.0}, start=BERT) == ["high-masked-lm-loss"]


def test_no_findings_early_in_a_run() -> None:
    for early in ({"done": 0.1}, {"step": PATIENCE - 50}):
        assert find_codes({"auc": 0.5, "sampled_accuracy": 0.0, "generator_loss": 10.3}, **early) == []


@pytest.mark.parametrize("early", [{"done": 0.4}, {"step": GENERATOR_PATIENCE - 50}])
def test_no_findings_for_low_generator_accuracy_early(early: dict) -> None:
    assert find_codes({"sampled_accuracy": 0.014}, **early) == []


HELD_OUT = {"auc": 0.753, "frequency_auc": 0.618, "recall": 0.14, "accuracy": 0.9, "majority": 0.89}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"auc": 0.62}, ["no-better-than-frequency"]),
        ({"recall": 0.001, "accuracy": 0.8901}, ["low-recall"]),
    ],
)
def test_untrained_discriminator_is_found_at_the_end(changes: dict, expected: list[str]) -> None:
    findings = check_heldout(500, HELD_OUT | changes)
    assert [finding.code for finding in findings] == expected
    for finding in findings:
        assert finding.step == 500
        assert "optimizer.learning_rate" in finding.advice


def test_objectives_scored_at_some_tokens_have_no_detection_findings() -> None:
    worst = HELD_OUT | {"auc": 0.5, "recall": 0.0}
    assert [each.code for each in check_heldout(500, worst)] == ["no-better-than-frequency"]
    assert check_heldout(500, worst, scores_all_tokens=False) == []
    assert [each.code for each in Health(30_522).check(900, 0.5, HEALTHY | worst)] == ["low-auc"]
    assert Health(30_522, scores_all_tokens=False).check(900, 0.5, HEALTHY | worst) == []


def test_excluding_originals_gives_no_finding_on_replacements() -> None:
    metrics = HEALTHY | {"sampled_accuracy": 0.0}
    assert [each.code for each in Health(30_522).check(1000, 0.5, metrics)] == ["too-many-replacements"]
    assert Health(30_522, samples_originals=False).check(1000, 0.5, metrics) == []


def test_masked_lm_has_no_detection_findings() -> None:
    assert check_heldout(500, {"mlm_loss": 3.0}) == []


@pytest.mark.parametrize(
    ("missing", "codes"),
    [
        ("frequency_auc", ["low-recall"]),
        ("majority", ["no-better-than-frequency"]),
        ("recall", ["no-better-than-frequency"]),
        ("auc", []),
    ],
)
def test_findings_need_the_metrics_that_they_compare(missing: str, codes: list[str]) -> None:
    """A target from outside the package may have some of the metrics only."""
    metrics = HELD_OUT | {"auc": 0.5, "recall": 0.0, "accuracy": 0.5}
    assert len(check_heldout(500, metrics)) == 2
    del metrics[missing]
    assert [each.code for each in check_heldout(500, metrics)] == codes


def test_finding_has_step_and_advice() -> None:
    health = Health(vocab_size=30_522)
    (finding,) = health.check(5, 0.9, HEALTHY | {"loss": math.nan})
    assert finding.step == 5
    assert "optimizer.learning_rate" in finding.advice


@pytest.mark.parametrize(
    ("coverage", "code", "shares"),
    [
        (Coverage(1000, 790, 900, 5), "frequent-unknown-tokens", ("79.0%", "0.6%")),
        (Coverage(1000, 1, 900, 500), "split-words", ("0.1%", "55.6%")),
    ],
)
def test_low_coverage_is_found(coverage: Coverage, code: str, shares: tuple[str, ...]) -> None:
    (finding,) = check_vocabulary(coverage)
    assert (finding.code, finding.step) == (code, 0)
    for value in (*shares, "--tokenizer"):
        assert value in finding.advice


@pytest.mark.parametrize("coverage", [None, Coverage(1000, 1, 900, 5)], ids=["unknown", "high"])
def test_high_coverage_has_no_finding(coverage: Coverage | None) -> None:
    assert check_vocabulary(coverage) == []
