"""Baselines beside fine-tuned scores: constants, linear models of TF-IDF, frequent tags, random weights."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.toy_tasks import finetune_settings, save_model, write_conll, write_glue

import electra
from electra import cli
from electra.finetuning.benchmark.score_table import COLUMNS, build_table_rows, list_notes
from electra.finetuning.classification import baselines
from electra.finetuning.classification.baselines import score_baselines
from electra.finetuning.classification.task import LabeledTexts, TextClassification
from electra.finetuning.run import finetune
from electra.finetuning.tagging.data import Sentence
from electra.finetuning.tagging.task import Tagging
from electra.text.tokenizer import load_tokenizer

CLASS_BASELINES = ("majority class", "TF-IDF, logistic regression")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def make_task(model: Path) -> Callable[..., TextClassification]:
    """Makes a task whose dev split is its train split."""

    def make(first: list[str], labels: list, kind: str = "classification", second: list[str] | None = None, **more):
        texts = LabeledTexts(first, second, np.array(labels))
        metrics = {"classification": ("accuracy",), "regression": ("spearman",), "multilabel": ("micro_f1",)}[kind]
        names = () if kind == "regression" else ("a", "b", "c")[: np.shape(labels)[-1] if kind == "multilabel" else 3]
        return TextClassification("toy", kind, names, metrics, lambda split: texts, load_tokenizer(model), **more)

    return make


def test_the_majority_class_and_a_linear_model(make_task: Callable) -> None:
    texts = [
        f"the {animal} is {word} ." for animal in ("cat", "dog", "fox") for word in ("good", "good", "bad", "fine")
    ]
    task = make_task(texts, [{"good": 0, "bad": 1, "fine": 2}[text.split()[3]] for text in texts])
    assert score_baselines(task, "dev") == {
        "majority class": {"accuracy": 50.0},
        "TF-IDF, logistic regression": {"accuracy": 100.0},
    }


def test_numbers_and_several_labels(make_task: Callable) -> None:
    texts = [" ".join(["good"] * number + ["bad"] * (6 - number)) for number in range(7)]
    found = score_baselines(make_task(texts, list(map(float, range(7))), "regression"), "dev")
    assert found["mean"] == {"spearman": 0.0}
    assert found["TF-IDF, ridge regression"]["spearman"] > 90
    texts = ["cat dog", "cat", "dog", "fox"] * 5
    rows = [[int("cat" in text), int("dog" in text)] for text in texts]
    found = score_baselines(make_task(texts, rows, "multilabel"), "dev")
    assert found["TF-IDF, logistic regression"] == {"micro_f1": 100.0}


def test_pairs_are_compared(make_task: Callable) -> None:
    """The label is whether both texts are equal, which neither of them tells alone."""
    words = ("cat", "dog", "fox", "owl", "milk", "mice", "birds", "bees")
    pairs = [(u, v) for u in words for v in words for _ in range(1 if u != v else 7)]
    first, second = ([pair[side] for pair in pairs] for side in (0, 1))
    task = make_task(first, [int(u == v) for u, v in pairs], second=second)
    assert score_baselines(task, "dev")["TF-IDF, logistic regression"]["accuracy"] > 95


def test_no_linear_model_without_words_or_with_one_class(make_task: Callable) -> None:
    assert list(score_baselines(make_task(["", " "], [0, 1]), "dev")) == ["majority class"]
    assert list(score_baselines(make_task(["good", "bad"], [1, 1]), "dev")) == ["majority class"]


def test_many_examples_are_sampled(make_task: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "MAX_EXAMPLES", 20)
    seen = []
    original = baselines.build_features
    monkeypatch.setattr(
        baselines, "build_features", lambda train, rows, scored: seen.append(rows) or original(train, rows, scored)
    )
    score_baselines(make_task(["good", "bad"] * 50, [0, 1] * 50), "dev")
    assert len(set(seen[0].tolist())) == 20


def test_the_most_frequent_tag_of_a_word(model: Path) -> None:
    def sentence(words: str, tags: str) -> Sentence:
        return Sentence(tuple(words.split()), tuple(tags.split()), place="here")

    train = [sentence("the cat sees", "D N V"), sentence("the sees", "D N"), sentence("sees sees", "V V")]
    dev = [sentence("the dog sees cat", "D N V V")]
    task = Tagging("toy", {"train": train, "dev": dev}, load_tokenizer(model), spans=False)
    assert task.score_baselines("dev") == {"most frequent tag of a word": {"accuracy": 50.0}}


@pytest.mark.slow
def test_random_weights_are_fine_tuned_too(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    model, glue = save_model(tmp_path / "model"), write_glue(tmp_path / "glue", rows=16)
    config = finetune_settings(model, "sst2", data=str(glue), epochs=1.0)
    plain = finetune(config, tmp_path / "plain", 2)
    assert set(plain["baselines"]) == {"majority class", "TF-IDF, logistic regression"}
    summary = finetune(replace(config, baseline="random"), tmp_path / "plain", 2)
    assert {name: summary[name] for name in ("metrics", "seeds")} == {
        name: plain[name] for name in ("metrics", "seeds")
    }
    scratch = finetune(replace(config, from_scratch=True, baseline="none"), tmp_path / "scratch", 2)
    assert scratch["baselines"] == {}
    expected = scratch["metrics"]["dev"]["accuracy"]["median"]
    assert summary["baselines"] == plain["baselines"] | {"random weights": {"accuracy": expected}}
    results = electra.glue(
        model=model, data=glue, out=tmp_path / "grid", tasks=["sst2"], seeds=1, epochs=1.0, baseline="random"
    )
    assert set(results["tasks"]["sst2"]["baselines"]) == set(summary["baselines"])
    table = (tmp_path / "grid/results.md").read_text()
    for name in summary["baselines"]:
        assert f"| baseline, {name} |" in table


def test_rows_of_the_table_have_the_baselines_of_every_task() -> None:
    """Those of numbers share the rows of those of classes, so that every row has an average over the eight tasks."""
    summaries = {}
    for number, name in enumerate(COLUMNS):
        metric = "spearman" if name == "stsb" else "accuracy"
        constant, linear = ("mean", "TF-IDF, ridge regression") if name == "stsb" else CLASS_BASELINES
        values = {constant: 10.0 + number, linear: 20.0 + number, "random weights": 30.0 + number}
        spread = {"median": 90.0, "std": None}
        summaries[name] = {
            "main_metric": metric,
            "metrics": {"dev": {metric: spread}},
            "baselines": {baseline: {metric: value, "other": 0.0} for baseline, value in values.items()},
        }
    config = {"from_scratch": False, "select": "last"}
    results = {"config": config, "seeds": 1, "tasks": summaries, "average": 90.0, "intermediate": False}
    rows = {row[0]: row[1:] for row in build_table_rows(results) if row[0].startswith("baseline")}
    for label, first in zip((*CLASS_BASELINES, "random weights"), (10.0, 20.0, 30.0), strict=True):
        expected = [first + number for number in range(8)]
        assert rows[f"baseline, {label}"] == [f"{value:.1f}" for value in (*expected, sum(expected) / 8)]
    assert len(rows) == 3
    notes = list_notes(results)
    assert len(list_notes({**results, "tasks": {"rte": summaries["rte"]}})) == len(notes) - 1


@pytest.mark.slow
def test_baselines_of_tags_are_printed_and_stored(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    model, train = save_model(tmp_path / "model"), write_conll(tmp_path / "train.txt", 16, 1)
    dev, out = write_conll(tmp_path / "dev.txt", 8, 2), tmp_path / "out"
    words = f"--model {model} --train {train} --dev {dev} --out {out} --epochs 1 --learning-rate 1e-3 --baseline random"
    cli.main(["finetune", "chunk", *words.split()])
    printed = capsys.readouterr().out
    stored = json.loads((out / "results.json").read_text())["baselines"]
    assert list(stored) == ["most frequent tag of a word", "random weights"]
    for name, metrics in stored.items():
        assert f"baseline, {name}: dev accuracy {metrics['accuracy']:.1f}" in printed
