"""Questions as token ids: long contexts in overlapping chunks, answers as positions of tokens.

Shapes: C chunks, T tokens of a context, K chunks of one question.
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
    """A context's tokens."""

    ids: list[int]
    offsets: Int64[np.ndarray, "T 2"]
    """The characters [start, end) of each token; both columns never decrease."""


@dataclass(frozen=True)
class Chunks:
    """The chunks `[CLS] question [SEP] part of the context [SEP]` of some questions, all of a question together."""

    questions: Sequence[Question]
    contexts: Sequence[Context]
    """The context of each question."""
    examples: EncodedExamples
    """Targets "start" and "end" (tokens of the chunk; 0, which is [CLS], where it has not the whole answer) and
    "impossible" (of the question, also for chunks without the answer); empty if a question has no target."""
    question: Int64[np.ndarray, " C"]
    """The question of each chunk."""
    first: Int64[np.ndarray, " C"]
    """The first token of the context in each chunk."""
    end: Int64[np.ndarray, " C"]
    """The end (exclusive) of the context's tokens in each chunk."""
    max_context: Int64[np.ndarray, "C 2"]
    """The tokens [from, to) of the context that have their maximal context in this chunk; only there may an answer start."""
    truncated_questions: int
    """Questions that were longer than the limit."""

    def __len__(self) -> int:
        return len(self.question)

    def text(self, question: int, first: int, last: int) -> str:
        """The original text of a question's context from one token to another, inclusive."""
        context, offsets = self.questions[question].context, self.contexts[question].offsets
        start, end = int(offsets[first, 0]), int(offsets[last, 1])
        # A combining accent that normalization removed is not part of the token's offsets.
        while end < len(context) and combining(context[end]):
            end += 1
        return context[start:end]


BLOCK_TOKENS = 1024
"""Tokens of a context that are compared with all their chunks at a time."""


def chunk_questions(questions: Sequence[Question], tokenizer: Tokenizer, config: SpanConfig) -> Chunks:
    """Every question with every chunk of its context."""
    encoded = encode_contexts([each.context for each in questions], tokenizer)
    contexts = [encoded[each.context] for each in questions]
    queries = encode_with_progress(tokenizer.encode_lines, [each.question for each in questions])
    capacities = [config.max_length - 3 - min(len(ids), config.max_query_length) for ids in queries]
    cuts = [
        compute_chunk_starts(len(context.ids), space, config.doc_stride)
        for context, space in zip(contexts, capacities, strict=True)
    ]
    input_ids, segment_a = [], []
    for context, question, starts, space in zip(contexts, queries, cuts, capacities, strict=True):
        prefix = [tokenizer.cls_id, *question[: config.max_query_length], tokenizer.sep_id]
        for start in starts:
            input_ids.append([*prefix, *context.ids[start : start + space], tokenizer.sep_id])
            segment_a.append(len(prefix))
    owner = np.repeat(np.arange(len(questions)), [len(starts) for starts in cuts])
    first = np.concatenate([np.array(starts, dtype=np.int64) for starts in cuts])
    end = first + np.array([len(row) for row in input_ids]) - np.array(segment_a) - 1
    known = all(each.has_target for each in questions)
    targets = build_span_targets(questions, contexts, owner, first, end, np.array(segment_a)) if known else {}
    return Chunks(
        questions=questions,
        contexts=contexts,
        examples=EncodedExamples(input_ids, segment_a, targets),
        question=owner,
        first=first,
        end=end,
        max_context=np.concatenate(
            [
                assign_max_context(starts, len(c.ids), space)
                for starts, c, space in zip(cuts, contexts, capacities, strict=True)
            ]
        ),
        truncated_questions=sum(len(ids) > config.max_query_length for ids in queries),
    )


def encode_contexts(contexts: list[str], tokenizer: Tokenizer) -> dict[str, Context]:
    """The tokens of each distinct context by its text; many questions share one."""
    distinct = list(dict.fromkeys(contexts))
    encoded = encode_with_progress(tokenizer.encode_with_offsets, distinct)
    return {
        text: Context(ids, np.array(offsets, dtype=np.int64).reshape(-1, 2))
        for text, (ids, offsets) in zip(distinct, encoded, strict=True)
    }


def compute_chunk_starts(tokens: int, capacity: int, stride: int) -> range:
    """The starts of the chunks of a context: `stride` apart, without gaps, until one reaches the end."""
    step = min(stride, capacity)
    return range(0, -(-max(tokens - capacity, 0) // step) * step + 1, step)


def assign_max_context(starts: Sequence[int], tokens: int, capacity: int) -> Int64[np.ndarray, "K 2"]:
    """For each chunk of a context, the tokens [from, to) for which no other chunk has more context.

    The context of a token in a chunk is the smaller of the numbers of tokens to the left and to the
    right, plus a hundredth of the chunk's length (BERT's rule); the first of equal chunks wins. The tokens
    of a chunk are then contiguous, and those of all chunks partition the context.
    """
    if len(starts) == 1:
        return np.array([[0, tokens]])
    step = starts[1] - starts[0]
    best = np.empty(tokens, dtype=np.int64)
    for low in range(0, tokens, BLOCK_TOKENS):  # a context may be a whole book, of which few chunks have the same token
        high = min(low + BLOCK_TOKENS, tokens)
        first = max((low - capacity) // step + 1, 0)
        start = np.array(starts[first : (high - 1) // step + 1])[:, None]
        end = np.minimum(start + capacity, tokens)
        position = np.arange(low, high)
        around = np.minimum(position - start, end - 1 - position)
        score = np.where(around >= 0, 100 * around + end - start, -1)
        best[low:high] = first + score.argmax(0)
    bounds = np.cumsum(np.bincount(best, minlength=len(starts)))
    return np.stack([np.append(0, bounds[:-1]), bounds], axis=1)


def build_span_targets(
    questions: Sequence[Question],
    contexts: Sequence[Context],
    question: Int64[np.ndarray, " C"],
    first: Int64[np.ndarray, " C"],
    end: Int64[np.ndarray, " C"],
    segment_a: Int64[np.ndarray, " C"],
) -> dict[str, np.ndarray]:
    """The targets of chunks with the context's tokens [first, end)."""
    spans = np.array([locate_answer(*each) for each in zip(questions, contexts, strict=True)])[question]
    inside = (spans[:, 0] >= first) & (spans[:, 1] < end)
    positions = np.where(inside[:, None], spans + (segment_a - first)[:, None], 0)
    impossible = np.array([each.impossible for each in questions], dtype=np.int64)
    return {"start": positions[:, 0], "end": positions[:, 1], "impossible": impossible[question]}


def locate_answer(question: Question, context: Context) -> tuple[int, int]:
    """First and last token of the context that cover the answer; (-1, -1), which no chunk has, without one."""
    if question.impossible or not len(context.ids):
        return -1, -1
    answer = question.answers[0]
    assert answer.start is not None
    first = int(np.searchsorted(context.offsets[:, 1], answer.start, side="right"))
    last = int(np.searchsorted(context.offsets[:, 0], answer.start + len(answer.text), side="left")) - 1
    # An answer that normalization removes whole is between two tokens: take the one before.
    last = max(last, 0)
    return min(first, last), last
