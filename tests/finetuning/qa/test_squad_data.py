"""Files of questions: both versions of SQuAD, MRQA, and the errors of broken files."""

import errno
import gzip
import json
import os
from pathlib import Path

import pytest
from support.errors import raises
from support.squad_toys import build_question, draw_questions, write_squad

from electra.errors import DataError
from electra.finetuning.qa.data import Answer, check_answered, read_mrqa, read_squad

CONTEXT = "Größe: Anna met Carl."
MRQA = {
    "context": CONTEXT,
    "qas": [
        {
            "qid": "q1",
            "question": "Who met Carl?",
            "detected_answers": [{"text": "anna", "char_spans": [[7, 10], [0, 1]]}, {"text": "x", "char_spans": []}],
            "answers": ["Anna", "Anna K."],
        }
    ],
}


@pytest.mark.parametrize("version", ["1.1", "v2.0"])
def test_squad(tmp_path: Path, version: str) -> None:
    questions = draw_questions(6, impossible_every=0 if version == "1.1" else 2)
    path = write_squad(tmp_path / "train.json", questions, version)
    assert read_squad(path) == questions
    zipped = tmp_path / "train.json.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert read_squad(zipped) == questions


def test_only_a_test_file_may_have_no_answers(tmp_path: Path) -> None:
    path = tmp_path / "test.json"
    qas = [{"id": 7, "question": "Who?"}]
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": qas}]}]}))
    questions = read_squad(path)
    assert [(each.id, each.answers, each.impossible) for each in questions] == [("7", (), False)]
    with raises(DataError, "missing-answer", "test.json", "'7'"):
        check_answered(questions, path)


def test_mrqa(tmp_path: Path) -> None:
    path = tmp_path / "dev.jsonl.gz"
    lines = [json.dumps({"header": {"dataset": "X"}}), json.dumps(MRQA), ""]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    (question,) = read_mrqa(path)
    assert question.answers == (Answer("Anna", 7), Answer("Anna", None), Answer("Anna K.", None))
    assert (question.id, question.context, question.impossible) == ("q1", CONTEXT, False)


def squad(**changes: object) -> str:
    qa = {"id": "q1", "question": "Who?", "answers": [{"text": "Anna", "answer_start": 7}]} | changes
    return json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": [qa]}]}]})


@pytest.mark.parametrize(
    ("content", "code", "values"),
    [
        ("", "not-json", [1]),
        ("[1]", "wrong-type", ["list", "'data'"]),
        ('{"train": []}', "missing-field", ["'data'", "'train'"]),
        ('{"data": []}', "no-questions", []),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', "missing-field", ["article 1", "paragraph 1", "'context'", "'qas'"]),
        (squad(id=None), "wrong-type", ["article 1", "paragraph 1", "'id'", "NoneType"]),
        (squad(question=3), "wrong-type", ["'q1'", "'question'", "int"]),
        (squad(question="\ud800"), "half-surrogate", ["'q1'", "'question'"]),
        (squad(is_impossible=True), "impossible-with-answer", ["'q1'", "is_impossible", "'Anna'"]),
        (squad(answers=[{"text": "Anna", "answer_start": 8}]), "answer-not-found", ["'q1'", "'Anna'", 8, "'nna '"]),
        (squad(answers=[{"text": "Größe", "answer_start": -21}]), "answer-not-found", ["'Größe'", -21]),
        (squad(answers=[{"text": " ", "answer_start": 6}]), "empty-answer", ["'q1'"]),
    ],
)  # fmt: skip
def test_broken_squad(tmp_path: Path, content: str, code: str, values: list) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with raises(DataError, code, "a.json", *values):
        read_squad(path)


def test_two_questions_of_one_id(tmp_path: Path) -> None:
    path = write_squad(
        tmp_path / "a.json",
        [build_question("q", "Who?", CONTEXT, "Anna"), build_question("q", "Whom?", CONTEXT, "Carl")],
    )
    with raises(DataError, "repeated-id", "a.json", "'q'"):
        read_squad(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with raises(DataError, "missing", "none.json", os.strerror(errno.ENOENT)):
        read_squad(tmp_path / "none.json")
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(squad().encode())[:-9])
    with raises(DataError, "damaged", "a.json.gz", "gzip"):
        read_squad(path)
    path = tmp_path / "latin.json"
    path.write_bytes('{"data": "Größe"}'.encode("latin-1"))
    with raises(DataError, "not-utf8", "latin.json"):
        read_squad(path)


@pytest.mark.parametrize("spans", [[[7, len(CONTEXT)]], []])
def test_broken_mrqa(tmp_path: Path, spans: list) -> None:
    path = tmp_path / "dev.jsonl"
    record = json.loads(json.dumps(MRQA))
    record["qas"][0]["detected_answers"][0]["char_spans"] = spans
    path.write_text(json.dumps(record))
    with raises(DataError, "bad-span", "dev.jsonl:1", "'q1'", "char_spans", spans, len(CONTEXT)):
        read_mrqa(path)
    path.write_text(json.dumps(MRQA) + "\n{")
    with raises(DataError, "not-json", "dev.jsonl:2"):
        read_mrqa(path)
