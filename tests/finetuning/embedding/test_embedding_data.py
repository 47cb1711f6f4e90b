"""Texts, pairs, triples and similarities from files; mistakes in options and files are errors of one line."""

from pathlib import Path

import pytest
from support.errors import fails, raises
from support.toy_tasks import save_model, write_glue, write_jsonl

import electra
from electra.errors import DataError, UsageError
from electra.finetuning.config import build_finetune_config
from electra.finetuning.embedding.data import hold_out_groups, read_similarities, read_training_texts

STSB = ("sentence1", "sentence2", "score")


def read(path: Path, **options: object):
    config = build_finetune_config("embedding", {"train": str(path), **options})
    return read_training_texts(config, path)


def test_lines_and_columns(tmp_path: Path) -> None:
    lines = tmp_path / "a.txt"
    lines.write_text("the cat\na dog\n")
    groups = read(lines)
    assert (groups.texts, groups.places) == ([("the cat",), ("a dog",)], [f"{lines}:1", f"{lines}:2"])
    table = write_jsonl(tmp_path / "a.jsonl", [{"a": "x", "b": "y", "c": "z"}, {"a": "u", "b": "v", "c": "w"}])
    assert read(table, text="a").texts == [("x",), ("u",)]
    assert read(table, text="a", text_pair="b").texts == [("x", "y"), ("u", "v")]
    assert read(table, text="a", text_pair="b", embedding={"negative": "c"}).texts == [("x", "y", "z"), ("u", "v", "w")]


