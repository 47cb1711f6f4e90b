"""Pooling of text classification: formulas, padding, gradients, and the same outputs after saving."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from support.callbacks import AtStep, CrashError, crash
from support.errors import notices, raises
from support.toy_tasks import TINY, finetune_settings, save_model, toy_tokenizer, write_glue

import electra
from electra.errors import UsageError
from electra.finetuning import run
from electra.finetuning.batching import LabeledBatch, collate
from electra.finetuning.benchmark.grid import configure_task
from electra.finetuning.classification.pooling import POOLINGS
from electra.finetuning.classification.table import TABLE
from electra.finetuning.classification.task import LabeledTexts, TextClassification
from electra.finetuning.export import HEAD_FILE, save_finetuned
from electra.finetuning.model import FinetunedModel
from electra.finetuning.run import finetune
from electra.inference.finetuned import load_finetuned
from electra.model.encoder import Encoder
from electra.model.initialization import initialize
from electra.runtime.setup import Runtime

RUNTIME = Runtime(torch.device("cpu"), torch.float32)
TEXTS = ["the cat is good", "the dog is very very bad , not good .", "a owl"]


def build_task(pooling: str, kind: str = "classification") -> TextClassification:
    targets = {
        "classification": np.array([0, 1, 0]),
        "multilabel": np.array([[0, 1], [1, 1], [0, 0]], np.float32),
        "regression": np.array([2.0, 5.0, 3.0], np.float32),
    }
    texts = LabeledTexts(TEXTS, None, targets[kind])
    labels, numbers = () if kind == "regression" else ("no", "yes"), {"shift": 2.0, "scale": 5.0}
    more = numbers if kind == "regression" else {}
    return TextClassification(
        "table", kind, labels, ("accuracy",), lambda split: texts, toy_tokenizer(), 64, pooling=pooling, **more
    )


def build_model(task: TextClassification) -> FinetunedModel:
    torch.manual_seed(1)
    model = FinetunedModel(Encoder(replace(TINY, dropout=0.0, attention_dropout=0.0)), task.build_head(TINY))
    initialize(model.encoder, 0.15)
    for name, parameter in model.head.named_parameters():
        if name != "output.weight":  # not zero, so that a test notices what is not used or not saved
            torch.nn.init.normal_(parameter)
    return model.eval()


def build_batch(task: TextClassification, rows: list[int]) -> LabeledBatch:
    return collate(task.encode("dev"), np.array(rows), 0)


def pool_directly(pooling: str, states: torch.Tensor, query: torch.Tensor | None) -> torch.Tensor:
    """Pool the hidden states [L, H] of one text without padding, token by token."""
    if pooling == "cls":
        return states[0]
    scores = [float(each @ query) / len(each) ** 0.5 if query is not None else 0.0 for each in states]
    weights = np.exp(scores) / np.exp(scores).sum()
    return sum(float(weight) * each for weight, each in zip(weights, states, strict=True))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_pooling_equals_its_formula_for_each_text_alone(pooling: str) -> None:
    task = build_task(pooling)
    model = build_model(task)
    query = model.head.pooling.query.detach() if pooling == "attention" else None
    batch = build_batch(task, [0, 1, 2])
    assert batch.inputs.attention_mask is not None
    pooled = model.head.pooling(model.compute_hidden(batch), batch.inputs)
    for i in range(3):
        inputs = build_batch(task, [i]).inputs
        assert inputs.attention_mask is None
        states = model.encoder(inputs.input_ids, inputs.token_type_ids)[0].detach()
        torch.testing.assert_close(pooled[i], pool_directly(pooling, states, query), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_hidden_states_at_padding_are_not_used(pooling: str) -> None:
    """They are undefined, so that even NaN must change neither outputs nor gradients."""
    task = build_task(pooling)
    head, batch = build_model(task).head, build_batch(task, [0, 1])
    mask = batch.inputs.attention_mask
    torch.manual_seed(0)
    hidden = torch.randn(2, mask.shape[1], TINY.hidden_size)
    results = []
    for filler in (0.0, torch.nan):
        states = torch.where(mask[:, :, None], hidden, filler).requires_grad_()
        losses = head.loss(states, batch)
        gradients = torch.autograd.grad(losses.sum(), [states, *head.parameters()])
        results.append([losses, head.predict(states, batch)["logits"], *gradients])
    for one, other in zip(*results, strict=True):
        assert torch.isfinite(other).all()
        torch.testing.assert_close(one, other)
    assert not results[1][2][~mask].any()


def test_the_query_learns_from_zero_where_attention_is_the_mean() -> None:
    task = build_task("attention")
    mean, attention = build_model(build_task("mean")), build_model(task)
    torch.nn.init.zeros_(attention.head.pooling.query)
    attention.head.output.load_state_dict(mean.head.output.state_dict())
    assert not task.build_head(TINY).pooling.query.any(), "the initial query is zero"
    batch = build_batch(task, [0, 1, 2])
    losses = [model(batch, {"examples": 3.0})[0] for model in (mean, attention)]
    torch.testing.assert_close(*losses)
    losses[1].backward()
    gradient = attention.head.pooling.query.grad
    assert gradient.abs().max() > 0
    step = 1e-2
    for i in (0, 5):
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                attention.head.pooling.query[i] = sign * step
                values.append(float(attention(batch, {"examples": 3.0})[0]))
                attention.head.pooling.query[i] = 0
        assert float(gradient[i]) == pytest.approx((values[0] - values[1]) / (2 * step), rel=0.05, abs=1e-4)


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_same_outputs_after_saving(tmp_path: Path, pooling: str, kind: str) -> None:
    task = build_task(pooling, kind)
    model = build_model(task)
    save_finetuned(tmp_path, model, task, TABLE, task.tokenizer)
    before = model.compute_outputs(task.encode("dev"), RUNTIME, 2, 0)
    loaded = load_finetuned(str(tmp_path))
    after = loaded.model.compute_outputs(task.encode("dev"), RUNTIME, 2, 0)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(one["logits"], other["logits"], rtol=1e-5, atol=1e-5)
    [class_name] = json.loads((tmp_path / "config.json").read_text())["architectures"]
    assert (class_name == "ElectraForSequenceClassification") == (pooling == "cls")
    assert (tmp_path / HEAD_FILE).exists() == (pooling != "cls")
    predicted = list(electra.load(tmp_path).predict(TEXTS))
    if kind == "regression":
        assert [row["value"] for row in predicted] == pytest.approx(
            [float(row["logits"][0]) for row in before], abs=1e-4
        )
    elif kind == "classification":
        assert [row["label"] for row in predicted] == [task.labels[row["logits"].argmax()] for row in before]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_glue(tmp_path_factory.mktemp("glue"), rows=16)


def test_option_trains_and_saves_the_pooling(model: Path, glue: Path, tmp_path: Path, caplog) -> None:
    logits = {}
    for pooling in POOLINGS:
        out = tmp_path / pooling
        caplog.clear()
        config = finetune_settings(model, "sst2", data=str(glue), epochs=2.0, pooling=pooling, baseline="none")
        assert finetune(config, out)["hyperparameters"]["pooling"] == pooling
        logits[pooling] = np.load(out / "seed-0/logits-dev.npy")
        assert json.loads((out / "seed-0/model/task.json").read_text())["pooling"] == pooling
        assert len(notices(caplog, "no-hf-class")) == (pooling != "cls")
        texts = [json.loads(line) for line in (out / "seed-0/predictions-dev.jsonl").read_text().splitlines()]
        rows = (glue / "SST-2/dev.tsv").read_text().splitlines()[1:]
        again = list(electra.predict(out, [row.split("\t")[0] for row in rows]))
        assert [row["label"] for row in again] == [row["label"] for row in texts]
        assert again[0]["probabilities"] == pytest.approx(texts[0]["probabilities"], abs=1e-4)
    assert not np.allclose(logits["cls"], logits["mean"], atol=1e-3)
    assert not np.allclose(logits["mean"], logits["attention"], atol=1e-6)


def test_an_interrupted_run_with_a_query_resumes_to_the_same_weights(
    model: Path, glue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    build_recipe = run.build_recipe

    def checkpoint_often(*arguments):
        recipe = build_recipe(*arguments)
        return replace(recipe, training=replace(recipe.training, checkpoint_every=2))

    monkeypatch.setattr(run, "build_recipe", checkpoint_often)
    config = finetune_settings(model, "sst2", data=str(glue), epochs=4.0, pooling="attention", baseline="none")
    whole = finetune(config, tmp_path / "whole")
    with pytest.raises(CrashError):
        finetune(config, tmp_path / "parts", callbacks=[AtStep(5, crash)])
    caplog.clear()
    assert finetune(config, tmp_path / "parts")["metrics"] == whole["metrics"]
    assert len(notices(caplog, "resuming")) == 1
    logits = [np.load(tmp_path / name / "seed-0/logits-dev.npy") for name in ("whole", "parts")]
    np.testing.assert_array_equal(*logits)


def test_tasks_without_pooling(model: Path, tmp_path: Path) -> None:
    with raises(UsageError, "meaningless-option", "--pooling", "chunk"):
        electra.finetune("chunk", model=model, data=tmp_path, out=tmp_path / "out", pooling="mean")
    with raises(UsageError, "unknown-choice", "--pooling", "max", "attention"):
        electra.finetune("sst2", model=model, data=tmp_path, out=tmp_path / "out", pooling="max")
    config = finetune_settings(model, "", pooling="mean")
    assert configure_task(config, "wnli").pooling is None
    assert configure_task(config, "rte").pooling == "mean"
