"""Windows: they cover the context, every token has its maximal context in one of them, answers are recovered."""

import tracemalloc

import numpy as np
import pytest
from support.places import DATA
from support.squad_toys import TOKENIZER, ask, nonsense

from electra.errors import UsageError
from electra.finetuning.qa.config import SpanConfig
from electra.finetuning.qa.data import Answer, Question, read_squad
from electra.finetuning.qa.windows import Windows, assign_max_context, build_windows, compute_window_starts
from electra.text.tokenizer import load_tokenizer

SHARED = DATA
needs_squad = pytest.mark.skipif(not SHARED.is_dir(), reason=f"the real data are not at {SHARED}")

SHORT = SpanConfig(max_length=40, doc_stride=11, max_query_length=12)


@pytest.fixture(scope="module")
def windows() -> Windows:
    return build_windows(nonsense(60), TOKENIZER, SHORT)


def rows_of(windows: Windows, question: int) -> np.ndarray:
    return np.flatnonzero(windows.question == question)


def test_tokens_of_chunks(windows: Windows) -> None:
    for row, (ids, segment_a) in enumerate(zip(windows.examples.input_ids, windows.examples.segment_a, strict=True)):
        number = windows.question[row]
        (asked,) = TOKENIZER.encode_lines([windows.questions[number].question])
        shown = windows.contexts[number].ids[windows.first[row] : windows.end[row]]
        prefix = [TOKENIZER.cls_id, *asked[:12], TOKENIZER.sep_id]
        assert ids == [*prefix, *shown, TOKENIZER.sep_id]
        assert segment_a == len(prefix)
        assert len(ids) <= 40


def test_chunks_cover_the_context_a_stride_apart(windows: Windows) -> None:
    several = 0
    for number, context in enumerate(windows.contexts):
        rows = rows_of(windows, number)
        several += len(rows) > 2
        assert windows.first[rows[0]] == 0
        assert windows.end[rows[-1]] == len(context.ids)
        assert (np.diff(windows.first[rows]) == 11).all()
        assert (windows.first[rows[1:]] <= windows.end[rows[:-1]]).all()
        assert (windows.end[rows[:-1]] < len(context.ids)).all(), "no window more than is needed"
    assert several > 30


def test_every_token_has_its_maximal_context_in_one_chunk(windows: Windows) -> None:
    for number, context in enumerate(windows.contexts):
        owners = np.zeros(len(context.ids), dtype=np.int64)
        for row in rows_of(windows, number):
            own, end = windows.max_context[row]
            assert windows.first[row] <= own <= end <= windows.end[row]
            owners[own:end] += 1
        assert (owners == 1).all()


@pytest.mark.parametrize(("tokens", "room", "stride"), [(1, 9, 4), (9, 9, 4), (10, 9, 4), (100, 9, 4), (700, 445, 128), (446, 445, 128), (50, 7, 30)])  # fmt: skip
def test_maximal_context_against_the_rule(tokens: int, room: int, stride: int) -> None:
    starts = compute_window_starts(tokens, room, stride)
    spans = [(start, min(start + room, tokens)) for start in starts]
    best = assign_max_context(starts, tokens, room)
    for token in range(tokens):
        scores = [
            min(token - start, end - 1 - token) + 0.01 * (end - start) if start <= token < end else -1.0
            for start, end in spans
        ]
        (owner,) = [i for i, (own, end) in enumerate(best) if own <= token < end]
        assert owner == scores.index(max(scores))


def gold_texts(windows: Windows) -> list[set[str]]:
    """What each question's targets stand for, in the original text."""
    targets = windows.examples.targets
    shift = windows.first - np.array(windows.examples.segment_a)
    texts: list[set[str]] = [set() for _ in windows.questions]
    for row, number in enumerate(windows.question):
        start, end = targets["start"][row], targets["end"][row]
        assert (start == 0) == (end == 0)
        if start:
            texts[number].add(windows.extract_text(int(number), int(start + shift[row]), int(end + shift[row])))
    return texts


def test_answers_are_recovered_from_their_tokens() -> None:
    config = SpanConfig(max_length=60, doc_stride=11, max_query_length=12)
    questions = nonsense(200, seed=1)
    for question, texts in zip(questions, gold_texts(build_windows(questions, TOKENIZER, config)), strict=True):
        assert texts <= {question.answers[0].text}
        assert texts or len(TOKENIZER.encode_lines([question.answers[0].text])[0]) > 20


