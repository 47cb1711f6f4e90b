"""Answers compared with a search over all spans of all chunks; null odds; n-best lists."""

import math

import numpy as np
import pytest
from support.squad_toys import TOKENIZER, build_question, draw_beam, draw_random_questions

from electra.finetuning.qa.answers import answer_questions
from electra.finetuning.qa.chunks import Chunks, chunk_questions
from electra.finetuning.qa.config import SpanConfig
from electra.finetuning.qa.data import Question

JOINT = SpanConfig(max_length=40, doc_stride=11, max_query_length=12, max_answer_length=6, n_best_size=5, beam_size=9)
PLAIN = SpanConfig(max_length=40, doc_stride=11, max_query_length=12, max_answer_length=6, n_best_size=5, head="plain")


@pytest.fixture(scope="module")
def chunks() -> Chunks:
    return chunk_questions(draw_random_questions(40), TOKENIZER, JOINT)


def plain_outputs(chunks: Chunks) -> list[dict[str, np.ndarray]]:
    """Return random logits, each chunk padded to another length, with high logits at the padding."""
    rng = np.random.default_rng(0)
    outputs = []
    for ids in chunks.examples.input_ids:
        padded = len(ids) + int(rng.integers(0, 4))
        output = {name: rng.normal(size=padded).astype(np.float32) for name in ("start_logits", "end_logits")}
        for logits in output.values():
            logits[len(ids) - 1 :] = 50.0
        outputs.append(output)
    return outputs


def list_spans(chunks: Chunks, question: int, row: int) -> list[tuple[int, int, str]]:
    """Return start and end in the chunk, and text, of every span of a chunk that can be an answer."""
    shift = int(chunks.first[row]) - chunks.examples.segment_a[row]
    spans = []
    for start in range(int(chunks.max_context[row, 0]), int(chunks.max_context[row, 1])):
        for end in range(start, min(start + 6, int(chunks.end[row]))):
            spans.append((start - shift, end - shift, chunks.text(question, start, end)))
    return spans


def expected_n_best(scored: list[tuple[float, str]]) -> list[tuple[str, float]]:
    best: dict[str, float] = {}
    for score, text in sorted(scored, reverse=True):
        best.setdefault(text, score)
    return list(best.items())[:5]


def test_plain_answers_are_the_best_of_all_spans(chunks: Chunks) -> None:
    outputs = plain_outputs(chunks)
    for question, answered in enumerate(answer_questions(chunks, outputs, PLAIN)):
        rows = np.flatnonzero(chunks.question == question)
        scored = [
            (float(outputs[row]["start_logits"][start] + outputs[row]["end_logits"][end]), text)
            for row in rows
            for start, end, text in list_spans(chunks, question, row)
        ]
        best_text, best_score = expected_n_best(scored)[0]
        assert answered.best == best_text
        assert answered.n_best[0].start_logit + answered.n_best[0].end_logit == pytest.approx(best_score, abs=1e-5)
        null = min(float(outputs[row]["start_logits"][0] + outputs[row]["end_logits"][0]) for row in rows)
        assert answered.null_odds == pytest.approx(null - best_score, abs=1e-5)


def test_joint_answers_are_the_best_of_the_beams(chunks: Chunks) -> None:
    rng = np.random.default_rng(1)
    outputs = [draw_beam(len(ids), 9, rng) for ids in chunks.examples.input_ids]
    answers = answer_questions(chunks, outputs, JOINT)
    assert [each.id for each in answers] == [each.id for each in chunks.questions]
    for question, answered in enumerate(answers):
        rows = np.flatnonzero(chunks.question == question)
        scored = []
        for row in rows:
            spans = {(start, end): text for start, end, text in list_spans(chunks, question, row)}
            output = outputs[row]
            for i in range(9):
                for j in range(9):
                    span = int(output["starts"][i]), int(output["ends"][i, j])
                    if span in spans:
                        score = float(output["start_log_probs"][i] + output["end_log_probs"][i, j])
                        scored.append((score, spans[span]))
        expected = expected_n_best(scored)
        if expected:
            assert [each.text for each in answered.n_best] == [text for text, _ in expected]
            total = sum(math.exp(score) for _, score in expected)
            probabilities = [math.exp(score) / total for _, score in expected]
            assert [each.probability for each in answered.n_best] == pytest.approx(probabilities, abs=1e-5)
        assert answered.null_odds == pytest.approx(min(float(outputs[row]["impossible_logit"]) for row in rows))


def test_empty_answer_only_above_the_threshold(chunks: Chunks) -> None:
    for answered in answer_questions(chunks, plain_outputs(chunks), PLAIN):
        assert answered.answer(answered.null_odds) == answered.best != ""
        assert answered.answer(np.nextafter(answered.null_odds, -np.inf)) == ""


def test_default_thresholds() -> None:
    assert (JOINT.threshold, PLAIN.threshold) == (-2.75, 0.0)
    assert SpanConfig(null_threshold=1.5).threshold == 1.5


def test_answer_without_a_valid_span_in_the_beam() -> None:
    chunks = chunk_questions([build_question("a", "Who?", "Anna met Carl.", "Anna")], TOKENIZER, JOINT)
    only_cls = {name: np.zeros_like(value) for name, value in draw_beam(8, 9, np.random.default_rng(0)).items()}
    (answered,) = answer_questions(chunks, [only_cls], JOINT)
    assert [each.text for each in answered.n_best] == ["Anna"]
    assert answered.n_best[0].probability == 1.0


@pytest.mark.parametrize("config", [JOINT, PLAIN], ids=["joint", "plain"])
def test_context_without_tokens(config: SpanConfig) -> None:
    questions = [Question("a", "Who?", "\u200b", (), False), Question("b", "Who?", "Anna", (), False)]
    chunks = chunk_questions(questions, TOKENIZER, config)
    rng = np.random.default_rng(0)
    joint = config.head == "joint"
    outputs = [draw_beam(len(ids), 9, rng) for ids in chunks.examples.input_ids] if joint else plain_outputs(chunks)
    empty, answered = answer_questions(chunks, outputs, config)
    assert (empty.best, answered.best) == ("", "Anna")


def test_answers_are_slices_of_the_original_text() -> None:
    context = "In  ROME Émil\tmet  cafe\u0301, Carl"
    chunks = chunk_questions([build_question("a", "Who?", context)], TOKENIZER, JOINT)
    tokens = len(chunks.contexts[0].ids)
    assert chunks.text(0, 0, tokens - 1) == context
    assert chunks.text(0, 1, 2) == "ROME Émil"
    assert chunks.text(0, 4, 7) == "cafe\u0301"
