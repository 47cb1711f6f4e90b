"""Encoding, heads and the stock Hugging Face classes, on toy sentences."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import matthews_corrcoef
from support.toy_tasks import TINY, toy_tokenizer
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from electra.finetuning.batching import collate
from electra.finetuning.classification.heads import TextClassificationHead
from electra.finetuning.classification.inference import encode_pairs
from electra.finetuning.classification.metrics import METRICS
from electra.finetuning.classification.task import LabeledTexts, TextClassification, readable, truncate_lengths
from electra.finetuning.export import save_finetuned
from electra.finetuning.model import FinetunedModel
from electra.model.encoder import Encoder, initialize
from electra.runtime import Runtime


def slow_truncation(a: int, b: int, room: int) -> tuple[int, int]:
    """Pop from the longer, in a tie from b."""
    while a + b > room:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    return a, b


def test_truncation_pops_from_the_longer() -> None:
    for a in range(12):
        for b in range(12):
            for room in range(1, 14):
                assert truncate_lengths(a, b, room) == slow_truncation(a, b, room)


def test_pairs_as_the_encoder_reads_them() -> None:
    tokenizer = toy_tokenizer()
    ids, segment_a, cut = encode_pairs(tokenizer, ["the cat", "the dog sees mice"], ["a fox", "a owl is bad"], 9)
    assert [" ".join(tokenizer.tokens(each)) for each in ids] == [
        "[CLS] the cat [SEP] a fox [SEP]",
        "[CLS] the dog sees [SEP] a owl is [SEP]",
    ]
    assert (segment_a, cut) == ([4, 5], 1)
    ids, segment_a, cut = encode_pairs(tokenizer, ["the cat", ""], None, 3)
    assert [tokenizer.tokens(each) for each in ids] == [["[CLS]", "the", "[SEP]"], ["[CLS]", "[SEP]"]]
    assert (segment_a, cut) == ([3, 2], 1)


def task_of(kind: str, labels: tuple[str, ...], **more) -> TextClassification:
    targets = {"classification": np.array([0, 1]), "regression": np.array([2.0, 5.0], np.float32)}
    sentences = LabeledTexts(["the cat is good", "the dog is very bad ."], ["a owl", "a fox sleeps"], targets.get(kind))
    metrics = ("accuracy",) if kind == "classification" else ("spearman",)
    return TextClassification("toy", kind, labels, metrics, lambda split: sentences, toy_tokenizer(), **more)


def model_of(task: TextClassification) -> FinetunedModel:
    torch.manual_seed(1)
    model = FinetunedModel(Encoder(TINY), task.head(TINY))
    initialize(model.encoder, 0.15)
    torch.nn.init.normal_(model.head.output.bias)  # biases too must be seen to arrive
    return model.eval()


def test_swapped_pairs_double_the_training_examples_alone() -> None:
    task = task_of("classification", ("no", "yes"), swap_pairs=True)
    train, dev = task.features("train"), task.features("dev")
    assert (len(train), len(dev)) == (4, 2)
    assert train.targets["label"].tolist() == [0, 1, 0, 1]
    tokens = " ".join(task.tokenizer.tokens(train.ids[2]))
    assert tokens == "[CLS] a owl [SEP] the cat is good [SEP]"


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    ("kind", "labels", "more"),
    [
        ("classification", ("no", "maybe", "yes"), {}),
        ("multilabel", ("a", "b"), {}),
        ("regression", (), {"shift": 2.0, "scale": 5.0}),
    ],
)
def test_the_stock_class_gives_the_same_logits(tmp_path: Path, kind, labels, more, padded: bool) -> None:
    """Our head has no hidden layer, Hugging Face's has one; ours is folded into it exactly."""
    task = task_of(kind, labels, **more)
    model = model_of(task)
    save_finetuned(tmp_path, model, task, task.tokenizer)
    stock = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    batch = collate(task.features("dev"), np.array([0, 1] if padded else [0]), 0)
    first, second = (["the cat is good", "the dog is very bad ."], ["a owl", "a fox sleeps"])
    rows = slice(None) if padded else slice(1)
    inputs = tokenizer(first[rows], second[rows], padding=True, return_tensors="pt")
    assert inputs["input_ids"].tolist() == batch.inputs.input_ids.tolist()
    with torch.inference_mode():
        theirs = stock(**inputs).logits
        ours = model.head.predict(model.hidden(batch), batch)["logits"]
    torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=1e-5)
    assert list(stock.config.id2label.values()) == list(labels or ["value"])