def test_target_of_a_chunk_without_the_answer_is_cls(windows: Windows) -> None:
    targets = windows.examples.targets
    halves = 0
    for row, number in enumerate(windows.question):
        answer = windows.questions[number].answers[0]
        assert answer.start is not None
        offsets = windows.contexts[number].offsets[windows.first[row] : windows.end[row]]
        whole = offsets[0, 0] <= answer.start and answer.start + len(answer.text.rstrip("\u0301")) <= offsets[-1, 1]
        assert (targets["start"][row] > 0) == whole
        halves += not whole and offsets[0, 0] < answer.start < offsets[-1, 1]
    assert halves > 5
    assert targets["start"].dtype == np.int64


def test_impossible_is_a_property_of_the_question() -> None:
    long = " ".join(["Rome"] * 50)
    questions = [ask("a", "Who?", f"Anna. {long}", "Anna"), ask("b", "Who?", long)]
    windows = build_windows(questions, TOKENIZER, SHORT)
    targets = windows.examples.targets
    assert len(rows_of(windows, 0)) > 1
    assert (targets["start"][1:] == 0).all()
    np.testing.assert_array_equal(targets["impossible"], windows.question)


def test_answers_within_and_between_tokens() -> None:
    context = "In Oslo,met\u200b \u00adAnna."
    answers = {Answer("slo,me", 4): "Oslo,met", Answer("\u200b \u00ad", 11): "met", Answer("met", 8): "met"}
    questions = [Question(str(i), "Who?", context, (answer,), False) for i, answer in enumerate(answers)]
    assert gold_texts(build_windows(questions, TOKENIZER, SHORT)) == [{text} for text in answers.values()]


def test_long_questions_are_truncated_and_counted() -> None:
    questions = [ask(str(n), "who " * n, "Anna met.", "Anna") for n in (1, 12, 13, 40)]
    windows = build_windows(questions, TOKENIZER, SHORT)
    assert windows.truncated_questions == 2
    assert windows.examples.segment_a == [3, 14, 14, 14]


def test_no_targets_without_answers() -> None:
    windows = build_windows([Question("a", "Who?", "Anna met.", (), False)], TOKENIZER, SHORT)
    assert windows.examples.targets == {}
    assert len(windows) == 1


@pytest.mark.slow
@needs_squad
@pytest.mark.parametrize("name", ["dev-v1.1", "dev-v2.0"])
def test_answers_of_real_questions_are_recovered(name: str) -> None:
    questions = read_squad(SHARED / f"squad/{name}.json.gz")[::20]
    windows = build_windows(questions, load_tokenizer(SHARED / "vocab.txt"), SpanConfig(max_length=384))
    within_words = 0
    for question, texts in zip(questions, gold_texts(windows), strict=True):
        if question.impossible:
            assert not texts
            continue
        (text,) = texts
        answer = question.answers[0]
        if text != answer.text.strip():  # the annotator cut a token in two
            within_words += 1
            assert answer.text.strip() in text
    assert within_words < 0.01 * len(questions)


def test_options_out_of_range() -> None:
    with pytest.raises(UsageError, match=r"--span\.beam-size is 0; it must be at least 1"):
        SpanConfig(beam_size=0)
    with pytest.raises(UsageError, match=r"--max-length 67 is too small for a question of --span\.max-query-length 64"):
        SpanConfig(max_length=67)
    with pytest.raises(UsageError, match=r"--span\.answerable-weight is -0\.5"):
        SpanConfig(answerable_weight=-0.5)


@pytest.mark.slow
@pytest.mark.parametrize(("room", "stride"), [(5, 2), (5, 5), (7, 9), (50, 1), (509, 128), (1500, 3)])
def test_maximal_context_in_blocks(room: int, stride: int) -> None:
    for tokens in (room + 1, 2 * room + 3, 1024, 1025, 3000):
        starts = compute_window_starts(tokens, room, stride)
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
    assign_max_context(compute_window_starts(tokens, 400, 128), tokens, 400)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6, "the matrix of all windows and tokens has 625 MB"
