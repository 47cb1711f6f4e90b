"""Tokenization of questions: long contexts are split into overlapping windows, answers are token positions.

Shapes: W windows of all questions, K windows of one question, T tokens of a context.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import combining

import numpy as np
from jaxtyping import Int64

from electra.finetuning.batching import EncodedExamples, encode_with_progress
from electra.finetuning.qa.config import SpanConfig
from electra.finetuning.qa.data import Question
from electra.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Context:
    """The tokens of a context."""

    ids: list[int]
    offsets: Int64[np.ndarray, "T 2"]
    """Characters [start, end) of each token; neither column decreases."""


@dataclass(frozen=True)
class Windows:
    """Windows `[CLS] question [SEP] part of the context [SEP]` of questions; those of a question are consecutive."""

    questions: Sequence[Question]
    contexts: Sequence[Context]
    """Context of each question."""
    examples: EncodedExamples
    """Token ids of the windows. Targets: "start" and "end", positions in the window (0, that of [CLS], in a window without the
    whole answer), and "impossible", 1 if the question is impossible; no targets if a question has none."""
    question: Int64[np.ndarray, " W"]
    """Index of the question of each window."""
    first: Int64[np.ndarray, " W"]
    """First token of each window, counted in the context."""
    end: Int64[np.ndarray, " W"]
    """End (exclusive) of each window, counted in the context."""
    max_context: Int64[np.ndarray, "W 2"]
    """Tokens [from, to) of the context that have their maximum context in this window (see `assign_max_context`); answers of
    the window start there."""
    truncated_questions: int
    """Number of questions longer than `SpanConfig.max_query_length`."""

    def __len__(self) -> int:
        return len(self.question)

    def extract_text(self, question: int, first: int, last: int) -> str:
        """Return the text of a question's context from its token `first` to its token `last`, inclusive."""
        context, offsets = self.questions[question].context, self.contexts[question].offsets
        start, end = int(offsets[first, 0]), int(offsets[last, 1])
        # The offsets of a token exclude a combining accent that normalization removed.
        while end < len(context) and combining(context[end]):
            end += 1
        return context[start:end]


BLOCK_TOKENS = 1024
"""Tokens of a context that `assign_max_context` compares with their windows at a time."""


def build_windows(questions: Sequence[Question], tokenizer: Tokenizer, config: SpanConfig) -> Windows:
    """Tokenize questions and contexts, and build every window of every question."""
    encoded = encode_contexts([question.context for question in questions], tokenizer)
    contexts = [encoded[question.context] for question in questions]
    queries = encode_with_progress(tokenizer.encode_lines, [question.question for question in questions])
    capacities = [config.max_length - 3 - min(len(ids), config.max_query_length) for ids in queries]
    all_starts = [
        compute_window_starts(len(context.ids), capacity, config.doc_stride)
        for context, capacity in zip(contexts, capacities, strict=True)
    ]
    input_ids, segment_a = [], []
    for context, query, starts, capacity in zip(contexts, queries, all_starts, capacities, strict=True):
        prefix = [tokenizer.cls_id, *query[: config.max_query_length], tokenizer.sep_id]
        for start in starts:
            input_ids.append([*prefix, *context.ids[start : start + capacity], tokenizer.sep_id])
            segment_a.append(len(prefix))
    question_index = np.repeat(np.arange(len(questions)), [len(starts) for starts in all_starts])
    first = np.concatenate([np.array(starts, dtype=np.int64) for starts in all_starts])
    end = first + np.array([len(ids) for ids in input_ids]) - np.array(segment_a) - 1
    targets: dict[str, np.ndarray] = {}
    if all(question.has_target for question in questions):
        targets = build_span_targets(questions, contexts, question_index, first, end, np.array(segment_a))
    return Windows(
        questions=questions,
        contexts=contexts,
        examples=EncodedExamples(input_ids, segment_a, targets),
        question=question_index,
        first=first,
        end=end,
        max_context=np.concatenate(
            [
                assign_max_context(starts, len(context.ids), capacity)
                for starts, context, capacity in zip(all_starts, contexts, capacities, strict=True)
            ]
        ),
        truncated_questions=sum(len(ids) > config.max_query_length for ids in queries),
    )