def test_triples_of_inference(tmp_path: Path) -> None:
    rows = [
        ("p", "e1", "entailment"), ("p", "n1", "neutral"), ("p", "c1", "contradiction"), ("p", "e2", "entailment"),
        ("q", "e3", "entailment"), ("r", "c2", "contradiction"),
    ]  # fmt: skip
    table = tmp_path / "nli.tsv"
    table.write_text("premise\thypothesis\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows))
    groups = read(table, text="premise", text_pair="hypothesis", label="label")
    assert groups.texts == [("p", "e1", "c1"), ("p", "e2", "c1")]
    assert groups.places == [f"{table}:2", f"{table}:5"]
    with raises(DataError, "no-triples", table, "entailment", "'hypothesis'"):
        read(table, text="premise", text_pair="hypothesis", label="hypothesis")


def test_similarities_in_the_layout_of_sts_b(tmp_path: Path) -> None:
    path = write_glue(tmp_path) / "STS-B" / "dev.tsv"
    groups = read_similarities(path, STSB)
    assert len(groups.texts) == 32
    assert groups.scores is not None
    assert set(groups.scores) == {0.0, 5.0}
    assert all(len(pair) == 2 for pair in groups.texts)
    own = write_jsonl(tmp_path / "own.jsonl", [{"a": "x", "b": "y", "c": 0.25}, {"a": "u", "b": "v", "c": 1}])
    groups = read_similarities(own, ("a", "b", "c"))
    assert groups.texts == [("x", "y"), ("u", "v")]
    assert groups.scores is not None
    assert groups.scores.tolist() == [0.25, 1.0]


@pytest.mark.parametrize("score", ["nan", "inf", "", "high"])
def test_scores_that_are_no_numbers(tmp_path: Path, score: str) -> None:
    path = tmp_path / "dev.tsv"
    path.write_text(f"sentence1\tsentence2\tscore\nthe cat\ta dog\t1\nthe cat\ta fox\t{score}\n")
    with raises(DataError, "wrong-score", f"{path}:3"):
        read_similarities(path, STSB)


def test_scores_that_have_no_order(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "dev.jsonl", [{"sentence1": "a", "sentence2": "b", "score": 1.5}] * 3)
    with raises(DataError, "equal-scores", path, "1.5"):
        read_similarities(path, STSB)
    path = write_jsonl(tmp_path / "null.jsonl", [{"sentence1": "a", "sentence2": "b", "score": None}])
    with raises(DataError, "wrong-score", f"{path}:1", "None"):
        read_similarities(path, STSB)


def test_groups_with_one_first_text_are_held_out_together(tmp_path: Path) -> None:
    rows = [{"a": f"text {i // 4}", "b": f"pair {i}"} for i in range(40)]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    config = build_finetune_config("embedding", {"train": str(path), "dev_share": 0.3, "text": "a", "text_pair": "b"})
    train, held_out = hold_out_groups(read_training_texts(config, path), config)
    assert (len(train.texts), len(held_out.texts)) == (28, 12)
    assert not {texts[0] for texts in train.texts} & {texts[0] for texts in held_out.texts}
    assert held_out.places == [f"{path}:{rows.index({'a': a, 'b': b}) + 1}" for a, b in held_out.texts]


CASES = [
    ({}, "one.txt", DataError, "no-negatives", "one.txt:1"),
    ({}, "same.txt", DataError, "no-negatives", "same.txt:1"),
    ({}, "nothing.txt", DataError, "no-rows", "nothing.txt"),
    ({}, "blank.txt", DataError, "no-tokens", "blank.txt:2"),
    ({}, "three.txt", DataError, "too-few-rows", "three.txt"),
    ({"text": "a"}, "good.txt", UsageError, "meaningless-option", "--text"),
    ({}, "pairs.jsonl", UsageError, "missing-option", "--text"),
    ({"text": "x"}, "pairs.jsonl", DataError, "missing-column", "pairs.jsonl"),
    ({"text": "a", "label": "b"}, "pairs.jsonl", UsageError, "missing-option", "--label"),
    ({"text": "a", "embedding": {"negative": "b"}}, "pairs.jsonl", UsageError, "missing-option", "--embedding.negative"),
    ({"text": "a", "text_pair": "b", "label": "b", "embedding": {"negative": "b"}}, "pairs.jsonl", UsageError, "conflicting-options", "--label"),
    ({"batch_size": 1}, "good.txt", UsageError, "no-negatives", "--batch-size"),
    ({"dropout": 0.0}, "good.txt", UsageError, "no-dropout", "--dropout"),
    ({"pooling": "attention"}, "good.txt", UsageError, "unknown-choice", "--pooling"),
    ({"embedding": {"scored": ["a", "b"]}}, "good.txt", UsageError, "wrong-columns", "--embedding.scored"),
    ({"embedding": {"temperature": 0.0}}, "good.txt", UsageError, "out-of-range", "--embedding.temperature"),
    ({"test": "good.txt"}, "good.txt", UsageError, "meaningless-option", "--test"),
    ({"select": "best"}, "good.txt", UsageError, "no-dev", "--dev"),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    save_model(folder / "model")
    texts = {
        "one": "the cat\n",
        "same": "the cat\n" * 30,
        "nothing": "",
        "blank": "the cat\n\na dog\n",
        "three": "the cat\na dog\na fox\n",
        "good": "".join(f"the cat {'is ' * i}\n" for i in range(40)),
    }
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text)
    write_jsonl(folder / "pairs.jsonl", [{"a": f"the cat {i}", "b": f"a dog {i}"} for i in range(30)])
    write_jsonl(folder / "dev.jsonl", [{"sentence1": "a", "sentence2": "b", "score": i} for i in range(3)])
    return folder


@pytest.mark.parametrize(("options", "file", "kind", "code", "named"), CASES)
def test_mistakes(folder: Path, tmp_path: Path, options: dict, file: str, kind: type, code: str, named: str) -> None:
    files = {"train": folder / file} | ({"dev": folder / "dev.jsonl"} if code == "no-tokens" else {})
    with raises(kind, code, named):
        electra.finetune("embedding", model=folder / "model", out=tmp_path / "out", **files, **options)
    assert not (tmp_path / "out").exists()


def test_mistakes_on_the_command_line(folder: Path, tmp_path: Path) -> None:
    words = ["finetune", "embedding", "--model", folder / "model", "--out", tmp_path / "out"]
    fails([*words, "--train", folder / "one.txt"], "no-negatives", "one.txt:1")
    fails([*words, "--train", folder / "good.txt", "--dev", folder / "pairs.jsonl"], "missing-column", "sentence1")
    fails(words, "missing-option", "--train")
    words[1] = "sst2"
    fails([*words, "--data", folder, "--embedding.temperature", "0.1"], "meaningless-option", "--embedding")
