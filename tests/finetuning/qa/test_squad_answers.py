"""Answers against a search over all spans of all windows; null odds; n-best lists."""

import math

import numpy as np
import pytest
from support.squad_toys import TOKENIZER, ask, nonsense, random_beam

from electra.finetuning.qa.answers import answer_questions
from electra.finetuning.qa.config import SpanConfig
from electra.finetuning.qa.data import Question
from electra.finetuning.qa.windows import Windows, build_windows

JOINT = SpanConfig(max_length=40, doc_stride=11, max_query_length=12, max_answer_length=6, n_best_size=5, beam_size=9)
PLAIN = SpanConfig(max_length=40, doc_stride=11, max_query_length=12, max_answer_length=6, n_best_size=5, head="plain")


@pytest.fixture(scope="module")
def windows() -> Windows:
    return build_windows(nonsense(40), TOKENIZER, JOINT)


def plain_outputs(windows: Windows) -> list[dict[str, np.ndarray]]:
    """Random logits; those of each window padded to another length, with high ones at the padding."""
    rng = np.random.default_rng(0)
    outputs = []
    for ids in windows.examples.input_ids:
        padded = len(ids) + int(rng.integers(0, 4))
        output = {name: rng.normal(size=padded).astype(np.float32) for name in ("start_logits", "end_logits")}
        for logits in output.values():
            logits[len(ids) - 1 :] = 50.0
        outputs.append(output)
    return outputs


def literal_spans(windows: Windows, question: int, row: int) -> list[tuple[int, int, str]]:
    """Start and end in the window, and text, of all that may be answered out of a window."""
    shift = int(windows.first[row]) - windows.examples.segment_a[row]
    spans = []
    for start in range(int(windows.max_context[row, 0]), int(windows.max_context[row, 1])):
        for end in range(start, min(start + 6, int(windows.end[row]))):
            spans.append((start - shift, end - shift, windows.extract_text(question, start, end)))
    return spans


def expected_n_best(scored: list[tuple[float, str]]) -> list[tuple[str, float]]:
    best: dict[str, float] = {}
    for score, text in sorted(scored, reverse=True):
        best.setdefault(text, score)
    return list(best.items())[:5]


def test_plain_answers_are_the_best_of_all_spans(windows: Windows) -> None:
    outputs = plain_outputs(windows)
    for question, answered in enumerate(answer_questions(windows, outputs, PLAIN)):
        rows = np.flatnonzero(windows.question == question)
        scored = [
            (float(outputs[row]["start_logits"][start] + outputs[row]["end_logits"][end]), text)
            for row in rows
            for start, end, text in literal_spans(windows, question, row)
        ]
        best_text, best_score = expected_n_best(scored)[0]
        assert answered.best_text == best_text
        assert answered.n_best[0].start_logit + answered.n_best[0].end_logit == pytest.approx(best_score, abs=1e-5)
        null = min(float(outputs[row]["start_logits"][0] + outputs[row]["end_logits"][0]) for row in rows)
        assert answered.null_odds == pytest.approx(null - best_score, abs=1e-5)


def test_joint_answers_are_the_best_of_the_beams(windows: Windows) -> None:
    rng = np.random.default_rng(1)
    outputs = [random_beam(len(ids), 9, rng) for ids in windows.examples.input_ids]
    answers = answer_questions(windows, outputs, JOINT)
    assert [each.id for each in answers] == [each.id for each in windows.questions]
    for question, answered in enumerate(answers):
        rows = np.flatnonzero(windows.question == question)
        scored = []
        for row in rows:
            spans = {(start, end): text for start, end, text in literal_spans(windows, question, row)}
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


def test_no_answer_only_above_the_threshold(windows: Windows) -> None:
    for answered in answer_questions(windows, plain_outputs(windows), PLAIN):
        assert answered.select_answer(answered.null_odds) == answered.best_text != ""
        assert answered.select_answer(np.nextafter(answered.null_odds, -np.inf)) == ""


def test_default_thresholds() -> None:
    assert (JOINT.threshold, PLAIN.threshold) == (-2.75, 0.0)
    assert SpanConfig(null_threshold=1.5).threshold == 1.5


def test_answer_without_a_valid_span_in_the_beam() -> None:
    windows = build_windows([ask("a", "Who?", "Anna met Carl.", "Anna")], TOKENIZER, JOINT)
    only_cls = {name: np.zeros_like(value) for name, value in random_beam(8, 9, np.random.default_rng(0)).items()}
    (answered,) = answer_questions(windows, [only_cls], JOINT)
    assert [each.text for each in answered.n_best] == ["Anna"]
    assert answered.n_best[0].probability == 1.0


@pytest.mark.parametrize("config", [JOINT, PLAIN], ids=["joint", "plain"])
def test_context_without_tokens(config: SpanConfig) -> None:
    questions = [Question("a", "Who?", "\u200b", (), False), Question("b", "Who?", "Anna", (), False)]
    windows = build_windows(questions, TOKENIZER, config)
    rng = np.random.default_rng(0)
    joint = config.head == "joint"
    outputs = [random_beam(len(ids), 9, rng) for ids in windows.examples.input_ids] if joint else plain_outputs(windows)
    empty, answered = answer_questions(windows, outputs, config)
    assert (empty.best_text, answered.best_text) == ("", "Anna")


def test_answers_are_slices_of_the_original_text() -> None:
    context = "In  ROME Émil\tmet  cafe\u0301, Carl"
    windows = build_windows([ask("a", "Who?", context)], TOKENIZER, JOINT)
    tokens = len(windows.contexts[0].ids)
    assert windows.extract_text(0, 0, tokens - 1) == context
    assert windows.extract_text(0, 1, 2) == "ROME Émil"
    assert windows.extract_text(0, 4, 7) == "cafe\u0301"