def encode_contexts(contexts: list[str], tokenizer: Tokenizer) -> dict[str, Context]:
    """Tokenize each distinct context once, because many questions share one: text -> tokens."""
    distinct = list(dict.fromkeys(contexts))
    encoded = encode_with_progress(tokenizer.encode_with_offsets, distinct)
    return {
        text: Context(ids, np.array(offsets, dtype=np.int64).reshape(-1, 2))
        for text, (ids, offsets) in zip(distinct, encoded, strict=True)
    }


def compute_window_starts(num_tokens: int, capacity: int, stride: int) -> range:
    """Compute the first token of each window of a context of `num_tokens` tokens.

    Windows have up to `capacity` tokens of the context, start `stride` tokens apart (at most `capacity`, so that there are no
    gaps), and the last one reaches the end.
    """
    step = min(stride, capacity)
    return range(0, -(-max(num_tokens - capacity, 0) // step) * step + 1, step)


def assign_max_context(starts: Sequence[int], num_tokens: int, capacity: int) -> Int64[np.ndarray, "K 2"]:
    """Assign each token of a context to the window in which it has its maximum context, by BERT's rule.

    The context of a token in a window is the smaller of the numbers of tokens to its left and to its right, plus a hundredth
    of the window's length; of equal windows, the first is taken. The tokens of a window are then consecutive, and those of
    all windows partition the context.

    Args:
        starts: First token of each window.
        num_tokens: Tokens of the context.
        capacity: Maximum tokens of the context in a window.

    Returns:
        The tokens [from, to) of each window.
    """
    if len(starts) == 1:
        return np.array([[0, num_tokens]])
    step = starts[1] - starts[0]
    best = np.empty(num_tokens, dtype=np.int64)
    # In blocks, because for a long context, a book for instance, the matrix of all windows and tokens is too large.
    for low in range(0, num_tokens, BLOCK_TOKENS):
        high = min(low + BLOCK_TOKENS, num_tokens)
        first = max((low - capacity) // step + 1, 0)
        start = np.array(starts[first : (high - 1) // step + 1])[:, None]
        end = np.minimum(start + capacity, num_tokens)
        position = np.arange(low, high)
        around = np.minimum(position - start, end - 1 - position)
        score = np.where(around >= 0, 100 * around + end - start, -1)
        best[low:high] = first + score.argmax(0)
    bounds = np.cumsum(np.bincount(best, minlength=len(starts)))
    return np.stack([np.append(0, bounds[:-1]), bounds], axis=1)


def build_span_targets(
    questions: Sequence[Question],
    contexts: Sequence[Context],
    question: Int64[np.ndarray, " W"],
    first: Int64[np.ndarray, " W"],
    end: Int64[np.ndarray, " W"],
    segment_a: Int64[np.ndarray, " W"],
) -> dict[str, np.ndarray]:
    """Build the targets of windows: "start", "end" and "impossible", each [W]; see `Windows.examples`.

    Args:
        questions: Questions with a target.
        contexts: Context of each question.
        question: Index of the question of each window.
        first: First token of each window, counted in the context.
        end: End (exclusive) of each window, counted in the context.
        segment_a: Tokens of `[CLS] question [SEP]` in each window.
    """
    spans = np.array([locate_answer(*pair) for pair in zip(questions, contexts, strict=True)])[question]
    inside = (spans[:, 0] >= first) & (spans[:, 1] < end)
    positions = np.where(inside[:, None], spans + (segment_a - first)[:, None], 0)
    impossible = np.array([each.impossible for each in questions], dtype=np.int64)
    return {"start": positions[:, 0], "end": positions[:, 1], "impossible": impossible[question]}


def locate_answer(question: Question, context: Context) -> tuple[int, int]:
    """Return the first and the last token of the context that cover the first answer; (-1, -1) if there is no answer."""
    if question.impossible or not len(context.ids):
        return -1, -1
    answer = question.answers[0]
    assert answer.start is not None
    first = int(np.searchsorted(context.offsets[:, 1], answer.start, side="right"))
    last = int(np.searchsorted(context.offsets[:, 0], answer.start + len(answer.text), side="left")) - 1
    # An answer that normalization removes completely is between two tokens: take the one before.
    last = max(last, 0)
    return min(first, last), last
