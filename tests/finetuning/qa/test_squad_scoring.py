"""The official metrics: published predictions with known scores, and cases computed by hand."""

import gzip
import json

import numpy as np
import pytest
from support.places import DATA
from support.squad_toys import build_question

from electra.finetuning.qa.data import read_squad
from electra.finetuning.qa.scoring import (
    compute_best_threshold_metrics,
    compute_squad1_metrics,
    compute_squad2_metrics,
    compute_word_f1,
    find_best_threshold,
    normalize,
)

SQUAD = DATA / "squad"
needs_squad = pytest.mark.skipif(not SQUAD.is_dir(), reason=f"the real data are not at {SQUAD}")


@pytest.mark.slow
@needs_squad
@pytest.mark.parametrize(
    ("split", "predictions", "metrics", "em", "f1"),
    [
        ("dev-v1.1", "bert-ensemble-dev-v1.1", compute_squad1_metrics, 86.206, 92.196),
        ("dev-v2.0", "bert-single-dev-v2.0", compute_squad2_metrics, 78.742, 81.775),
    ],
)
def test_published_predictions(split: str, predictions: str, metrics, em: float, f1: float) -> None:
    questions = read_squad(SQUAD / f"{split}.json.gz")
    answers = json.loads(gzip.decompress((SQUAD / f"predictions/{predictions}.json.gz").read_bytes()))
    scores = metrics(questions, [answers[question.id] for question in questions])
    assert (scores["em"], scores["f1"]) == pytest.approx((em, f1), abs=5e-4)
    if metrics is compute_squad2_metrics:
        parts = [scores[name] for name in ("has_ans_em", "has_ans_f1", "no_ans_em", "no_ans_f1")]
        assert parts == pytest.approx([74.10594, 80.18183, 83.36417, 83.36417], abs=5e-5)
    gold = metrics(questions, [question.answers[0].text if question.answers else "" for question in questions])
    assert set(gold.values()) == {100.0}


def test_normalize() -> None:
    assert normalize("The  Anna-Maria's\tan A. a.m.") == "annamarias am"
    assert normalize("theatre, another") == "theatre another"
    assert compute_word_f1("new york city", "york") == pytest.approx(0.5)
    assert compute_word_f1("la la land", "la land") == pytest.approx(0.8)
    assert compute_word_f1("", "york") == compute_word_f1("rome", "york") == 0
    assert compute_word_f1("", "") == 1


def test_best_accepted_answer_counts() -> None:
    questions = [build_question("a", "Where?", "In New York City.", "York", "New York City")]
    assert compute_squad1_metrics(questions, ["new york"]) == pytest.approx({"em": 0, "f1": 80})
    assert compute_squad1_metrics(questions, ["the York"]) == {"em": 100, "f1": 100}


def test_impossible_question_expects_no_answer() -> None:
    questions = [
        build_question("a", "Who?", "Anna.", "Anna"),
        build_question("b", "Who?", "Anna."),
        build_question("c", "Who?", "Anna."),
    ]
    expected = {"em": 200 / 3, "has_ans_em": 100, "no_ans_em": 50}
    scores = compute_squad2_metrics(questions, ["Anna", "", "Anna"])
    assert scores == pytest.approx(expected | {name.replace("em", "f1"): value for name, value in expected.items()})
    assert set(compute_squad2_metrics(questions[:1], ["Anna"])) == {"em", "f1", "has_ans_em", "has_ans_f1"}


def test_answer_that_normalization_makes_empty() -> None:
    """For impossible questions, the metrics compare normalized answers, and the threshold search the texts themselves."""
    questions = [
        build_question("a", "Who?", "Anna."),
        build_question("b", "Who?", "Anna."),
        build_question("c", "Who?", "Anna.", "Anna"),
    ]
    answers, odds = ["the", "", "Anna"], np.array([0.0, 1.0, 2.0])
    assert compute_squad2_metrics(questions, answers)["no_ans_em"] == 100
    best = compute_best_threshold_metrics(questions, answers, odds)
    assert (best["best_em"], best["best_f1"]) == pytest.approx((200 / 3, 200 / 3))
    assert best["best_em_threshold"] < 0  # nothing is answered
    assert compute_best_threshold_metrics(questions, ["", "", "Anna"], odds)["best_em"] == 100


