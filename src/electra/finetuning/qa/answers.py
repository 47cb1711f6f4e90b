"""Decoding of answers from the outputs of a head: the best spans of a question over all its windows, and its null odds.

The null odds of a question are higher if an answer is less probable: the joint head's logit of an impossible question, or the
plain head's score of [CLS] minus that of the best span. Shapes: S candidate spans, I and J tokens.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from electra.finetuning.qa.config import SpanConfig
from electra.finetuning.qa.heads import EXCLUDED
from electra.finetuning.qa.windows import Windows
from electra.finetuning.task import Outputs


@dataclass(frozen=True)
class Candidate:
    """One of the n best answers to a question."""

    text: str
    probability: float
    """Softmax of start plus end logit over the n best answers."""
    start_logit: float
    """For the joint head, a log-probability."""
    end_logit: float
    """For the joint head, the log-probability given the start."""


@dataclass(frozen=True)
class QuestionPrediction:
    """The answers to one question."""

    id: str
    n_best: tuple[Candidate, ...]
    """Best first, with distinct texts; empty only if the context has no token."""
    null_odds: float
    """See above."""

    @property
    def best_text(self) -> str:
        """Text of the best answer; empty if there is none."""
        return self.n_best[0].text if self.n_best else ""

    def select_answer(self, threshold: float) -> str:
        """Return the best text, or an empty one if the null odds are above the threshold."""
        return "" if self.null_odds > threshold else self.best_text

    def to_record(self, threshold: float | None) -> dict[str, Any]:
        """Return the prediction in JSON types; with `threshold=None` there is always an answer."""
        return {
            "id": self.id,
            "answer": self.best_text if threshold is None else self.select_answer(threshold),
            "null_odds": self.null_odds,
            "n_best": [asdict(candidate) for candidate in self.n_best],
        }


@dataclass(frozen=True)
class CandidateSpans:
    """Candidate answers of all windows, unordered."""

    window: Int64[np.ndarray, " S"]
    """Index of the window."""
    first: Int64[np.ndarray, " S"]
    """First token, counted in the context."""
    last: Int64[np.ndarray, " S"]
    """Last token, inclusive, counted in the context."""
    start_logit: Float[np.ndarray, " S"]
    end_logit: Float[np.ndarray, " S"]

    @property
    def score(self) -> Float[np.ndarray, " S"]:
        """Sum of start and end logit."""
        return self.start_logit + self.end_logit


def answer_questions(windows: Windows, outputs: Outputs, config: SpanConfig) -> list[QuestionPrediction]:
    """Decode the answers to all questions, in their order, from the outputs of the head of `config` for every window."""
    assert len(outputs) == len(windows)
    if config.head == "joint":
        spans = select_beam_spans(windows, outputs, config.max_answer_length)
        window_odds = np.array([output["impossible_logit"] for output in outputs], dtype=np.float64)
    else:
        spans = select_plain_spans(windows, outputs, config)
        window_odds = np.array([each["start_logits"][0] + each["end_logits"][0] for each in outputs], dtype=np.float64)
    # A window without the answer has high null odds even if another window has it: take the minimum over the windows.
    odds = np.full(len(windows.questions), np.inf)
    np.minimum.at(odds, windows.question, window_odds)
    question = windows.question[spans.window]
    order = np.lexsort([-spans.score, question])
    bounds = np.searchsorted(question[order], np.arange(len(windows.questions) + 1))
    predictions = []
    for i, each in enumerate(windows.questions):
        ranked = rank_texts(windows, i, spans, order[bounds[i] : bounds[i + 1]], config.n_best_size)
        best_score = ranked[0].start_logit + ranked[0].end_logit if ranked and config.head == "plain" else 0.0
        predictions.append(QuestionPrediction(each.id, ranked, float(odds[i]) - best_score))
    return predictions


def select_beam_spans(windows: Windows, outputs: Outputs, max_answer_length: int) -> CandidateSpans:
    """Select the spans of the joint head's beams that can be answers.

    They start at a token that has its maximum context in the window, end in the window's part of the context, not before their
    start, and have at most `max_answer_length` tokens.
    """
    starts, ends = (np.stack([output[name] for output in outputs]).astype(np.int64) for name in ("starts", "ends"))
    start_log_probs, end_log_probs = (
        np.stack([output[name] for output in outputs]) for name in ("start_log_probs", "end_log_probs")
    )
    window, i, j = (index.ravel() for index in np.indices(ends.shape))
    shift = (windows.first - np.array(windows.examples.segment_a))[window]
    first, last = starts[window, i] + shift, ends[window, i, j] + shift
    in_max_context = (first >= windows.max_context[window, 0]) & (first < windows.max_context[window, 1])
    valid = in_max_context & (last < windows.end[window]) & (last >= first) & (last < first + max_answer_length)
    spans = window, first, last, start_log_probs[window, i], end_log_probs[window, i, j]
    return CandidateSpans(*(values[valid] for values in spans))


def select_plain_spans(windows: Windows, outputs: Outputs, config: SpanConfig) -> CandidateSpans:
    """Select the n best spans of each window that can be answers, by the logits of the plain head."""
    parts = []
    for window, output in enumerate(outputs):
        shift = int(windows.first[window]) - windows.examples.segment_a[window]
        low, high = (int(token) - shift for token in windows.max_context[window])
        starts = output["start_logits"][low:high]
        ends = output["end_logits"][low : int(windows.end[window]) - shift]
        i, j = select_best_pairs(starts, ends, config.max_answer_length, config.n_best_size)
        first = i + low + shift
        parts.append((np.full(len(i), window), first, first + j - i, starts[i], ends[j]))
    return CandidateSpans(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def select_best_pairs(
    starts: Float[np.ndarray, " I"], ends: Float[np.ndarray, " J"], width: int, number: int
) -> tuple[Int64[np.ndarray, " S"], Int64[np.ndarray, " S"]]:
    """Select the at most `number` pairs (i, j), 0 <= j - i < width, with the highest sums starts[i] + ends[j], unordered."""
    padded = np.concatenate([ends, np.full(width, -np.inf, dtype=ends.dtype)])
    band = np.lib.stride_tricks.sliding_window_view(padded, width)[: len(starts)]  # [i, j - i]
    sums = (starts[:, None] + band).ravel()
    best = np.argpartition(-sums, number)[:number] if len(sums) > number else np.arange(len(sums))
    i, length = np.divmod(best[np.isfinite(sums[best])], width)
    return i, i + length


def rank_texts(
    windows: Windows, question: int, spans: CandidateSpans, ranked: Int64[np.ndarray, " S"], number: int
) -> tuple[Candidate, ...]:
    """Return the best distinct texts of a question, at most `number`.

    Args:
        windows: Windows of all questions.
        question: Index of the question.
        spans: Candidate spans of all questions.
        ranked: Indices of the question's spans, the best first.
        number: Maximum number of texts.
    """
    found: dict[str, tuple[float, float]] = {}
    for i in ranked:
        text = windows.extract_text(question, int(spans.first[i]), int(spans.last[i]))
        found.setdefault(text, (float(spans.start_logit[i]), float(spans.end_logit[i])))
        if len(found) == number:
            break
    if not found and windows.contexts[question].ids:
        # A beam without a valid span is rare. Every question needs an answer, here the first token.
        found[windows.extract_text(question, 0, 0)] = (EXCLUDED, EXCLUDED)
    scores = np.array([start + end for start, end in found.values()])
    weights = np.exp(scores - scores.max(initial=-np.inf))
    probabilities = (weights / weights.sum()).tolist()
    return tuple(Candidate(text, p, *found[text]) for text, p in zip(found, probabilities, strict=True))