def test_the_last_layer_computes_cls_alone_and_learns_the_same() -> None:
    task = task_of("classification", ("no", "yes"))
    batch = collate(task.features("train"), np.array([0, 1]), 0)
    learnt = []
    for only_cls in (True, False):
        model = model_of(task)
        model.head.only_cls = only_cls
        assert model.hidden(batch).shape[1] == (1 if only_cls else batch.inputs.input_ids.shape[1])
        loss, _ = model(batch, {"examples": 2.0})
        loss.backward()
        learnt.append([loss, *(p.grad for p in model.parameters())])
    for quick, plain in zip(*learnt, strict=True):
        torch.testing.assert_close(quick, plain, rtol=1e-5, atol=1e-6)


def test_a_head_that_no_stock_class_has_is_kept_beside_the_encoder(tmp_path: Path, capsys) -> None:
    """Twice the labels must fit into the hidden size for the folding."""
    task = task_of("classification", tuple(map(str, range(17))))
    save_finetuned(tmp_path, model_of(task), task, task.tokenizer)
    assert (tmp_path / "head.safetensors").exists()
    assert "no class of Hugging Face has it" in capsys.readouterr().out


def test_losses_against_their_definitions() -> None:
    hidden = torch.randn(2, 3, 8)
    batch = collate(task_of("classification", ("a", "b")).features("dev"), np.array([0, 1]), 0)
    head = TextClassificationHead("classification", 8, 2, 0.0)
    logits = hidden[:, 0] @ head.output.weight.T + head.output.bias
    expected = logits.logsumexp(1) - logits[[0, 1], [0, 1]]
    torch.testing.assert_close(head.loss(hidden, batch), expected)

    number = task_of("regression", (), scale=5.0)
    batch = collate(number.features("dev"), np.array([0, 1]), 0)
    head = TextClassificationHead("regression", 8, 1, 0.0, scale=5.0)
    said = head.predict(hidden, batch)["logits"][:, 0]
    torch.testing.assert_close(head.loss(hidden, batch), ((said - torch.tensor([2.0, 5.0])) / 5) ** 2)


def test_outputs_come_in_the_order_of_the_examples() -> None:
    task = task_of("classification", ("a", "b"))
    model, features = model_of(task), task.features("dev")
    runtime = Runtime(torch.device("cpu"), torch.float32)
    together = model.outputs(features, runtime, 2, 0)
    alone = model.outputs(features, runtime, 1, 0)
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one["logits"], other["logits"], rtol=1e-4, atol=1e-5)


def test_predictions_are_readable() -> None:
    said = readable("classification", ("no", "yes"), np.array([0.0, np.log(3.0)], np.float32))
    assert said["label"] == "yes"
    assert said["probabilities"]["yes"] == pytest.approx(0.75)
    assert readable("multilabel", ("a", "b"), np.array([1.0, -1.0]))["labels"] == ["a"]
    assert readable("regression", (), np.array([3.5])) == {"value": 3.5}


def test_matthews_correlation_of_a_single_class_is_zero_and_no_warning() -> None:
    """scikit-learn warns, which pytest makes an error."""
    ones, mixed = np.ones(4, np.int64), np.array([0, 1, 1, 0])
    assert (
        METRICS["matthews"](ones, ones) == METRICS["matthews"](ones, mixed) == METRICS["matthews"](mixed, ones) == 0.0
    )
    other = np.array([0, 1, 0, 0])
    assert METRICS["matthews"](other, mixed) == pytest.approx(matthews_corrcoef(mixed, other))
