"""The metrics of SQuAD v1.1 (Rajpurkar et al., 2016) and v2.0 (2018), as the official scripts compute them.

An answer is compared with each of the accepted ones, and the best comparison counts. Numbers are means over all
questions, in percent. Shapes: N questions.
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
    """The text that is compared: lower case, without ASCII punctuation and articles, one space between words."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def compute_word_f1(answer: str, accepted: str) -> float:
    """The harmonic mean of precision and recall of the words (with repetition) of two normalized texts."""
    words, accepted_words = answer.split(), accepted.split()
    if not words or not accepted_words:
        return float(words == accepted_words)
    common = sum((Counter(words) & Counter(accepted_words)).values())
    return 2 * common / (len(words) + len(accepted_words))


@dataclass(frozen=True)
class Scores:
    """The scores of each question, from 0 to 1."""

    em: Float[np.ndarray, " N"]
    """Exact match after normalization."""
    f1: Float[np.ndarray, " N"]


def score_answers(questions: Sequence[Question], answers: Sequence[str]) -> Scores:
    """Compare the answers with the accepted ones, as v2.0's script does.

    Accepted answers that normalization makes empty (some of SQuAD's are a full stop) count only where there are no others.
    For an impossible question, every answer that it makes empty is right.
    """
    pairs = []
    for question, answer in zip(questions, answers, strict=True):
        given = normalize(answer)
        accepted = [text for text in normalize_accepted(question) if text] or [""]
        pairs.append((float(given in accepted), max(compute_word_f1(given, each) for each in accepted)))
    em, f1 = np.array(pairs).T
    return Scores(em, f1)


def normalize_accepted(question: Question) -> list[str]:
    """The accepted answers, normalized."""
    return [normalize(text) for text in dict.fromkeys(answer.text for answer in question.answers)]


def compute_squad1_metrics(questions: Sequence[Question], answers: Sequence[str]) -> dict[str, float]:
    """Exact match and F1, as v1.1's script computes them: an answer that normalization makes empty can match an accepted one
    that it makes empty, but has an F1 of 0 with it."""
    pairs = []
    for question, answer in zip(questions, answers, strict=True):
        given, accepted = normalize(answer), normalize_accepted(question)
        pairs.append(
            (float(given in accepted), max(compute_word_f1(given, each) if given else 0.0 for each in accepted))
        )
    em, f1 = np.array(pairs).T
    return {"em": mean_percent(em), "f1": mean_percent(f1)}


def compute_squad2_metrics(questions: Sequence[Question], answers: Sequence[str]) -> dict[str, float]:
    """Exact match and F1 of all questions, of those that have an answer and of those that have none."""
    scores = score_answers(questions, answers)
    impossible = np.array([question.impossible for question in questions])
    metrics = {"em": mean_percent(scores.em), "f1": mean_percent(scores.f1)}
    for kind, rows in (("has_ans", ~impossible), ("no_ans", impossible)):
        if rows.any():
            metrics |= {f"{kind}_em": mean_percent(scores.em[rows]), f"{kind}_f1": mean_percent(scores.f1[rows])}
    return metrics


def compute_best_threshold_metrics(
    questions: Sequence[Question], answers: Sequence[str], null_odds: Float[np.ndarray, " N"]
) -> dict[str, float]:
    """The best exact match and F1 over all thresholds on the null odds, and these thresholds.

    `answers` are those before any threshold. The thresholds are optimized on the questions that are scored. An impossible
    question that is answered scores zero, also by an answer that normalization makes empty: here the official script
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
    """The best mean score, and the lowest threshold that reaches it: a question is answered up to and with it.

    `answered` is the score of a question with its answer, `unanswered` without. A threshold below all odds means that
    nothing is answered (the official script then returns 0, which answers where the odds are negative). Questions of equal
    odds are on the same side of any threshold; the official script counts them one by one.
    """
    order = np.argsort(null_odds, kind="stable")
    odds = null_odds[order]
    totals = unanswered.sum() + np.append(0.0, np.cumsum((answered - unanswered)[order]))
    possible = np.append(True, np.append(odds[1:] != odds[:-1], True))
    best = int(np.argmax(np.where(possible, totals, -np.inf)))
    threshold = odds[best - 1] if best else np.nextafter(odds[0], -np.inf)
    return float(totals[best] / len(odds)), float(threshold)


def mean_percent(scores: Float[np.ndarray, " N"]) -> float:
    """The mean in percent."""
    return 100 * float(scores.mean())
