"""Chunks: they cover the context, every token has its maximal context in one of them, targets give the answers."""

import tracemalloc

import numpy as np
import pytest
from support.errors import raises
from support.places import DATA
from support.squad_toys import TOKENIZER, build_question, draw_random_questions

from electra.errors import UsageError
from electra.finetuning.qa.chunks import Chunks, assign_max_context, chunk_questions, compute_chunk_starts
from electra.finetuning.qa.config import SpanConfig
from electra.finetuning.qa.data import Answer, Question, read_squad
from electra.text.tokenizer import load_tokenizer

SHARED = DATA
needs_squad = pytest.mark.skipif(not SHARED.is_dir(), reason=f"the real data are not at {SHARED}")

SHORT = SpanConfig(max_length=40, doc_stride=11, max_query_length=12)


@pytest.fixture(scope="module")
def chunks() -> Chunks:
    return chunk_questions(draw_random_questions(60), TOKENIZER, SHORT)


def rows_of(chunks: Chunks, question: int) -> np.ndarray:
    return np.flatnonzero(chunks.question == question)


def test_tokens_of_chunks(chunks: Chunks) -> None:
    for row, (ids, segment_a) in enumerate(zip(chunks.examples.input_ids, chunks.examples.segment_a, strict=True)):
        number = chunks.question[row]
        (asked,) = TOKENIZER.encode_lines([chunks.questions[number].question])
        shown = chunks.contexts[number].ids[chunks.first[row] : chunks.end[row]]
        prefix = [TOKENIZER.cls_id, *asked[:12], TOKENIZER.sep_id]
        assert ids == [*prefix, *shown, TOKENIZER.sep_id]
        assert segment_a == len(prefix)
        assert len(ids) <= 40


def test_chunks_cover_the_context_a_stride_apart(chunks: Chunks) -> None:
    several = 0
    for number, context in enumerate(chunks.contexts):
        rows = rows_of(chunks, number)
        several += len(rows) > 2
        assert chunks.first[rows[0]] == 0
        assert chunks.end[rows[-1]] == len(context.ids)
        assert (np.diff(chunks.first[rows]) == 11).all()
        assert (chunks.first[rows[1:]] <= chunks.end[rows[:-1]]).all()
        assert (chunks.end[rows[:-1]] < len(context.ids)).all(), "only the last chunk reaches the end of the context"
    assert several > 30


def test_every_token_has_its_maximal_context_in_one_chunk(chunks: Chunks) -> None:
    for number, context in enumerate(chunks.contexts):
        owners = np.zeros(len(context.ids), dtype=np.int64)
        for row in rows_of(chunks, number):
            own, end = chunks.max_context[row]
            assert chunks.first[row] <= own <= end <= chunks.end[row]
            owners[own:end] += 1
        assert (owners == 1).all()


@pytest.mark.parametrize(("tokens", "room", "stride"), [(1, 9, 4), (9, 9, 4), (10, 9, 4), (100, 9, 4), (700, 445, 128), (446, 445, 128), (50, 7, 30)])  # fmt: skip
def test_maximal_context_against_the_rule(tokens: int, room: int, stride: int) -> None:
    starts = compute_chunk_starts(tokens, room, stride)
    spans = [(start, min(start + room, tokens)) for start in starts]
    best = assign_max_context(starts, tokens, room)
    for token in range(tokens):
        scores = [
            min(token - start, end - 1 - token) + 0.01 * (end - start) if start <= token < end else -1.0
            for start, end in spans
        ]
        (owner,) = [i for i, (own, end) in enumerate(best) if own <= token < end]
        assert owner == scores.index(max(scores))


def gold_texts(chunks: Chunks) -> list[set[str]]:
    """Return the spans of the original text that the targets of each question mark."""
    targets = chunks.examples.targets
    shift = chunks.first - np.array(chunks.examples.segment_a)
    texts: list[set[str]] = [set() for _ in chunks.questions]
    for row, number in enumerate(chunks.question):
        start, end = targets["start"][row], targets["end"][row]
        assert (start == 0) == (end == 0)
        if start:
            texts[number].add(chunks.text(int(number), int(start + shift[row]), int(end + shift[row])))
    return texts


def test_answers_are_recovered_from_their_tokens() -> None:
    config = SpanConfig(max_length=60, doc_stride=11, max_query_length=12)
    questions = draw_random_questions(200, seed=1)
    for question, texts in zip(questions, gold_texts(chunk_questions(questions, TOKENIZER, config)), strict=True):
        assert texts <= {question.answers[0].text}
        assert texts or len(TOKENIZER.encode_lines([question.answers[0].text])[0]) > 20


