"""Reports and warnings about a task's data and head before training."""

import json
from pathlib import Path

import pytest
from support.toy_tasks import TINY, finetune_settings, save_model, write_conll, write_glue, write_jsonl, write_questions

from electra.finetuning.preparation import prepare_inputs
from electra.finetuning.qa.config import SpanConfig


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model that was pre-trained on sequences of 8 tokens."""
    directory = save_model(tmp_path / "model")
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"pretrained_length": 8}))
    return directory


def table(tmp_path: Path, texts: list[str], labels: list | None = None, **more) -> dict:
    """Settings of a task over a table, with a dev file of two rows."""
    rows = [{"t": text, "y": label} for text, label in zip(texts, labels or [0, 1] * len(texts), strict=False)]
    files = {
        name: str(write_jsonl(tmp_path / f"{name}.jsonl", some)) for name, some in (("train", rows), ("dev", rows[:2]))
    }
    return {"text": "t", "label": "y", **files, **more}


def test_unknown_tokens_are_reported(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    prepare_inputs(
        finetune_settings(model, "table", **table(tmp_path, ["the cat sees mice", "the dog is good"])), model
    )
    assert (
        "· table: 0.0% of the tokens are [UNK], 0.0% of the words are split into single characters"
        in capsys.readouterr().out
    )
    prepare_inputs(
        finetune_settings(model, "table", **table(tmp_path, ["the cat sees mice", "고양이 개 여우", "the dog"])), model
    )
    out = capsys.readouterr().out
    for split in ("train", "dev"):
        assert f"! table {split}: " in out
    assert "33.3% of the tokens are [UNK], " in out
    assert "does not fit this text; take a model that was pre-trained on text of this language" in out


def test_warning_about_few_dev_examples(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    prepare_inputs(finetune_settings(model, "table", **table(tmp_path, ["the cat", "a dog", "a fox"])), model)
    assert "! table: only 2 examples in dev: each changes an accuracy by 50%" in capsys.readouterr().out
    data = str(write_glue(tmp_path / "glue", rows=100))
    prepare_inputs(finetune_settings(model, "sst2", data=data), model)
    assert "only" not in capsys.readouterr().out
    (tmp_path / "glue" / "SST-2" / "dev.tsv").write_text("sentence\tlabel\nthe cat\t1\n")
    prepare_inputs(finetune_settings(model, "sst2", data=data), model)
    assert "! sst2: only 1 example in dev: each changes an accuracy by 100%" in capsys.readouterr().out


def test_questions_are_counted_instead_of_windows(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    files = {split: str(write_questions(tmp_path / f"{split}.json", 8, 0)) for split in ("train", "dev")}
    span = SpanConfig(doc_stride=1, max_query_length=2)
    prepared = prepare_inputs(finetune_settings(model, "squad1", **files, max_length=8, span=span), model)
    assert len(prepared.examples["dev"]) > 8
    assert "! squad1: only 8 examples in dev" in capsys.readouterr().out


def test_warning_about_untrained_positions(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    long, short = "the cat is not very good , the dog is", "the cat is good"
    settings = table(tmp_path, [short, short, long])
    prepare_inputs(finetune_settings(model, "table", **settings), model)
    line = f"! table: examples longer than the 8 tokens of the sequences that {model} was pre-trained on: 1 of 3 in train, 0 of 2 in dev"
    assert line in capsys.readouterr().out
    for unconcerned in ({"max_length": 8}, {"from_scratch": True}):
        prepare_inputs(finetune_settings(model, "table", **settings, **unconcerned), model)
        assert "pre-trained on:" not in capsys.readouterr().out
    other = save_model(tmp_path / "other", TINY)  # nothing is known of it
    prepare_inputs(finetune_settings(other, "table", **settings), other)
    assert "pre-trained on:" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, 2, 3, 2, 1], "one of 3 classes (1, 2, 3) (the labels are integers with 3 values, at most 20; where their order or distance matters (ratings), --kind regression)"),
        (list(range(30)), "a number (the labels are integers with 30 values, more than 20; if they are names of classes, --kind classification)"),
        (["a", "b"], "one of 2 classes (a, b) (from 2 labels; --kind sets another)"),
        ([0.5, 1.5], "a number (from 2 labels; --kind sets another)"),
    ],
)  # fmt: skip
def test_kind_of_integer_labels_is_explained(
    model: Path, tmp_path: Path, labels: list, message: str, capsys: pytest.CaptureFixture
) -> None:
    prepare_inputs(finetune_settings(model, "table", **table(tmp_path, ["the cat"] * len(labels), labels)), model)
    assert f"'y' is read as {message}" in capsys.readouterr().out


@pytest.mark.parametrize(("head", "stock"), [("joint", False), ("plain", True)])
def test_span_head_without_hugging_face_class(
    model: Path, tmp_path: Path, head: str, stock: bool, capsys: pytest.CaptureFixture
) -> None:
    files = {split: str(write_questions(tmp_path / f"{split}.json", 8, 0)) for split in ("train", "dev")}
    prepare_inputs(finetune_settings(model, "squad1", **files, span=SpanConfig(head=head)), model)
    line = "squad1: no class of Hugging Face has this head; electra predict reads the model (--span.head plain has one)"
    assert (line in capsys.readouterr().out) == (not stock)


def test_classifier_without_hugging_face_class(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    labels = [f"label {i}" for i in range(TINY.hidden_size // 2 + 1)]
    prepare_inputs(finetune_settings(model, "table", **table(tmp_path, ["the cat"] * len(labels), labels)), model)
    assert "table: no class of Hugging Face has this head" in capsys.readouterr().out
    write_conll(tmp_path / "conll" / "train.txt", 8, 0)
    write_conll(tmp_path / "conll" / "dev.txt", 8, 1)
    prepare_inputs(finetune_settings(model, "chunk", data=str(tmp_path / "conll")), model)
    assert "no class of Hugging Face" not in capsys.readouterr().out