def test_accepted_answers_that_normalization_makes_empty() -> None:
    """Version 1.1 counts them as exact matches with F1 0; version 2.0 only if the question has no other answer."""
    beside, alone = (
        build_question("a", "What?", "Anna. The end.", "Anna", "."),
        build_question("b", "What?", "Anna. The end.", "."),
    )
    assert compute_squad1_metrics([beside], ["the"]) == compute_squad1_metrics([alone], ["the"]) == {"em": 100, "f1": 0}
    assert compute_squad1_metrics([beside], ["anna"]) == {"em": 100, "f1": 100}
    assert compute_squad1_metrics([beside], ["end"]) == {"em": 0, "f1": 0}
    for question, right in ((beside, 0), (alone, 100)):
        assert compute_squad2_metrics([question], ["the"]) == dict.fromkeys(
            ("em", "f1", "has_ans_em", "has_ans_f1"), right
        )


@pytest.mark.slow
def test_best_scores_against_the_official_procedure() -> None:
    """The official procedure goes through the questions by rising null odds and keeps the best total.

    Each question adds the score of its answer, or subtracts 1 if it is impossible and has an answer.
    """
    rng = np.random.default_rng(1)
    texts = ["", "the", ".", "York", "New York", "Anna"]
    for _ in range(200):
        accepted = [("New York",), ("Anna", "."), (".",), ()]
        chosen = [accepted[i] for i in rng.integers(0, 4, 6)]
        questions = [build_question(str(i), "Where?", "New York. Anna.", *each) for i, each in enumerate(chosen)]
        answers = [texts[i] for i in rng.integers(0, len(texts), 6)]
        odds = rng.permutation(6).astype(float)
        found = compute_best_threshold_metrics(questions, answers, odds)
        for metric in ("em", "f1"):
            score = best = sum(not each for each in chosen)
            for i in np.argsort(odds):
                if chosen[i]:
                    score += compute_squad2_metrics([questions[i]], [answers[i]])[metric] / 100
                elif answers[i]:
                    score -= 1
                best = max(best, score)
            assert found[f"best_{metric}"] == pytest.approx(100 * best / 6)


def test_best_threshold_against_every_threshold() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        number = int(rng.integers(1, 9))
        odds = rng.integers(-3, 3, number).astype(float)  # many are equal
        impossible = rng.random(number) < 0.5
        answered = np.where(impossible, 0.0, rng.integers(0, 3, number) / 2)
        unanswered = impossible.astype(float)
        best, threshold = find_best_threshold(answered, unanswered, odds)
        means = [np.where(odds <= t, answered, unanswered).mean() for t in np.arange(-4, 4)]
        assert best == pytest.approx(max(means))
        assert np.where(odds <= threshold, answered, unanswered).mean() == pytest.approx(best)


def test_em_and_f1_have_separate_thresholds() -> None:
    questions = [
        build_question("a", "Where?", "New York.", "New York"),
        build_question("b", "Who?", "Anna."),
        build_question("c", "Who?", "Carl.", "Carl"),
    ]
    answers, odds = ["York", "Anna", "Carl"], np.array([0.5, 2.0, -1.0])
    metrics = compute_best_threshold_metrics(questions, answers, odds)
    assert metrics == pytest.approx(
        {
            "best_em": 200 / 3,
            "best_em_threshold": -1.0,
            "best_f1": 100 * (2 + 2 / 3) / 3,
            "best_f1_threshold": 0.5,
        }
    )
