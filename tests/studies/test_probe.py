"""The linear probe: its features equal Hugging Face's hidden states, and it finds only existing information."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from support.errors import raises
from support.toy_tasks import save_model, write_glue, write_tsv
from transformers import AutoModel

from electra.errors import DataError
from electra.finetuning.classification.glue import load_glue_task
from electra.finetuning.classification.task import LabeledTexts
from electra.runtime.setup import Runtime, RuntimeConfig
from electra.studies.probing.probe import (
    PENALTIES,
    build_search,
    compute_features,
    load_frozen_encoder,
    probe,
    select_subset,
)
from electra.studies.probing.sentence_vectors import compute_similarity_scores
from electra.text.tokenizer import load_tokenizer

CPU = Runtime(torch.device("cpu"), torch.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@torch.no_grad()
def test_features_are_means_of_hugging_face_hidden_states(model: Path) -> None:
    first, second = ["the cat is good .", "a dog ."], ["the owl sees mice .", "the cat is good ."]
    encoder, tokenizer = load_frozen_encoder(model)
    ours = compute_features(encoder, tokenizer, LabeledTexts(first, second, None), 5, CPU)
    theirs = AutoModel.from_pretrained(model).eval()

    def states(text: str) -> list[np.ndarray]:
        ids = [tokenizer.cls_id, *tokenizer.encode_lines([text])[0][:3], tokenizer.sep_id]  # cut at 5
        hidden = theirs(torch.tensor([ids]), output_hidden_states=True).hidden_states
        return [layer[0].mean(0).numpy() for layer in hidden]

    assert len(ours) == 1 + theirs.config.num_hidden_layers
    for row in range(2):
        for layer, (u, v) in enumerate(zip(states(first[row]), states(second[row]), strict=True)):
            expected = np.concatenate([u, v, np.abs(u - v), u * v])
            np.testing.assert_allclose(ours[layer][row], expected, atol=1e-5)
    alone = compute_features(encoder, tokenizer, LabeledTexts(first, None, None), 5, CPU)
    np.testing.assert_array_equal(alone[1], ours[1][:, : alone[1].shape[1]])


@pytest.mark.slow
def test_probe_finds_information_in_the_words(model: Path, tmp_path: Path) -> None:
    glue = str(write_glue(tmp_path, rows=160))
    settings = {"max_length": 24, "max_examples": 5_000, "device": RuntimeConfig("cpu")}
    sentiment = probe(model, glue, "sst2", **settings)
    assert sentiment.best > 90
    assert sentiment.layer in range(3)
    assert probe(model, glue, "stsb", **settings).best > 80, "the label is whether both sentences have the same animal"
    again = probe(model, glue, "sst2", **settings)
    assert again == sentiment


@pytest.mark.slow
def test_probe_of_random_labels_is_at_chance(model: Path, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for split, number in (("train", 200), ("dev", 400)):
        rows = [f"the cat is {draw.choice(['good', 'bad'])} .\t{draw.integers(2)}" for _ in range(number)]
        write_tsv(tmp_path / "SST-2" / f"{split}.tsv", "sentence\tlabel", rows)
    found = probe(model, str(tmp_path), "sst2", max_length=24, max_examples=5_000, device=RuntimeConfig("cpu"))
    assert found.best == pytest.approx(50, abs=8)


def test_subset_is_deterministic(tmp_path: Path) -> None:
    task = load_glue_task("mrpc", str(write_glue(tmp_path)), load_tokenizer(save_model(tmp_path / "model")))
    full = task.read("train")
    some = select_subset(full, 10)
    assert len(some) == 10
    assert some.labels is not None
    assert full.second is not None
    pairs = list(zip(full.first, full.second, full.labels, strict=True))
    assert all(row in pairs for row in zip(some.first, some.second or (), some.labels, strict=True))
    assert select_subset(full, 10).first == some.first
    assert select_subset(full, len(full)) is full


def test_classes_are_balanced_for_matthews_correlation(tmp_path: Path) -> None:
    """With a weak feature and equal example weights, the rarer class would never be predicted."""
    draw = np.random.default_rng(0)
    labels = (draw.random(600) < 0.85).astype(np.int64)
    columns = (labels + 2.0 * draw.standard_normal(600))[:, None]
    task = load_glue_task("cola", str(tmp_path), load_tokenizer(save_model(tmp_path / "model")))
    balanced = build_search(task, PENALTIES).fit(columns, labels)
    unbalanced = build_search(replace(task, metrics=("accuracy",)), PENALTIES).fit(columns, labels)
    assert (balanced.predict(columns) == 0).mean() > 0.2
    assert (unbalanced.predict(columns) == 0).mean() < 0.02


def test_missing_task_raises(model: Path, tmp_path: Path) -> None:
    with raises(DataError, "missing", tmp_path, "CoLA/train.tsv"):
        probe(model, str(tmp_path), "cola", max_length=24, max_examples=10, device=RuntimeConfig("cpu"))


@torch.no_grad()
def test_similarity_is_that_of_sentence_transformers(model: Path, tmp_path: Path) -> None:
    """Spearman's correlation of cosines of mean-pooled states of transformers' model, with nothing fitted."""
    glue = write_glue(tmp_path, rows=40)
    found = compute_similarity_scores(model, str(glue), max_length=24, device=RuntimeConfig("cpu"))
    dev = load_glue_task("stsb", str(glue), tokenizer := load_tokenizer(model)).read("dev")
    theirs = AutoModel.from_pretrained(model).eval()

    def encode(text: str) -> np.ndarray:
        ids = [tokenizer.cls_id, *tokenizer.encode_lines([text])[0], tokenizer.sep_id]
        return theirs(torch.tensor([ids])).last_hidden_state[0].mean(0).double().numpy()

    cosines = []
    for first, second in zip(dev.first, dev.second, strict=True):
        u, v = encode(first), encode(second)
        cosines.append(u @ v / np.linalg.norm(u) / np.linalg.norm(v))
    assert len(found) == 1 + theirs.config.num_hidden_layers
    assert found[-1] == pytest.approx(100 * spearmanr(cosines, dev.labels).statistic, abs=0.5)  # ties by rounding