def test_target_of_a_chunk_without_the_answer_is_cls(chunks: Chunks) -> None:
    targets = chunks.examples.targets
    halves = 0
    for row, number in enumerate(chunks.question):
        answer = chunks.questions[number].answers[0]
        assert answer.start is not None
        offsets = chunks.contexts[number].offsets[chunks.first[row] : chunks.end[row]]
        whole = offsets[0, 0] <= answer.start and answer.start + len(answer.text.rstrip("\u0301")) <= offsets[-1, 1]
        assert (targets["start"][row] > 0) == whole
        halves += not whole and offsets[0, 0] < answer.start < offsets[-1, 1]
    assert halves > 5
    assert targets["start"].dtype == np.int64


def test_impossible_is_a_property_of_the_question() -> None:
    long = " ".join(["Rome"] * 50)
    questions = [build_question("a", "Who?", f"Anna. {long}", "Anna"), build_question("b", "Who?", long)]
    chunks = chunk_questions(questions, TOKENIZER, SHORT)
    targets = chunks.examples.targets
    assert len(rows_of(chunks, 0)) > 1
    assert (targets["start"][1:] == 0).all()
    np.testing.assert_array_equal(targets["impossible"], chunks.question)


def test_answers_within_and_between_tokens() -> None:
    context = "In Oslo,met\u200b \u00adAnna."
    answers = {Answer("slo,me", 4): "Oslo,met", Answer("\u200b \u00ad", 11): "met", Answer("met", 8): "met"}
    questions = [Question(str(i), "Who?", context, (answer,), False) for i, answer in enumerate(answers)]
    assert gold_texts(chunk_questions(questions, TOKENIZER, SHORT)) == [{text} for text in answers.values()]


def test_long_questions_are_truncated_and_counted() -> None:
    questions = [build_question(str(n), "who " * n, "Anna met.", "Anna") for n in (1, 12, 13, 40)]
    chunks = chunk_questions(questions, TOKENIZER, SHORT)
    assert chunks.truncated_questions == 2
    assert chunks.examples.segment_a == [3, 14, 14, 14]


def test_no_targets_without_answers() -> None:
    chunks = chunk_questions([Question("a", "Who?", "Anna met.", (), False)], TOKENIZER, SHORT)
    assert chunks.examples.targets == {}
    assert len(chunks) == 1


@pytest.mark.slow
@needs_squad
@pytest.mark.parametrize("name", ["dev-v1.1", "dev-v2.0"])
def test_answers_of_real_questions_are_recovered(name: str) -> None:
    questions = read_squad(SHARED / f"squad/{name}.json.gz")[::20]
    chunks = chunk_questions(questions, load_tokenizer(SHARED / "vocab.txt"), SpanConfig(max_length=384))
    within_words = 0
    for question, texts in zip(questions, gold_texts(chunks), strict=True):
        if question.impossible:
            assert not texts
            continue
        (text,) = texts
        answer = question.answers[0]
        if text != answer.text.strip():  # the annotated answer begins or ends within a token
            within_words += 1
            assert answer.text.strip() in text
    assert within_words < 0.01 * len(questions)


def test_options_out_of_range() -> None:
    with raises(UsageError, "out-of-range", "--span.beam-size", 0, 1):
        SpanConfig(beam_size=0)
    with raises(UsageError, "too-short", "--max-length", 67, "--span.max-query-length", 64):
        SpanConfig(max_length=67)
    with raises(UsageError, "out-of-range", "--span.answerable-weight", -0.5):
        SpanConfig(answerable_weight=-0.5)


@pytest.mark.slow
@pytest.mark.parametrize(("room", "stride"), [(5, 2), (5, 5), (7, 9), (50, 1), (509, 128), (1500, 3)])
def test_maximal_context_of_long_contexts(room: int, stride: int) -> None:
    for tokens in (room + 1, 2 * room + 3, 1024, 1025, 3000):
        starts = compute_chunk_starts(tokens, room, stride)
        start = np.array(starts)[:, None]
        end = np.minimum(start + room, tokens)
        around = np.minimum(np.arange(tokens) - start, end - 1 - np.arange(tokens))
        chosen = np.where(around >= 0, 100 * around + end - start, -1).argmax(0)
        found = assign_max_context(starts, tokens, room)
        assert [i for i, (low, high) in enumerate(found) for _ in range(high - low)] == chosen.tolist()
        assert (found[0, 0], found[-1, 1]) == (0, tokens)


def test_memory_is_linear_in_the_context() -> None:
    tokens = 100_000
    tracemalloc.start()
    assign_max_context(compute_chunk_starts(tokens, 400, 128), tokens, 400)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6, "the matrix of all chunks and tokens has 625 MB"
