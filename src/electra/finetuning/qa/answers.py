"""From the outputs of a head to answers: the best spans of a question over all its chunks, and null odds.

Shapes: C chunks, S candidate spans, N questions.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from electra.finetuning.qa.chunks import Chunks
from electra.finetuning.qa.config import SpanConfig
from electra.finetuning.qa.heads import EXCLUDED
from electra.finetuning.task import Outputs


@dataclass(frozen=True)
class Candidate:
    """One of a question's n best answers."""

    text: str
    probability: float
    """Among the n best."""
    start_logit: float
    """A log-probability where the head is the joint one."""
    end_logit: float


@dataclass(frozen=True)
class QuestionPrediction:
    """The answers to one question."""

    id: str
    n_best: tuple[Candidate, ...]
    """The best first, no text twice. Empty only where the context has no token."""
    null_odds: float
    """Higher where an answer is less probable."""

    @property
    def best(self) -> str:
        """The best text."""
        return self.n_best[0].text if self.n_best else ""

    def answer(self, threshold: float) -> str:
        """The best text, or an empty one where the null odds are above the threshold."""
        return "" if self.null_odds > threshold else self.best

    def record(self, threshold: float | None) -> dict[str, Any]:
        """The prediction as JSON; without a threshold there is always an answer."""
        return {
            "id": self.id,
            "answer": self.best if threshold is None else self.answer(threshold),
            "null_odds": self.null_odds,
            "n_best": [asdict(candidate) for candidate in self.n_best],
        }


@dataclass(frozen=True)
class CandidateSpans:
    """Candidate answers of all chunks, unordered."""

    chunk: Int64[np.ndarray, " S"]
    first: Int64[np.ndarray, " S"]
    """The first token, counted in the context."""
    last: Int64[np.ndarray, " S"]
    """The last token, inclusive."""
    start_logit: Float[np.ndarray, " S"]
    end_logit: Float[np.ndarray, " S"]

    @property
    def score(self) -> Float[np.ndarray, " S"]:
        return self.start_logit + self.end_logit


def answer_questions(chunks: Chunks, outputs: Outputs, config: SpanConfig) -> list[QuestionPrediction]:
    """The answers to all questions, in their order; `outputs` are those of the head of `config`."""
    assert len(outputs) == len(chunks)
    if config.head == "joint":
        spans = select_beam_spans(chunks, outputs, config.max_answer_length)
        chunk_odds = np.array([each["impossible_logit"] for each in outputs], dtype=np.float64)
    else:
        spans = select_plain_spans(chunks, outputs, config)
        chunk_odds = np.array([each["start_logits"][0] + each["end_logits"][0] for each in outputs], dtype=np.float64)
    # A chunk without the answer has high odds of none, so the lowest odds of its chunks are those of the question.
    odds = np.full(len(chunks.questions), np.inf)
    np.minimum.at(odds, chunks.question, chunk_odds)
    question = chunks.question[spans.chunk]
    order = np.lexsort([-spans.score, question])
    bounds = np.searchsorted(question[order], np.arange(len(chunks.questions) + 1))
    answered = []
    for i, each in enumerate(chunks.questions):
        ranked = rank_texts(chunks, i, spans, order[bounds[i] : bounds[i + 1]], config.n_best_size)
        best_score = ranked[0].start_logit + ranked[0].end_logit if ranked and config.head == "plain" else 0.0
        answered.append(QuestionPrediction(each.id, ranked, float(odds[i]) - best_score))
    return answered


def select_beam_spans(chunks: Chunks, outputs: Outputs, max_answer_length: int) -> CandidateSpans:
    """The spans of the joint head's beams that can be answers.

    They start at a token that has its maximal context in the chunk, end in the chunk's part of the context, not before
    their start, and are not too long.
    """
    starts, ends = (np.stack([each[name] for each in outputs]).astype(np.int64) for name in ("starts", "ends"))
    start_log_probs, end_log_probs = (
        np.stack([each[name] for each in outputs]) for name in ("start_log_probs", "end_log_probs")
    )
    chunk, i, j = (index.ravel() for index in np.indices(ends.shape))
    shift = (chunks.first - np.array(chunks.examples.segment_a))[chunk]
    first, last = starts[chunk, i] + shift, ends[chunk, i, j] + shift
    owned = (first >= chunks.max_context[chunk, 0]) & (first < chunks.max_context[chunk, 1])
    valid = owned & (last < chunks.end[chunk]) & (last >= first) & (last < first + max_answer_length)
    spans = chunk, first, last, start_log_probs[chunk, i], end_log_probs[chunk, i, j]
    return CandidateSpans(*(each[valid] for each in spans))


def select_plain_spans(chunks: Chunks, outputs: Outputs, config: SpanConfig) -> CandidateSpans:
    """The n best of all spans of each chunk that can be answers, by the plain head's logits."""
    parts = []
    for chunk, output in enumerate(outputs):
        shift = int(chunks.first[chunk]) - chunks.examples.segment_a[chunk]
        own, own_end = (int(token) - shift for token in chunks.max_context[chunk])
        starts = output["start_logits"][own:own_end]
        ends = output["end_logits"][own : int(chunks.end[chunk]) - shift]
        i, j = select_best_pairs(starts, ends, config.max_answer_length, config.n_best_size)
        first = i + own + shift
        parts.append((np.full(len(i), chunk), first, first + j - i, starts[i], ends[j]))
    return CandidateSpans(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def select_best_pairs(
    starts: Float[np.ndarray, " I"], ends: Float[np.ndarray, " J"], width: int, number: int
) -> tuple[Int64[np.ndarray, " S"], Int64[np.ndarray, " S"]]:
    """The pairs (i, j), 0 <= j - i < width, of the highest sums of a start and an end, at most `number`, unordered."""
    padded = np.concatenate([ends, np.full(width, -np.inf, dtype=ends.dtype)])
    band = np.lib.stride_tricks.sliding_window_view(padded, width)[: len(starts)]  # [i, j - i]
    sums = (starts[:, None] + band).ravel()
    best = np.argpartition(-sums, number)[:number] if len(sums) > number else np.arange(len(sums))
    i, length = np.divmod(best[np.isfinite(sums[best])], width)
    return i, i + length


def rank_texts(
    chunks: Chunks, question: int, spans: CandidateSpans, ranked: Int64[np.ndarray, " S"], number: int
) -> tuple[Candidate, ...]:
    """The best distinct texts among a question's spans, whose rows are `ranked`, the best first."""
    found: dict[str, tuple[float, float]] = {}
    for row in ranked:
        text = chunks.text(question, int(spans.first[row]), int(spans.last[row]))
        found.setdefault(text, (float(spans.start_logit[row]), float(spans.end_logit[row])))
        if len(found) == number:
            break
    if not found and chunks.contexts[question].ids:
        # A beam without one valid span, which is rare. Every question needs an answer: the first token.
        found[chunks.text(question, 0, 0)] = (EXCLUDED, EXCLUDED)
    scores = np.array([start + end for start, end in found.values()])
    weights = np.exp(scores - scores.max(initial=-np.inf))
    probabilities = (weights / weights.sum()).tolist()
    return tuple(Candidate(text, p, *found[text]) for text, p in zip(found, probabilities, strict=True))
