"""Reports and warnings about a task's data and head before training."""

import json
import re
from pathlib import Path

import pytest
from support.errors import check_message, notices
from support.toy_tasks import TINY, finetune_settings, save_model, write_conll, write_glue, write_jsonl, write_questions

from electra.finetuning.classification.task import TextClassification
from electra.finetuning.preparation import VOCABULARY_ADVICE, prepare_inputs
from electra.finetuning.qa.config import SpanConfig


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a model that was pre-trained on sequences of 8 tokens."""
    directory = save_model(tmp_path / "model")
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | {"pretrained_length": 8}))
    return directory


def table(tmp_path: Path, texts: list[str], labels: list | None = None, **more) -> dict:
    """Return the settings of a task on a table, with a dev file of two rows."""
    rows = [{"t": text, "y": label} for text, label in zip(texts, labels or [0, 1] * len(texts), strict=False)]
    files = {
        name: str(write_jsonl(tmp_path / f"{name}.jsonl", some)) for name, some in (("train", rows), ("dev", rows[:2]))
    }
    return {"text": "t", "label": "y", **files, **more}


def get_levels(caplog: pytest.LogCaptureFixture, code: str) -> list[str]:
    """Return the levels of the log records with this code."""
    return [record.levelname for record in caplog.records if getattr(record, "code", None) == code]


def test_unknown_tokens_are_reported(model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    prepare_inputs(
        finetune_settings(model, "table", **table(tmp_path, ["the cat sees mice", "the dog is good"])), model
    )
    [message] = notices(caplog, "coverage")
    check_message(message, "table", "[UNK]")
    assert message.count("0.0%") == 2
    assert get_levels(caplog, "coverage") == ["INFO"]
    caplog.clear()
    prepare_inputs(
        finetune_settings(model, "table", **table(tmp_path, ["the cat sees mice", "고양이 개 여우", "the dog"])), model
    )
    train, dev = notices(caplog, "unknown-tokens")
    check_message(train, "table train", "33.3%", "[UNK]", VOCABULARY_ADVICE)
    check_message(dev, "table dev", "[UNK]", VOCABULARY_ADVICE)
    assert get_levels(caplog, "unknown-tokens") == ["WARNING", "WARNING"]


def test_warning_about_few_dev_examples(model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    prepare_inputs(finetune_settings(model, "table", **table(tmp_path, ["the cat", "a dog", "a fox"])), model)
    [message] = notices(caplog, "few-examples")
    check_message(message, "table", 2, "dev", "50%")
    assert get_levels(caplog, "few-examples") == ["WARNING"]
    caplog.clear()
    data = str(write_glue(tmp_path / "glue", rows=100))
    prepare_inputs(finetune_settings(model, "sst2", data=data), model)
    assert not notices(caplog, "few-examples")
    (tmp_path / "glue" / "SST-2" / "dev.tsv").write_text("sentence\tlabel\nthe cat\t1\n")
    prepare_inputs(finetune_settings(model, "sst2", data=data), model)
    [message] = notices(caplog, "few-examples")
    check_message(message, "sst2", 1, "dev", "100%")


def test_questions_are_counted_instead_of_chunks(model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = {split: str(write_questions(tmp_path / f"{split}.json", 8, 0)) for split in ("train", "dev")}
    span = SpanConfig(doc_stride=1, max_query_length=2)
    prepared = prepare_inputs(finetune_settings(model, "squad1", **files, max_length=8, span=span), model)
    assert len(prepared.examples["dev"]) > 8
    [message] = notices(caplog, "few-examples")
    check_message(message, "squad1", 8, "dev")


def test_warning_about_untrained_positions(model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    long, short = "the cat is not very good , the dog is", "the cat is good"
    settings = table(tmp_path, [short, short, long])
    prepare_inputs(finetune_settings(model, "table", **settings), model)
    [message] = notices(caplog, "longer-than-pretraining")
    check_message(message, "table", model, "train", "dev")
    numbers = re.findall(r"\d+", message.replace(str(model), ""))
    assert set(numbers) == {"8", "1", "3", "0", "2"}, "longer than 8 tokens are 1 of 3 in train and 0 of 2 in dev"
    assert get_levels(caplog, "longer-than-pretraining") == ["WARNING"]
    caplog.clear()
    for options in ({"max_length": 8}, {"from_scratch": True}):
        prepare_inputs(finetune_settings(model, "table", **settings, **options), model)
    other = save_model(tmp_path / "other", TINY)  # its config.json has no length of pre-training
    prepare_inputs(finetune_settings(other, "table", **settings), other)
    assert not notices(caplog, "longer-than-pretraining")


@pytest.mark.parametrize(
    ("labels", "kind", "values"),
    [
        ([1, 2, 3, 2, 1], "classification", [3, "1, 2, 3", 20, "--kind regression"]),
        (list(range(30)), "regression", [30, 20, "--kind classification"]),
        (["a", "b"], "classification", [2, "a, b", "--kind"]),
        ([0.5, 1.5], "regression", [2, "--kind"]),
    ],
)
def test_kind_of_labels_is_logged(
    model: Path, tmp_path: Path, labels: list, kind: str, values: list, caplog: pytest.LogCaptureFixture
) -> None:
    """For integers, the message names the number of values, the limit, and the option for the other kind."""
    prepared = prepare_inputs(
        finetune_settings(model, "table", **table(tmp_path, ["the cat"] * len(labels), labels)), model
    )
    assert isinstance(prepared.task, TextClassification)
    assert prepared.task.kind == kind
    [message] = notices(caplog, "column-kind")
    check_message(message, "'y'", *values)
    explained = {f"--kind {other}" for other in ("classification", "regression") if f"--kind {other}" in message}
    assert explained == {value for value in values if str(value).startswith("--kind ")}


@pytest.mark.parametrize(("head", "stock"), [("joint", False), ("plain", True)])
def test_span_head_without_hugging_face_class(
    model: Path, tmp_path: Path, head: str, stock: bool, caplog: pytest.LogCaptureFixture
) -> None:
    files = {split: str(write_questions(tmp_path / f"{split}.json", 8, 0)) for split in ("train", "dev")}
    prepare_inputs(finetune_settings(model, "squad1", **files, span=SpanConfig(head=head)), model)
    messages = notices(caplog, "no-hf-class")
    assert len(messages) == (not stock)
    for message in messages:
        check_message(message, "squad1", "electra predict", "--span.head plain")


def test_classifier_without_hugging_face_class(model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    labels = [f"label {i}" for i in range(TINY.hidden_size // 2 + 1)]
    prepare_inputs(finetune_settings(model, "table", **table(tmp_path, ["the cat"] * len(labels), labels)), model)
    [message] = notices(caplog, "no-hf-class")
    check_message(message, "table")
    caplog.clear()
    write_conll(tmp_path / "conll" / "train.txt", 8, 0)
    write_conll(tmp_path / "conll" / "dev.txt", 8, 1)
    prepare_inputs(finetune_settings(model, "chunk", data=str(tmp_path / "conll")), model)
    assert not notices(caplog, "no-hf-class")
