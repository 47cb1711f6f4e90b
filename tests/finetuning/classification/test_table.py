"""Text classification on a user's table: the kind of task is inferred from the labels, and bad rows raise errors."""

from pathlib import Path

import pytest
from support.errors import check_message, notices, raises
from support.toy_tasks import toy_tokenizer, write_jsonl

from electra.errors import DataError, UsageError
from electra.finetuning.classification.labels import infer_kind, parse_cell
from electra.finetuning.classification.table import Columns, check_columns, load_table_task
from electra.finetuning.classification.task import TextClassification


def task(tmp_path: Path, rows: list[dict], dev: list[dict] | None = None, **more) -> TextClassification:
    files = {"train": write_jsonl(tmp_path / "train.jsonl", rows)}
    if dev is not None:
        files["dev"] = write_jsonl(tmp_path / "dev.jsonl", dev)
    return load_table_task(files, Columns("t", None, "y"), toy_tokenizer(), **more)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ([("yes",), ("no",)], "classification"),
        ([("1",), ("2",), ("3",)], "classification"),
        ([("1.0",), ("2.0",)], "classification"),
        ([("1.5",), ("2",)], "regression"),
        ([(str(i),) for i in range(50)], "regression"),
        ([["a"], ["a", "b"], []], "multilabel"),
    ],
)
def test_kind_is_inferred_from_the_labels(labels, kind: str) -> None:
    assert infer_kind(labels) == kind


def test_classes_are_sorted_and_logged(tmp_path: Path, caplog) -> None:
    rows = [{"t": "the cat", "y": y} for y in (10, 9, 2, 10)]
    made = task(tmp_path, rows, rows)
    assert made.labels == ("2", "9", "10")
    assert made.read("dev").labels.tolist() == [2, 1, 0, 2]
    [message] = notices(caplog, "column-kind")
    check_message(message, "'y'", 3, "2, 9, 10")


def test_list_column_is_multilabel(tmp_path: Path) -> None:
    rows = [{"t": "the cat", "y": ["a", "b"]}, {"t": "the dog", "y": []}, {"t": "a fox", "y": '["b"]'}]
    made = task(tmp_path, rows, rows)
    assert made.kind == "multilabel"
    assert made.read("train").labels.tolist() == [[1, 1], [0, 0], [0, 1]]


def test_regression_targets_are_standardized(tmp_path: Path) -> None:
    rows = [{"t": "the cat", "y": y} for y in (100.5, 300.5)]
    made = task(tmp_path, rows, rows)
    assert (made.kind, made.shift, made.scale) == ("regression", 200.5, 100.0)


def test_share_of_train_is_held_out_without_dev(tmp_path: Path, caplog) -> None:
    rows = [{"t": f"the {i}", "y": i % 2} for i in range(50)]
    made = task(tmp_path, rows, dev_share=0.2, split_seed=1)
    train, dev = made.read("train").first, made.read("dev").first
    assert (len(train), len(dev)) == (40, 10)
    assert sorted(train + dev) == sorted(row["t"] for row in rows)
    [message] = notices(caplog, "held-out")
    check_message(message, 10, 50, "train.jsonl")
    assert task(tmp_path, rows, dev_share=0.2, split_seed=2).read("dev").first != dev


@pytest.mark.parametrize(
    ("rows", "dev", "code", "values"),
    [
        ([{"t": "a", "y": 1}, {"t": "b", "y": None}], None, "missing-label", ["train.jsonl:2"]),
        ([{"t": "a", "y": 1}, {"t": "b", "y": 1}], None, "one-label", ["train.jsonl", "'1'"]),
        (
            [{"t": "a", "y": 1}, {"t": "b", "y": 2}],
            [{"t": "c", "y": 3}],
            "unknown-label",
            ["dev.jsonl:1", "'3'", "1, 2"],
        ),
        ([{"t": "a", "y": 1.5}, {"t": "b", "y": 2}], [{"t": "c", "y": "x"}], "wrong-label", ["dev.jsonl:1", "'x'"]),
        ([{"t": "a", "y": "p"}, {"t": "b", "y": "q"}], [{"t": "c", "y": ["p"]}], "label-list", ["dev.jsonl:1"]),
        ([{"t": "a", "y": 1}, {"t": "b", "y": "nan"}], None, "missing-label", ["train.jsonl:2"]),
        (
            [{"t": "a", "y": 1}, {"t": "b", "y": 2}, {"y": 1}],
            [{"t": "c", "y": 1}],
            "missing-field",
            ["train.jsonl:3", "'t'"],
        ),
        ([{"t": "a", "y": 1}, {"t": 5, "y": 2}], [{"t": "c", "y": 1}], "wrong-type", ["train.jsonl:2", "'t'", 5]),
        ([{"t": "a", "z": 1}, {"t": "b", "z": 2}], None, "missing-column", ["train.jsonl", "'y'", "t, z"]),
    ],
)
def test_bad_tables(tmp_path: Path, rows, dev, code: str, values: list) -> None:
    def read() -> None:
        made = task(tmp_path, rows, dev)
        made.read("train")
        made.read("dev")

    with raises(DataError, code, *values):
        read()


def test_missing_column_options() -> None:
    with raises(UsageError, "missing-option", "--text", "--label"):
        check_columns("sentence", None, None)


def test_kind_can_be_set(tmp_path: Path) -> None:
    rows = [{"t": "the cat", "y": y} for y in range(30)]
    assert task(tmp_path, rows, rows).kind == "regression"
    given = task(tmp_path, rows, rows, kind="classification")
    assert (given.kind, len(given.labels)) == ("classification", 30)


def test_label_in_brackets_is_not_a_list(tmp_path: Path) -> None:
    rows = [{"t": "the cat", "y": "[other]"}, {"t": "the dog", "y": "news"}]
    assert task(tmp_path, rows, rows).labels == ("[other]", "news")


def test_standardization_uses_training_rows_only(tmp_path: Path) -> None:
    rows = [{"t": f"the {i}", "y": i + 0.5} for i in range(10)]
    made = task(tmp_path, rows, dev_share=0.3)
    train = made.read("train").labels
    assert (made.shift, made.scale) == pytest.approx((train.mean(), train.std()))
    assert made.encode("train").counts["rows_held_out"] == 3


@pytest.mark.parametrize(
    ("label", "code"),
    [("[" + "9" * 5_000 + "]", "too-many-digits"), ("[" * 20_000, "too-deep"), ('["\\ud800"]', "half-surrogate")],
    ids=["digits", "deep", "surrogate"],
)
def test_labels_that_are_invalid_json_lists(label: str, code: str) -> None:
    with raises(DataError, code, "a.csv:2"):
        parse_cell(label, "a.csv:2")


def test_label_that_begins_with_a_bracket() -> None:
    assert parse_cell("[sic", "a.csv:2") == ("[sic",)
    assert parse_cell('["a", "b"]', "a.csv:2") == ["a", "b"]
