"""Files of questions: the two versions of SQuAD, MRQA, and what is wrong with others."""

import gzip
import json
from pathlib import Path

import pytest
from support.squad_toys import ask, meetings, write_squad

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
    questions = meetings(6, impossible_every=0 if version == "1.1" else 2)
    path = write_squad(tmp_path / "train.json", questions, version)
    assert read_squad(path) == questions
    zipped = tmp_path / "train.json.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert read_squad(zipped) == questions


def test_a_test_file_may_lack_answers_and_a_train_file_not(tmp_path: Path) -> None:
    path = tmp_path / "test.json"
    qas = [{"id": 7, "question": "Who?"}]
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": qas}]}]}))
    questions = read_squad(path)
    assert [(each.id, each.answers, each.impossible) for each in questions] == [("7", (), False)]
    with pytest.raises(DataError, match=r"test\.json: question '7' has no answer; only a test file may lack them"):
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
    ("content", "message"),
    [
        ("", r"a\.json: not JSON: Expecting value \(line 1, column 1\)"),
        ("[1]", r"a\.json: list where an object with 'data' is expected"),
        ('{"train": []}', r"a\.json: no 'data'; it has 'train'"),
        ('{"data": []}', r"a\.json: has no questions"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', r"a\.json: article 1, paragraph 1: no 'context'; it has 'qas'"),
        (squad(id=None), r"a\.json: article 1, paragraph 1: 'id' is of the wrong type, NoneType"),
        (squad(question=3), r"a\.json: question 'q1': 'question' is of the wrong type, int"),
        (squad(question="\ud800"), r"a\.json: question 'q1': 'question': half a surrogate pair"),
        (squad(is_impossible=True), r"a\.json: question 'q1' is marked is_impossible, but has the answer 'Anna'"),
        (squad(answers=[{"text": "Anna", "answer_start": 8}]), r"question 'q1': the answer 'Anna' is not in the context at character 8, where it has 'nna '"),
        (squad(answers=[{"text": "Größe", "answer_start": -21}]), r"is not in the context at character -21"),
        (squad(answers=[{"text": " ", "answer_start": 6}]), r"a\.json: question 'q1' has an empty answer"),
    ],
)  # fmt: skip
def test_broken_squad(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        read_squad(path)
    assert "\n" not in str(caught.value)


def test_two_questions_of_one_id(tmp_path: Path) -> None:
    path = write_squad(tmp_path / "a.json", [ask("q", "Who?", CONTEXT, "Anna"), ask("q", "Whom?", CONTEXT, "Carl")])
    with pytest.raises(DataError, match=r"a\.json: two questions have the id 'q'"):
        read_squad(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.json: cannot be read: No such file or directory"):
        read_squad(tmp_path / "none.json")
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(squad().encode())[:-9])
    with pytest.raises(DataError, match=r"a\.json\.gz: broken gzip data"):
        read_squad(path)
    path = tmp_path / "latin.json"
    path.write_bytes('{"data": "Größe"}'.encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.json: not JSON that can be read"):
        read_squad(path)


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([[7, 21]], r"dev\.jsonl:1: question 'q1': the answer's char_spans \[\[7, 21\]\] are not within the context of 21 char"),
        ([], r"dev\.jsonl:1: question 'q1': the answer's char_spans \[\] are not"),
    ],
)  # fmt: skip
def test_broken_mrqa(tmp_path: Path, spans: list, message: str) -> None:
    path = tmp_path / "dev.jsonl"
    record = json.loads(json.dumps(MRQA))
    record["qas"][0]["detected_answers"][0]["char_spans"] = spans
    path.write_text(json.dumps(record))
    with pytest.raises(DataError, match=message):
        read_mrqa(path)
    path.write_text(json.dumps(MRQA) + "\n{")
    with pytest.raises(DataError, match=r"dev\.jsonl:2: not JSON"):
        read_mrqa(path)
