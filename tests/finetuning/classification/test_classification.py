"""Text classification: encoding, heads and the classes of Hugging Face, on toy sentences."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import matthews_corrcoef
from support.errors import notices
from support.toy_tasks import TINY, toy_tokenizer
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from electra.finetuning.batching import collate
from electra.finetuning.classification.heads import TextClassificationHead
from electra.finetuning.classification.inference import encode_pairs, format_prediction, truncate_lengths
from electra.finetuning.classification.metrics import METRICS
from electra.finetuning.classification.table import TABLE
from electra.finetuning.classification.task import LabeledTexts, TextClassification
from electra.finetuning.export import HEAD_FILE, save_finetuned
from electra.finetuning.model import FinetunedModel
from electra.model.encoder import Encoder
from electra.model.initialization import initialize
from electra.runtime.setup import Runtime


def slow_truncation(a: int, b: int, capacity: int) -> tuple[int, int]:
    """Remove one token at a time from the longer text, from b if both are equally long."""
    while a + b > capacity:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    return a, b


def test_truncation_of_the_longer_text() -> None:
    for a in range(12):
        for b in range(12):
            for capacity in range(1, 14):
                assert truncate_lengths(a, b, capacity) == slow_truncation(a, b, capacity)


def test_encode_pairs() -> None:
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
    texts = LabeledTexts(["the cat is good", "the dog is very bad ."], ["a owl", "a fox sleeps"], targets.get(kind))
    metrics = ("accuracy",) if kind == "classification" else ("spearman",)
    return TextClassification("toy", kind, labels, metrics, lambda split: texts, toy_tokenizer(), **more)


def model_of(task: TextClassification) -> FinetunedModel:
    torch.manual_seed(1)
    model = FinetunedModel(Encoder(TINY), task.build_head(TINY))
    initialize(model.encoder, 0.15)
    torch.nn.init.normal_(model.head.output.bias)  # not zero, so that a test notices a bias that is not exported
    return model.eval()


def test_swapped_pairs_double_the_training_examples_only() -> None:
    task = task_of("classification", ("no", "yes"), swap_pairs=True)
    train, dev = task.encode("train"), task.encode("dev")
    assert (len(train), len(dev)) == (4, 2)
    assert train.targets["label"].tolist() == [0, 1, 0, 1]
    tokens = " ".join(task.tokenizer.tokens(train.input_ids[2]))
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
def test_hugging_face_class_computes_the_same_logits(tmp_path: Path, kind, labels, more, padded: bool) -> None:
    """Our head has no hidden layer, Hugging Face's has one; the export represents ours exactly."""
    task = task_of(kind, labels, **more)
    model = model_of(task)
    save_finetuned(tmp_path, model, task, TABLE, task.tokenizer)
    stock = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    batch = collate(task.encode("dev"), np.array([0, 1] if padded else [0]), 0)
    first, second = (["the cat is good", "the dog is very bad ."], ["a owl", "a fox sleeps"])
    rows = slice(None) if padded else slice(1)
    inputs = tokenizer(first[rows], second[rows], padding=True, return_tensors="pt")
    assert inputs["input_ids"].tolist() == batch.inputs.input_ids.tolist()
    with torch.inference_mode():
        theirs = stock(**inputs).logits
        ours = model.head.predict(model.compute_hidden(batch), batch)["logits"]
    torch.testing.assert_close(theirs, ours, rtol=1e-5, atol=1e-5)
    assert list(stock.config.id2label.values()) == list(labels or ["value"])


def test_last_layer_of_cls_alone_has_the_same_gradients() -> None:
    task = task_of("classification", ("no", "yes"))
    batch = collate(task.encode("train"), np.array([0, 1]), 0)
    gradients = []
    for only_cls in (True, False):
        model = model_of(task)
        model.head.only_cls = only_cls
        assert model.compute_hidden(batch).shape[1] == (1 if only_cls else batch.inputs.input_ids.shape[1])
        loss, _ = model(batch, {"examples": 2.0})
        loss.backward()
        gradients.append([loss, *(p.grad for p in model.parameters())])
    for quick, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(quick, plain, rtol=1e-5, atol=1e-6)


def test_head_without_hugging_face_class_is_saved_in_a_separate_file(tmp_path: Path, caplog) -> None:
    """The class of Hugging Face represents the head only if twice the number of labels fits into the hidden size."""
    task = task_of("classification", tuple(map(str, range(17))))
    save_finetuned(tmp_path, model_of(task), task, TABLE, task.tokenizer)
    assert (tmp_path / HEAD_FILE).exists()
    [message] = notices(caplog, "saved")
    assert HEAD_FILE in message


def test_losses_against_their_definitions() -> None:
    hidden = torch.randn(2, 3, 8)
    batch = collate(task_of("classification", ("a", "b")).encode("dev"), np.array([0, 1]), 0)
    head = TextClassificationHead("classification", 8, 2, 0.0)
    logits = hidden[:, 0] @ head.output.weight.T + head.output.bias
    expected = logits.logsumexp(1) - logits[[0, 1], [0, 1]]
    torch.testing.assert_close(head.loss(hidden, batch), expected)

    number = task_of("regression", (), scale=5.0)
    batch = collate(number.encode("dev"), np.array([0, 1]), 0)
    head = TextClassificationHead("regression", 8, 1, 0.0, scale=5.0)
    predicted = head.predict(hidden, batch)["logits"][:, 0]
    torch.testing.assert_close(head.loss(hidden, batch), ((predicted - torch.tensor([2.0, 5.0])) / 5) ** 2)


def test_outputs_are_in_the_order_of_the_examples() -> None:
    task = task_of("classification", ("a", "b"))
    model, examples = model_of(task), task.encode("dev")
    runtime = Runtime(torch.device("cpu"), torch.float32)
    batched = model.compute_outputs(examples, runtime, 2, 0)
    single = model.compute_outputs(examples, runtime, 1, 0)
    for one, other in zip(batched, single, strict=True):
        np.testing.assert_allclose(one["logits"], other["logits"], rtol=1e-4, atol=1e-5)


def test_format_prediction() -> None:
    predicted = format_prediction("classification", ("no", "yes"), np.array([0.0, np.log(3.0)], np.float32))
    assert predicted["label"] == "yes"
    assert predicted["probabilities"]["yes"] == pytest.approx(0.75)
    assert format_prediction("multilabel", ("a", "b"), np.array([1.0, -1.0]))["labels"] == ["a"]
    assert format_prediction("regression", (), np.array([3.5])) == {"value": 3.5}


def test_matthews_correlation_of_a_single_class_is_zero_without_a_warning() -> None:
    """scikit-learn would warn, and pytest turns warnings into errors."""
    ones, mixed = np.ones(4, np.int64), np.array([0, 1, 1, 0])
    assert (
        METRICS["matthews"](ones, ones) == METRICS["matthews"](ones, mixed) == METRICS["matthews"](mixed, ones) == 0.0
    )
    other = np.array([0, 1, 0, 0])
    assert METRICS["matthews"](other, mixed) == pytest.approx(matthews_corrcoef(mixed, other))
