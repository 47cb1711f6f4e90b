"""Complete runs of tagging, question answering and WNLI, and their models in the classes of Hugging Face."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from support.errors import check_message, notices, raises
from support.toy_tasks import TINY, save_model, toy_tokenizer, write_conll, write_questions, write_wnli
from support.toy_tasks import finetune_settings as settings
from transformers import AutoModelForQuestionAnswering, AutoModelForTokenClassification, AutoTokenizer

from electra.data.batch import Batch
from electra.errors import DataError, UsageError
from electra.finetuning.batching import LabeledBatch
from electra.finetuning.export import save_finetuned
from electra.finetuning.model import FinetunedModel
from electra.finetuning.qa.config import SpanConfig
from electra.finetuning.qa.heads import PlainSpanHead
from electra.finetuning.qa.task import SQUAD1
from electra.finetuning.run import finetune
from electra.finetuning.tagging.data import Sentence
from electra.finetuning.tagging.heads import TaggingHead
from electra.finetuning.tagging.task import PARTS_OF_SPEECH, Tagging
from electra.model.encoder import Encoder
from electra.model.initialization import initialize


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.mark.slow
def test_tagging(model, tmp_path) -> None:
    write_conll(tmp_path / "data" / "train.txt", 40, 0)
    write_conll(tmp_path / "data" / "dev.txt", 10, 1)
    write_conll(tmp_path / "data" / "test.txt", 5, 2, tags=False)
    summary = finetune(settings(model, "chunk", data=str(tmp_path / "data")), tmp_path / "out")
    assert summary["main_metric"] == "f1"
    assert summary["metrics"]["dev"]["f1"]["median"] == 100.0
    rows = [json.loads(line) for line in (tmp_path / "out/seed-0/predictions-test.jsonl").read_text().splitlines()]
    assert [row["tags"] for row in rows] == [["B-A", "I-A", "O", "B-T", "O"]] * 5

    directory = tmp_path / "out" / "seed-0" / "model"
    stock = AutoModelForTokenClassification.from_pretrained(directory).eval()
    inputs = AutoTokenizer.from_pretrained(directory)("the cat likes milk .", return_tensors="pt")
    with torch.inference_mode():
        best = stock(**inputs).logits[0, 1:-1].argmax(-1).tolist()
    assert [stock.config.id2label[i] for i in best] == ["B-A", "I-A", "O", "B-T", "O"]


def test_tagged_test_file_is_scored_without_dev(model, tmp_path, caplog) -> None:
    write_conll(tmp_path / "data" / "train.txt", 20, 0)
    write_conll(tmp_path / "data" / "test.txt", 10, 1)
    config = settings(model, "chunk", data=str(tmp_path / "data"), epochs=1.0)
    assert set(finetune(config, tmp_path / "out")["metrics"]) == {"test"}
    assert len(notices(caplog, "scored-on-test")) == 1
    with raises(UsageError, "no-dev", "--select best", "--dev"):
        finetune(settings(model, "chunk", data=str(tmp_path / "data"), select="best"), tmp_path / "best")


def test_share_of_tagged_sentences_is_held_out_without_dev(model, tmp_path, caplog) -> None:
    train = write_conll(tmp_path / "mine.conll", 30, 0)
    summary = finetune(settings(model, "tagging", train=str(train), epochs=1.0, dev_share=0.2), tmp_path / "out")
    assert set(summary["metrics"]) == {"dev"}
    [message] = notices(caplog, "held-out")
    check_message(message, 6, 30)


@pytest.mark.slow
@pytest.mark.parametrize("head", ["joint", "plain"])
def test_questions(model, tmp_path, head: str) -> None:
    train, dev = write_questions(tmp_path / "train.json", 48, 0), write_questions(tmp_path / "dev.json", 16, 1)
    config = settings(model, "squad1", train=str(train), dev=str(dev), span=SpanConfig(head=head))
    summary = finetune(config, tmp_path / "out")
    assert summary["main_metric"] == "f1"
    assert summary["metrics"]["dev"]["em"]["median"] >= 90
    directory = tmp_path / "out" / "seed-0" / "model"
    assert (directory / "head.safetensors").exists() == (head == "joint")
    if head == "plain":
        stock = AutoModelForQuestionAnswering.from_pretrained(directory).eval()
        inputs = AutoTokenizer.from_pretrained(directory)("likes very", "the owl likes milk .", return_tensors="pt")
        with torch.inference_mode():
            outputs = stock(**inputs)
        context = 4 + np.arange(5)  # [CLS] likes very [SEP] the owl likes milk .
        assert int(outputs.start_logits[0, context].argmax()) == int(outputs.end_logits[0, context].argmax()) == 3


@pytest.mark.slow
def test_questions_without_answers(model, tmp_path) -> None:
    train = write_questions(tmp_path / "train.json", 64, 0, impossible=True)
    summary = finetune(settings(model, "squad2", train=str(train), dev_share=0.25), tmp_path / "out")
    metrics = summary["metrics"]["dev"]
    assert {"em", "f1", "has_ans_f1", "no_ans_f1", "best_f1", "best_f1_threshold"} <= set(metrics)
    assert metrics["best_f1"]["median"] >= 90


@pytest.mark.slow
def test_wnli_by_candidates(model, tmp_path) -> None:
    write_wnli(tmp_path)
    config = settings(model, "wnli-candidates", data=str(tmp_path), epochs=30.0, dropout=0.0)
    summary = finetune(config, tmp_path / "out")
    assert summary["metrics"]["dev"]["accuracy"]["median"] == 100.0
    saved = json.loads((tmp_path / "out" / "seed-0" / "model" / "config.json").read_text())
    assert saved["architectures"] == ["ElectraForPreTraining"]
    assert (tmp_path / "out" / "seed-0" / "predictions-test.jsonl").exists()


def test_wnli_without_any_pronoun(model, tmp_path) -> None:
    (tmp_path / "WNLI").mkdir()
    for split in ("train", "dev"):
        row = "0\tThe cat likes the dog.\tAn owl hunts mice.\t1"
        (tmp_path / "WNLI" / f"{split}.tsv").write_text(f"index\tsentence1\tsentence2\tlabel\n{row}\n")
    with raises(DataError, "empty-split", "wnli-candidates", "train"):
        finetune(settings(model, "wnli-candidates", data=str(tmp_path)), tmp_path / "out")


def test_missing_options_and_folders(model, tmp_path) -> None:
    with raises(UsageError, "missing-option", "squad1", "--train", "--data"):
        finetune(settings(model, "squad1"), tmp_path / "out")
    with raises(DataError, "missing", "nosuch"):
        finetune(settings(model, "chunk", data=str(tmp_path / "nosuch")), tmp_path / "out")
    with raises(UsageError, "missing-option", "rte", "--data"):
        finetune(settings(model, "rte"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    ("head", "stock_class", "names", "spec"),
    [
        (TaggingHead(TINY.hidden_size, 5), AutoModelForTokenClassification, ("logits",), PARTS_OF_SPEECH),
        (PlainSpanHead(TINY.hidden_size), AutoModelForQuestionAnswering, ("start_logits", "end_logits"), SQUAD1),
    ],
)
def test_hugging_face_classes_compute_the_same_logits(tmp_path, head, stock_class, names, spec, padded: bool) -> None:
    """Hugging Face loads the saved files, and its logits equal ours at every token."""
    torch.manual_seed(0)
    torch.nn.init.normal_(head.output.bias)
    mine = FinetunedModel(Encoder(TINY), head).eval()
    initialize(mine.encoder, 0.15)
    tokenizer = toy_tokenizer()
    words = [Sentence(("the",), ("a",), "here:1"), Sentence(("cat",), ("b",), "here:2")]
    task = Tagging("pos", {"train": words}, tokenizer, spans=False, labels=["a", "b", "c", "d", "e"])
    save_finetuned(tmp_path, mine, task, spec, tokenizer)
    stock = stock_class.from_pretrained(tmp_path).eval()
    texts = ["likes very", "the cat is"][: 1 + padded], ["the owl likes milk .", "a dog"][: 1 + padded]
    inputs = AutoTokenizer.from_pretrained(tmp_path)(*texts, padding=True, return_tensors="pt")
    real = inputs["attention_mask"].bool()
    lengths = real.sum(1)
    batch = LabeledBatch(Batch(inputs["input_ids"], inputs["token_type_ids"], lengths, real if padded else None), {})
    with torch.inference_mode():
        theirs, ours = stock(**inputs), head.predict(mine.compute_hidden(batch), batch)
    for name in names:
        torch.testing.assert_close(theirs[name][real], ours[name][real], rtol=1e-4, atol=1e-4)
