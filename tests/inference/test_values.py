"""Predictions for values from Python, by a model that is loaded once; errors are raised at the call."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.toy_tasks import finetune_settings, save_model, write_conll, write_glue, write_questions

import electra
from electra.errors import DataError, ModelError, StorageError, UsageError
from electra.finetuning.run import finetune
from electra.inference import predict

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
    """The predictions for the same inputs out of a file."""
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
    load = predict.load_finetuned
    monkeypatch.setattr(predict, "load_finetuned", lambda model: loaded.append(model) or load(model))
    model = electra.load(runs / "sst2", runtime={"device": "cpu"})
    expected = of_lines(model=runs / "sst2", lines=TEXTS, file=tmp_path / "a.txt")
    assert list(model.predict(TEXTS)) == list(model.predict(TEXTS)) == expected
    assert list(model.predict(tmp_path / "a.txt", out=tmp_path / "out.jsonl")) == expected
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == len(TEXTS)
    one, other = model.predict(TEXTS), model.predict(reversed(TEXTS))  # at the same time
    assert [row["label"] for row in one] == [row["label"] for row in other][::-1]
    assert loaded == [str(runs / "sst2")] * 2  # by `load` and by the call of `predict`


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("sst2", [*["the cat"] * 600, 5], "input 600: got int; expected a string, a pair of strings or a dictionary"),
        ("sst2", ["the cat", None], "input 1: got NoneType"),
        ("sst2", [("a", "b", "c")], "input 0: got tuple of 3: str, str, str; expected"),
        ("sst2", [("a", 1)], "input 0: got tuple of 2: str, int; expected"),
        ("sst2", [[]], "input 0: got list of 0: ; expected"),
        ("sst2", b"the cat", "input 0: got bytes"),
        ("sst2", ["the cat", PAIRS[0]], "input 1: a pair of texts, but the model reads single texts"),
        ("stsb", [PAIRS[0], "the cat"], "input 1: one text, but the model reads pairs"),
        ("sst2", [{"text": "the cat"}], "input 0: 'sentence' is missing; there are text"),
        ("sst2", [{"sentence": 5}], "input 0: 'sentence' is not a text"),
        ("sst2", ["the \ud800 cat"], "input 0: half a surrogate pair at character 4"),
        ("sst2", {"a", 5}, "got int"),
        ("chunk", [["the", 5]], "input 0: 'words' must be a list of strings"),
        ("chunk", [["the", ""]], "input 0: 'words' has an empty word"),
        ("chunk", [["the", "\udc00"]], "input 0: half a surrogate pair"),
        ("chunk", [{"tokens": ["the"]}], "input 0: got dict; expected a string, a list of words or a dictionary with 'words'"),
        ("squad1", ["who is it"], "input 0: got str; expected a dictionary with 'question' and 'context'"),
        ("squad1", [{"question": "who"}], "input 0: 'context' is missing; there are question"),
        ("squad1", [QUESTION, {**QUESTION, "context": "\ud800"}], "input 1: half a surrogate pair"),
        ("sst2", Path("nosuch.txt"), "nosuch.txt: cannot be read: No such file"),
        ("sst2", Path("nosuch.csv"), "nosuch.csv: no such file"),
    ],
)  # fmt: skip
def test_wrong_inputs(runs: Path, name: str, given: Any, message: str) -> None:
    """At the call: nothing is taken from the iterator."""
    model = electra.load(runs / name)
    with pytest.raises(DataError) as error:
        model.predict(given)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_wrong_calls(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("the cat\n")
    with pytest.raises(ModelError, match="not a fine-tuned model"):
        electra.predict(runs / "model", TEXTS)
    with pytest.raises(UsageError, match="there is no option --thread"):
        electra.predict(runs / "sst2", TEXTS, thread=1)
    with pytest.raises(UsageError, match="--null-threshold has no meaning for a model of the task sst2"):
        electra.predict(runs / "sst2", TEXTS, null_threshold=1.0)
    with pytest.raises(StorageError, match=r"a\.txt is not a directory"):
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


def test_unknown_tokens_are_reported_once(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Values warn once, and print nothing else: they may be many calls."""
    model = electra.load(runs / "sst2")
    capsys.readouterr()
    list(model.predict(TEXTS))
    assert capsys.readouterr().out == ""
    for _ in range(2):
        list(model.predict(["고양이 좋다 ."] * 3))
    assert capsys.readouterr().out.count("[UNK]") == 1


def test_string_is_a_text_even_if_a_file_has_that_name(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good").write_text("the dog\nthe cat\n")
    monkeypatch.chdir(tmp_path)
    assert len(list(electra.predict(runs / "sst2", "good"))) == 1
    assert (
        "'good' is read as a text; to read the file of this name, pass pathlib.Path('good')" in capsys.readouterr().out
    )
    assert len(list(electra.predict(runs / "sst2", Path("good")))) == 2
    assert "read as a text" not in capsys.readouterr().out
