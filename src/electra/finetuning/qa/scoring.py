"""Metrics of SQuAD v1.1 (Rajpurkar et al., 2016) and v2.0 (2018), equal to those of the official scripts.

The score of an answer is the maximum over the accepted answers. Metrics are means over all questions, in percent.
Shapes: N questions.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from electra.finetuning.qa.data import Question

ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """Normalize a text for comparison: lower case, no ASCII punctuation, no articles, one space between words."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def compute_word_f1(answer: str, accepted: str) -> float:
    """Compute the harmonic mean of precision and recall of the words (a multiset) of two normalized texts, from 0 to 1."""
    words, accepted_words = answer.split(), accepted.split()
    if not words or not accepted_words:
        return float(words == accepted_words)
    common = sum((Counter(words) & Counter(accepted_words)).values())
    return 2 * common / (len(words) + len(accepted_words))


@dataclass(frozen=True)
class Scores:
    """Scores of each question, from 0 to 1."""

    em: Float[np.ndarray, " N"]
    """Exact match after normalization."""
    f1: Float[np.ndarray, " N"]


def score_answers(questions: Sequence[Question], answers: Sequence[str]) -> Scores:
    """Score each answer against the accepted ones, as the script of v2.0 does.

    Accepted answers that are empty after normalization (some in SQuAD are a full stop) count only if there are no others. For
    an impossible question, every answer that is empty after normalization is correct.
    """
    pairs = []
    for question, answer in zip(questions, answers, strict=True):
        given = normalize(answer)
        accepted = [text for text in normalize_accepted(question) if text] or [""]
        pairs.append((float(given in accepted), max(compute_word_f1(given, text) for text in accepted)))
    em, f1 = np.array(pairs).T
    return Scores(em, f1)


def normalize_accepted(question: Question) -> list[str]:
    """Normalize the accepted answers of a question."""
    return [normalize(text) for text in dict.fromkeys(answer.text for answer in question.answers)]


def compute_squad1_metrics(questions: Sequence[Question], answers: Sequence[str]) -> dict[str, float]:
    """Compute exact match `em` and `f1`, as the script of v1.1 does.

    An answer that is empty after normalization can match an accepted answer that is empty too, but has an F1 of 0 with it.
    """
    pairs = []
    for question, answer in zip(questions, answers, strict=True):
        given, accepted = normalize(answer), normalize_accepted(question)
        pairs.append(
            (float(given in accepted), max(compute_word_f1(given, text) if given else 0.0 for text in accepted))
        )
    em, f1 = np.array(pairs).T
    return {"em": compute_mean_percent(em), "f1": compute_mean_percent(f1)}


def compute_squad2_metrics(questions: Sequence[Question], answers: Sequence[str]) -> dict[str, float]:
    """Compute exact match and F1 of all questions, of those with an answer (`has_ans_`) and of those without (`no_ans_`)."""
    scores = score_answers(questions, answers)
    impossible = np.array([question.impossible for question in questions])
    metrics = {"em": compute_mean_percent(scores.em), "f1": compute_mean_percent(scores.f1)}
    for kind, rows in (("has_ans", ~impossible), ("no_ans", impossible)):
        if rows.any():
            metrics |= {
                f"{kind}_em": compute_mean_percent(scores.em[rows]),
                f"{kind}_f1": compute_mean_percent(scores.f1[rows]),
            }
    return metrics


def compute_best_threshold_metrics(
    questions: Sequence[Question], answers: Sequence[str], null_odds: Float[np.ndarray, " N"]
) -> dict[str, float]:
    """Compute the best exact match and F1 over all thresholds on the null odds, and these thresholds.

    `answers` are the best texts, before any threshold. The thresholds are optimized on the scored questions themselves. An
    impossible question with an answer scores zero, even if the answer is empty after normalization: here the official script
    checks only that there is a text.
    """
    scores = score_answers(questions, answers)
    impossible = np.array([question.impossible for question in questions])
    wrongly_answered = impossible & np.array([answer != "" for answer in answers])
    metrics: dict[str, float] = {}
    for name, score in (("em", scores.em), ("f1", scores.f1)):
        answered = np.where(wrongly_answered, 0.0, score)
        best, threshold = find_best_threshold(answered, impossible.astype(score.dtype), null_odds)
        metrics |= {f"best_{name}": 100 * best, f"best_{name}_threshold": threshold}
    return metrics


def find_best_threshold(
    answered: Float[np.ndarray, " N"], unanswered: Float[np.ndarray, " N"], null_odds: Float[np.ndarray, " N"]
) -> tuple[float, float]:
    """Find the threshold with the best mean score; questions with null odds up to and including it are answered.

    Questions of equal null odds are either all answered or not; the official script counts them one by one.

    Args:
        answered: Score of each question if it is answered, from 0 to 1.
        unanswered: Score of each question if it is not.
        null_odds: Null odds of each question.

    Returns:
        The best mean score, from 0 to 1, and the lowest threshold that reaches it. It is below all null odds if no question
        should be answered (the official script then returns 0, with which questions with negative null odds are answered).
    """
    order = np.argsort(null_odds, kind="stable")
    odds = null_odds[order]
    totals = unanswered.sum() + np.append(0.0, np.cumsum((answered - unanswered)[order]))
    possible = np.append(True, np.append(odds[1:] != odds[:-1], True))
    best = int(np.argmax(np.where(possible, totals, -np.inf)))
    threshold = odds[best - 1] if best else np.nextafter(odds[0], -np.inf)
    return float(totals[best] / len(odds)), float(threshold)


def compute_mean_percent(scores: Float[np.ndarray, " N"]) -> float:
    """Compute the mean of scores from 0 to 1, in percent."""
    return 100 * float(scores.mean())
