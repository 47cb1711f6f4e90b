"""Questions as the network reads them: long contexts cut into chunks that overlap, answers as positions of tokens.

Letters of shapes: C chunks, T tokens of a context, K chunks of one question.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from unicodedata import combining

import numpy as np
from jaxtyping import Int64

from electra.finetuning.batching import Features, encode_in_parts
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
    """Of each question."""
    features: Features
    """Targets "start" and "end" (tokens of the chunk; 0, which is [CLS], where it has not the whole answer) and
    "impossible" (the question's, also for chunks without the answer); none if a question has no target."""
    question: Int64[np.ndarray, " C"]
    """Which question a chunk belongs to."""
    first: Int64[np.ndarray, " C"]
    """Where a chunk begins in the context's tokens."""
    end: Int64[np.ndarray, " C"]
    """Behind the last of the context's tokens in a chunk."""
    best: Int64[np.ndarray, "C 2"]
    """The tokens [from, to) of the context that have their maximal context in this chunk: an answer starts there."""
    truncated_questions: int
    """Questions that were longer than the limit."""

    def __len__(self) -> int:
        return len(self.question)

    def text(self, question: int, first: int, last: int) -> str:
        """The original text of a question's context from one token to another, inclusive."""
        context, offsets = self.questions[question].context, self.contexts[question].offsets
        start, end = int(offsets[first, 0]), int(offsets[last, 1])
        # An accent that is a character of its own is no part of the token once normalization has taken it away.
        while end < len(context) and combining(context[end]):
            end += 1
        return context[start:end]


BLOCK_TOKENS = 1024
"""Tokens of a context that are compared with all chunks that show them at a time."""


def chunk_questions(questions: Sequence[Question], tokenizer: Tokenizer, config: SpanConfig) -> Chunks:
    """Every question with every chunk of its context."""
    encoded = encode_contexts([each.context for each in questions], tokenizer)
    contexts = [encoded[each.context] for each in questions]
    asked = encode_in_parts(tokenizer.encode_lines, [each.question for each in questions])
    room = [config.max_length - 3 - min(len(ids), config.max_query_length) for ids in asked]
    cuts = [
        chunk_starts(len(context.ids), space, config.doc_stride) for context, space in zip(contexts, room, strict=True)
    ]
    ids, segment_a = [], []
    for context, question, starts, space in zip(contexts, asked, cuts, room, strict=True):
        prefix = [tokenizer.cls_id, *question[: config.max_query_length], tokenizer.sep_id]
        for start in starts:
            ids.append([*prefix, *context.ids[start : start + space], tokenizer.sep_id])
            segment_a.append(len(prefix))
    owner = np.repeat(np.arange(len(questions)), [len(starts) for starts in cuts])
    first = np.concatenate([np.array(starts, dtype=np.int64) for starts in cuts])
    end = first + np.array([len(row) for row in ids]) - np.array(segment_a) - 1
    known = all(each.has_target for each in questions)
    targets = span_targets(questions, contexts, owner, first, end, np.array(segment_a)) if known else {}
    return Chunks(
        questions=questions,
        contexts=contexts,
        features=Features(ids, segment_a, targets),
        question=owner,
        first=first,
        end=end,
        best=np.concatenate(
            [best_contexts(starts, len(c.ids), space) for starts, c, space in zip(cuts, contexts, room, strict=True)]
        ),
        truncated_questions=sum(len(ids) > config.max_query_length for ids in asked),
    )


def encode_contexts(contexts: list[str], tokenizer: Tokenizer) -> dict[str, Context]:
    """Each different context once; many questions share one."""
    different = list(dict.fromkeys(contexts))
    encoded = encode_in_parts(tokenizer.encode_with_offsets, different)
    return {
        text: Context(ids, np.array(offsets, dtype=np.int64).reshape(-1, 2))
        for text, (ids, offsets) in zip(different, encoded, strict=True)
    }


def chunk_starts(tokens: int, room: int, stride: int) -> range:
    """Where the chunks of a context begin: `stride` apart, with no gap, until one reaches the end."""
    step = min(stride, room)
    return range(0, -(-max(tokens - room, 0) // step) * step + 1, step)


def best_contexts(starts: Sequence[int], tokens: int, room: int) -> Int64[np.ndarray, "K 2"]:
    """For each chunk of a context, the tokens [from, to) that no other chunk shows with more around them.

    How much a chunk shows of a token's surroundings is the smaller of the numbers of tokens to the left and to the
    right, plus a hundredth of the chunk's length (BERT's rule); the first of equal chunks has the token. The tokens
    of a chunk then lie together, and the chunks' tokens tile the context.
    """
    if len(starts) == 1:
        return np.array([[0, tokens]])
    step = starts[1] - starts[0]
    best = np.empty(tokens, dtype=np.int64)
    for low in range(0, tokens, BLOCK_TOKENS):  # a context may be a whole book, of which few chunks show the same token
        high = min(low + BLOCK_TOKENS, tokens)
        first = max((low - room) // step + 1, 0)
        start = np.array(starts[first : (high - 1) // step + 1])[:, None]
        end = np.minimum(start + room, tokens)
        position = np.arange(low, high)
        around = np.minimum(position - start, end - 1 - position)
        score = np.where(around >= 0, 100 * around + end - start, -1)
        best[low:high] = first + score.argmax(0)
    bounds = np.cumsum(np.bincount(best, minlength=len(starts)))
    return np.stack([np.append(0, bounds[:-1]), bounds], axis=1)


def span_targets(
    questions: Sequence[Question],
    contexts: Sequence[Context],
    question: Int64[np.ndarray, " C"],
    first: Int64[np.ndarray, " C"],
    end: Int64[np.ndarray, " C"],
    segment_a: Int64[np.ndarray, " C"],
) -> dict[str, np.ndarray]:
    """The targets of chunks that show the context's tokens [first, end)."""
    spans = np.array([answer_tokens(*each) for each in zip(questions, contexts, strict=True)])[question]
    shown = (spans[:, 0] >= first) & (spans[:, 1] < end)
    positions = np.where(shown[:, None], spans + (segment_a - first)[:, None], 0)
    impossible = np.array([each.impossible for each in questions], dtype=np.int64)
    return {"start": positions[:, 0], "end": positions[:, 1], "impossible": impossible[question]}


def answer_tokens(question: Question, context: Context) -> tuple[int, int]:
    """First and last token of the context that cover the answer; (-1, -1), which no chunk has, without one."""
    if question.impossible or not len(context.ids):
        return -1, -1
    answer = question.answers[0]
    assert answer.start is not None
    first = int(np.searchsorted(context.offsets[:, 1], answer.start, side="right"))
    last = int(np.searchsorted(context.offsets[:, 0], answer.start + len(answer.text), side="left")) - 1
    # An answer of nothing but what normalization takes away lies between two tokens: it goes to the one before.
    last = max(last, 0)
    return min(first, last), last
