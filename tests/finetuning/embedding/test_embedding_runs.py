"""Contrastive runs: training helps, an interrupted run resumes, and sentence-transformers reads the saved model."""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from support.callbacks import AtStep, CrashError, crash
from support.errors import notices
from support.toy_tasks import ANIMALS, THINGS, save_model, write_jsonl
from transformers import AutoModel, AutoTokenizer

import electra
from electra.finetuning import run

TEXTS = [f"the {a} {verb} {thing} ." for a in ANIMALS for verb in ("sees", "fears") for thing in THINGS]
OPTIONS = {"epochs": 6, "learning_rate": 1e-2, "batch_size": 16, "log_to": ()}


def draw_text(draw: random.Random, animal: str) -> str:
    return f"{draw.choice(['the', 'a'])} {animal} {draw.choice(['sees', 'likes', 'hunts'])} {draw.choice(THINGS)} ."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs and triples of texts with the same meaning if they are about the same animal, and similarities."""
    folder, draw = tmp_path_factory.mktemp("data"), random.Random(0)
    save_model(folder / "model")
    (folder / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    rows, scored = [], []
    for i in range(96):
        animal, other = draw.sample(ANIMALS, 2)
        first, second, negative = (draw_text(draw, each) for each in (animal, animal, other))
        rows.append({"a": first, "b": second, "c": negative})
        same = i % 2
        scored.append({"x": first, "y": second if same else negative, "z": float(same)})
    write_jsonl(folder / "train.jsonl", rows)
    write_jsonl(folder / "dev.jsonl", scored)
    return folder


@pytest.fixture(scope="module")
def tuned(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tuned")
    electra.finetune("embedding", model=folder / "model", out=out, train=folder / "texts.txt", max_length=12, **OPTIONS)
    return out


def embed(model: Path, texts: list[str], **options: object) -> np.ndarray:
    return np.array([row["vector"] for row in electra.embed(model, texts, **options)], np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("negative", [None, "c"])
def test_pairs_and_triples_are_learned(folder: Path, tmp_path: Path, negative: str | None) -> None:
    dev = [json.loads(line) for line in (folder / "dev.jsonl").read_text().splitlines()]
    first, second = (embed(folder / "model", [row[name] for row in dev]) for name in ("x", "y"))
    same = np.array([bool(row["z"]) for row in dev])
    before = (first * second).sum(1)
    embedding = {"negative": negative, "scored": ("x", "y", "z")}
    files = {"train": folder / "train.jsonl", "dev": folder / "dev.jsonl", "text": "a", "text_pair": "b"}
    summary = electra.finetune(
        "embedding", model=folder / "model", out=tmp_path, embedding=embedding, seeds=2, **files, **OPTIONS
    )
    assert summary["main_metric"] == "spearman"
    assert summary["hyperparameters"]["pooling"] == "mean"
    assert set(summary["baselines"]) == {"TF-IDF"}
    assert min(summary["metrics"]["dev"]["spearman"]["values"]) > 80
    rows = [json.loads(line) for line in (tmp_path / "seed-0/predictions-dev.jsonl").read_text().splitlines()]
    after = np.array([row["similarity"] for row in rows])
    assert before[same].min() < before[~same].max()
    assert after[same].min() > after[~same].max()
    first, second = (embed(tmp_path / "seed-0", [row[name] for row in dev]) for name in ("x", "y"))
    np.testing.assert_allclose((first * second).sum(1), after, atol=1e-5)


@pytest.mark.slow
def test_held_out_examples_are_scored_without_a_dev_file(folder: Path, tuned: Path, tmp_path: Path) -> None:
    results = json.loads((tuned / "results.json").read_text())
    assert set(results["metrics"]) == {"held_out"}
    assert results["data"]["train"]["examples"] + results["data"]["held_out"]["examples"] == len(TEXTS)
    assert results["metrics"]["held_out"]["cosine_distance"]["median"] > 20
    summary = electra.finetune(
        "embedding",
        model=folder / "model",
        out=tmp_path,
        train=folder / "train.jsonl",
        text="a",
        text_pair="b",
        select="best",
        **OPTIONS,
    )
    assert (summary["main_metric"], set(summary["metrics"])) == ("accuracy", {"dev"})


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_sentence_transformers_computes_the_same_vectors(folder: Path, tmp_path: Path, pooling: str) -> None:
    electra.finetune(
        "embedding",
        model=folder / "model",
        out=tmp_path,
        train=folder / "texts.txt",
        pooling=pooling,
        max_length=12,
        **{**OPTIONS, "epochs": 1},
    )
    directory = tmp_path / "seed-0" / "model"
    texts = [*TEXTS[:20], "the Owl, the fox", "the cat " * 30]
    stock = SentenceTransformer(str(directory), device="cpu")
    ours = embed(directory, texts)
    np.testing.assert_allclose(stock.encode(texts), ours, atol=1e-5)
    assert stock.max_seq_length == 12
    stock.save(str(tmp_path / "saved"))
    np.testing.assert_allclose(embed(tmp_path / "saved", texts), ours, atol=1e-5)
    encoder, tokenizer = AutoModel.from_pretrained(directory), AutoTokenizer.from_pretrained(directory)
    with torch.inference_mode():
        states = encoder.eval()(**tokenizer(texts[0], return_tensors="pt")).last_hidden_state[0]
    vector = states.mean(0) if pooling == "mean" else states[0]
    np.testing.assert_allclose(torch.nn.functional.normalize(vector, dim=0), ours[0], atol=1e-5)


@pytest.mark.slow
def test_predict_reads_the_model(tuned: Path) -> None:
    rows = list(electra.predict(tuned, TEXTS[:3]))
    assert rows == list(electra.embed(tuned, TEXTS[:3]))


@pytest.mark.slow
def test_interrupted_run_resumes(folder: Path, tuned: Path, tmp_path: Path, monkeypatch, caplog) -> None:
    build_recipe = run.build_recipe

    def checkpoint_often(*arguments):
        recipe = build_recipe(*arguments)
        return replace(recipe, training=replace(recipe.training, checkpoint_every=3))

    monkeypatch.setattr(run, "build_recipe", checkpoint_often)
    given = {"model": folder / "model", "out": tmp_path, "train": folder / "texts.txt", "max_length": 12, **OPTIONS}
    with pytest.raises(CrashError):
        electra.finetune("embedding", callbacks=[AtStep(5, crash)], **given)
    resumed = electra.finetune("embedding", **given)
    assert len(notices(caplog, "resuming")) == 1
    assert resumed["metrics"] == json.loads((tuned / "results.json").read_text())["metrics"]
    ours, theirs = (load_file(each / "seed-0/model/model.safetensors") for each in (tmp_path, tuned))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
