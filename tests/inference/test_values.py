"""Predictions for values from Python; errors are raised by the call, before the iterator advances."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.errors import notices, raises
from support.toy_tasks import finetune_settings, save_model, write_conll, write_glue, write_questions

import electra
from electra.errors import DataError, ModelError, StorageError, UsageError
from electra.finetuning.run import finetune
from electra.inference import engines, predict

TEXTS = ["the cat is good", "the dog is very bad", "the owl"]
PAIRS = [("the cat sleeps", "a cat hunts mice"), ("the dog sleeps", "a cat hunts mice")]
QUESTION = {"question": "likes very", "context": "the owl likes milk ."}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    model, glue = save_model(root / "model"), write_glue(root / "glue", rows=32)
    for split, seed in (("train", 0), ("dev", 1)):
        write_conll(root / "conll" / f"{split}.txt", 8, seed)
    squad = {split: str(write_questions(root / f"{split}.json", 8, 0)) for split in ("train", "dev")}
    for name, settings in {
        "sst2": finetune_settings(model, "sst2", data=str(glue), epochs=1.0),
        "stsb": finetune_settings(model, "stsb", data=str(glue), epochs=1.0),
        "chunk": finetune_settings(model, "chunk", data=str(root / "conll"), epochs=1.0),
        "squad1": finetune_settings(model, "squad1", **squad, epochs=1.0),
    }.items():
        finetune(settings, root / name)
    return root


def of_lines(model: Path, lines: list[str], file: Path, **options: Any) -> list[dict]:
    """Predict the same inputs from a file."""
    file.write_text("".join(f"{line}\n" for line in lines))
    return list(electra.predict(model, file, **options))


@pytest.mark.slow
def test_texts(runs: Path, tmp_path: Path) -> None:
    model = runs / "sst2"
    expected = of_lines(model, TEXTS, tmp_path / "a.txt")
    assert list(electra.predict(model, TEXTS)) == expected
    assert list(electra.predict(model, tuple(TEXTS))) == expected
    assert list(electra.predict(model, (text for text in TEXTS))) == expected
    assert list(electra.predict(model, [{"sentence": text} for text in TEXTS])) == expected
    assert list(electra.predict(model, [{"t": text} for text in TEXTS], text="t")) == expected
    one = [expected[0]]
    assert [row["label"] for row in electra.predict(model, TEXTS[0])] == [row["label"] for row in one]
    named = list(electra.predict(model, {"sentence": TEXTS[0], "id": 7}))
    assert [(row["id"], row["label"]) for row in named] == [("7", one[0]["label"])]
    assert list(electra.predict(model, [])) == []


@pytest.mark.slow
def test_pairs(runs: Path, tmp_path: Path) -> None:
    model = runs / "stsb"
    expected = of_lines(model, ["\t".join(pair) for pair in PAIRS], tmp_path / "a.txt")
    assert list(electra.predict(model, PAIRS)) == expected
    assert list(electra.predict(model, map(list, PAIRS))) == expected
    rows = [{"a": first, "b": second} for first, second in PAIRS]
    assert list(electra.predict(model, rows, text="a", text_pair="b")) == expected


def test_words(runs: Path, tmp_path: Path) -> None:
    model = runs / "chunk"
    expected = of_lines(model, ["the cat likes milk", "", "the dog"], tmp_path / "a.txt", form="lines")
    sentences = [["the", "cat", "likes", "milk"], [], ("the", "dog")]
    assert list(electra.predict(model, sentences)) == expected
    assert list(electra.predict(model, [" ".join(words) for words in sentences])) == expected
    assert list(electra.predict(model, [{"words": words} for words in sentences])) == expected
    (row,) = electra.predict(model, [["the cat", "milk"]])  # a word may have a space
    assert row["words"] == ["the cat", "milk"]


def test_questions(runs: Path, tmp_path: Path) -> None:
    model = runs / "squad1"
    (tmp_path / "a.csv").write_text("id,question,context\nq,likes very,the owl likes milk .\n")
    expected = list(electra.predict(model, tmp_path / "a.csv"))
    assert list(electra.predict(model, {"id": "q", **QUESTION})) == expected
    assert [row["answer"] for row in electra.predict(model, [QUESTION] * 2)] == [expected[0]["answer"]] * 2


def test_model_is_loaded_once(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    load = engines.load_finetuned
    monkeypatch.setattr(engines, "load_finetuned", lambda model: loaded.append(model) or load(model))
    model = electra.load(runs / "sst2", runtime={"device": "cpu"})
    expected = of_lines(model=runs / "sst2", lines=TEXTS, file=tmp_path / "a.txt")
    assert list(model.predict(TEXTS)) == list(model.predict(TEXTS)) == expected
    assert list(model.predict(tmp_path / "a.txt", out=tmp_path / "out.jsonl")) == expected
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == len(TEXTS)
    one, other = model.predict(TEXTS), model.predict(reversed(TEXTS))  # at the same time
    assert [row["label"] for row in one] == [row["label"] for row in other][::-1]
    assert loaded == [str(runs / "sst2")] * 2  # by `load` and by the call of `predict`


@pytest.mark.parametrize(
    ("name", "given", "code", "values"),
    [
        ("sst2", [*["the cat"] * 600, 5], "wrong-type", ["input 600:", " int;", "string", "dictionary"]),
        ("sst2", ["the cat", None], "wrong-type", ["input 1:", " NoneType;"]),
        ("sst2", [("a", "b", "c")], "wrong-type", ["input 0:", " tuple ", 3, " str, str, str;"]),
        ("sst2", [("a", 1)], "wrong-type", ["input 0:", " tuple ", 2, " str, int;"]),
        ("sst2", [[]], "wrong-type", ["input 0:", " list ", 0]),
        ("sst2", b"the cat", "wrong-type", ["input 0:", " bytes;"]),
        ("sst2", ["the cat", PAIRS[0]], "unexpected-pair", ["input 1:"]),
        ("stsb", [PAIRS[0], "the cat"], "missing-pair", ["input 1:"]),
        ("sst2", [{"text": "the cat"}], "missing-field", ["input 0:", "'sentence'", " text "]),
        ("sst2", [{"sentence": 5}], "wrong-type", ["input 0:", "'sentence'"]),
        ("sst2", ["the \ud800 cat"], "half-surrogate", ["input 0:", 4]),
        ("sst2", {"a", 5}, "wrong-type", [" int;"]),
        ("chunk", [["the", 5]], "wrong-type", ["input 0:", "'words'"]),
        ("chunk", [["the", ""]], "empty-word", ["input 0:", "'words'"]),
        ("chunk", [["the", "\udc00"]], "half-surrogate", ["input 0:"]),
        ("chunk", [{"tokens": ["the"]}], "wrong-type", ["input 0:", " dict;", "string", "list", "'words'"]),
        ("squad1", ["who is it"], "wrong-type", ["input 0:", " str;", "'question'", "'context'"]),
        ("squad1", [{"question": "who"}], "missing-field", ["input 0:", "'context'", " question"]),
        ("squad1", [QUESTION, {**QUESTION, "context": "\ud800"}], "half-surrogate", ["input 1:"]),
        ("sst2", Path("nosuch.txt"), "missing", ["nosuch.txt", os.strerror(errno.ENOENT)]),
        ("sst2", Path("nosuch.csv"), "missing", ["nosuch.csv"]),
    ],
)
def test_invalid_inputs_are_rejected(runs: Path, name: str, given: Any, code: str, values: list[object]) -> None:
    """By the call, before the iterator advances."""
    model = electra.load(runs / name)
    with raises(DataError, code, *values):
        model.predict(given)


def test_invalid_calls_are_rejected(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat\n")
    with raises(ModelError, "not-finetuned", runs / "model"):
        electra.predict(runs / "model", TEXTS)
    with raises(UsageError, "unknown-option", "--thread;"):
        electra.predict(runs / "sst2", TEXTS, thread=1)
    with raises(UsageError, "meaningless-option", "--null-threshold", "sst2"):
        electra.predict(runs / "sst2", TEXTS, null_threshold=1.0)
    with raises(StorageError, "not-directory", tmp_path / "a.txt"):
        electra.predict(runs / "sst2", TEXTS, out=tmp_path / "a.txt" / "out.jsonl")


def test_iterators_are_read_lazily(runs: Path) -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield "the cat"

    rows = electra.predict(runs / "sst2", endless())
    assert [next(rows)["id"] for _ in range(3)] == ["0", "1", "2"]
    assert read == predict.FILE_INPUTS


def test_unknown_tokens_are_reported_once(
    runs: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A model logs one warning in all calls for values from Python, and nothing else."""
    model = electra.load(runs / "sst2")
    capsys.readouterr()
    caplog.clear()
    list(model.predict(TEXTS))
    assert capsys.readouterr().out == ""
    for _ in range(2):
        list(model.predict(["고양이 좋다 ."] * 3))
    assert [(record.code, record.levelname) for record in caplog.records] == [("unknown-tokens", "WARNING")]


def test_string_is_a_text_even_if_a_file_has_that_name(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "good").write_text("the dog\nthe cat\n")
    monkeypatch.chdir(tmp_path)
    assert len(list(electra.predict(runs / "sst2", "good"))) == 1
    (line,) = notices(caplog, "string-as-text")
    assert "pathlib.Path('good')" in line
    caplog.clear()
    assert len(list(electra.predict(runs / "sst2", Path("good")))) == 2
    assert not notices(caplog, "string-as-text")
