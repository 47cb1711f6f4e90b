"""The search of fine-tuning hyperparameters, runs/finetuning_recipe.py."""

import csv
import gzip
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from support.places import ROOT
from support.toy_tasks import save_model, write_tsv

QUESTIONS = [
    ("when was the cat good", "in 1912"),
    ("who sees the dog", "the Owl"),
    ("what is good", "milk"),
    ("what likes the fox", "birds"),
]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "runs"))
    import finetuning_recipe

    yield finetuning_recipe
    del sys.modules["finetuning_recipe"]


@pytest.fixture
def scorer(script: ModuleType, tmp_path: Path):
    save_model(tmp_path / "encoder/discriminator")
    for folder, header, row in (
        ("QNLI", "index\tq\ts\tlabel", "{i}\tthe cat is {word}\tthe dog is good\t{label}"),
        ("QQP", "id\tqid1\tqid2\tq1\tq2\tlabel", "{i}\t1\t2\tthe cat is {word}\tthe cat is good\t{number}"),
    ):
        for split in ("train", "dev", "test"):
            lines = [
                row.format(
                    i=i, word=("bad", "good")[i % 2], label=("not_entailment", "entailment")[i % 2], number=i % 2
                )
                for i in range(12)
            ]
            write_tsv(tmp_path / "glue" / folder / f"{split}.tsv", header, lines)
    paragraph = {"qas": [{"question": q, "answers": [{"text": a}, {"text": "7"}]} for q, a in QUESTIONS * 3]}
    squad = json.dumps({"data": [{"paragraphs": [paragraph]}]}).encode()
    (tmp_path / "dev.json").write_bytes(squad)
    (tmp_path / "train.json.gz").write_bytes(gzip.compress(squad))
    (tmp_path / "out").mkdir()
    files = (tmp_path / "train.json.gz", tmp_path / "dev.json")
    return lambda tasks: script.Scorer(tmp_path / "out", tmp_path / "glue", files, tasks)


def test_coordinate_search_keeps_the_best_of_each_stage(script: ModuleType) -> None:
    tried = []

    def score(settings) -> float:
        tried.append(settings)
        return -abs(settings.learning_rate - 1e-3) - settings.epochs + (settings.pooling == "mean")

    stages = ({"learning_rate": (3e-4, 1e-3), "epochs": (10.0, 5.0)}, {"pooling": ("cls", "mean", "attention")})
    best = script.search(score, stages)
    assert best == script.Settings(learning_rate=1e-3, epochs=5.0, layerwise_decay=0.8, pooling="mean")
    assert len(tried) == 4 + 3
    assert {(each.learning_rate, each.epochs) for each in tried[4:]} == {(1e-3, 5.0)}
    assert script.search(lambda settings: 0.0, stages).epochs == 10.0, "the first of equal ones"


def test_stages_include_the_defaults_of_table_7(script: ModuleType) -> None:
    defaults = script.Settings()
    stages = script.build_stages()
    assert stages[0]["epochs"] == (3.0, 10.0), "many epochs are not combined with every learning rate"
    for stage in stages:
        for name, values in stage.items():
            assert getattr(defaults, name) in values
            assert replace(defaults, **{name: values[-1]}) != defaults


def test_kinds_of_answers(script: ModuleType) -> None:
    kinds = [script.find_answer_kind(each) for each in ("in 1912", "Ann 2", "the Owl", "milk", "")]
    assert kinds == ["number", "number", "name", "other", "other"]


def test_questions_are_drawn_from_all_articles(script: ModuleType, scorer, tmp_path: Path) -> None:
    for rows, expected in ((100, 12), (12, 12), (5, 4), (1, 1)):
        script.write_answers(tmp_path / "dev.json", tmp_path / "cut.jsonl", rows)
        found = [json.loads(line) for line in (tmp_path / "cut.jsonl").read_text().splitlines()]
        assert len(found) == expected
        assert found[0] == {"question": QUESTIONS[0][0], "kind": "number"}


def test_files_are_cut(script: ModuleType, scorer, tmp_path: Path) -> None:
    script.cut_glue(tmp_path / "glue", tmp_path / "cut", 5)
    assert {path.name for path in (tmp_path / "cut/QQP").iterdir()} == {"train.tsv", "dev.tsv"}
    assert (tmp_path / "cut/QQP/train.tsv").read_text().splitlines() == (
        (tmp_path / "glue/QQP/train.tsv").read_text().splitlines()[:6]
    )
    assert len((tmp_path / "cut/QQP/dev.tsv").read_text().splitlines()) == 13


def test_means_are_over_shared_tasks(script: ModuleType) -> None:
    def build_row(task: str, rate: str, score: str) -> dict[str, str]:
        values = dict(zip(script.KEY, ("e", "64", task, "100", rate, "3", "0.8", "cls", "0"), strict=True))
        return {**values, "score": score}

    rows = [build_row("qqp", "0.1", "60"), build_row("qnli", "0.1", "90"), build_row("qqp", "0.2", "70")]
    _, _, best, other = script.summarize(rows).splitlines()
    assert best == "| e | 100 | 0.2 | 3 | 0.8 | cls |  | 70.0 |  |  | 70.0 |"
    assert other == "| e | 100 | 0.1 | 3 | 0.8 | cls | 90.0 | 60.0 |  |  | 60.0 |"


@pytest.mark.slow
def test_scores_are_kept_and_resumed(script: ModuleType, scorer, tmp_path: Path, monkeypatch) -> None:
    settings = script.Settings(learning_rate=1e-2, epochs=1.0, pooling="mean")
    tasks = ("qnli", "qqp", "answers")
    runs = [tmp_path / "encoder"]
    first = scorer(tasks).score(runs[0], 12, settings)
    with (tmp_path / "out/scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["task"] for row in rows] == list(tasks)
    assert first == pytest.approx(sum(float(row["score"]) for row in rows) / 3, abs=0.01)
    assert {row["encoder"] for row in rows} == {"encoder"}
    assert {(row["width"], row["pooling"], row["learning_rate"], row["steps"]) for row in rows} == {
        ("32", "mean", "0.01", "1")
    }
    random = scorer(tasks).score(runs[0], 12, settings, random=True)
    assert json.loads((tmp_path / "out/run/results.json").read_text())["start"] == "random weights"
    table = (tmp_path / "out/scores.csv").read_text()
    assert [line.split(",")[0] for line in table.splitlines()] == ["encoder"] + ["encoder"] * 3 + ["random-32"] * 3
    assert len(set(table.splitlines())) == 7
    best = (tmp_path / "out/best.md").read_text().splitlines()
    assert len(best) == 2 + 2
    monkeypatch.setattr(script.Scorer, "finetune", None)  # nothing is run again
    again = scorer(tasks)
    assert again.score(runs[0], 12, settings) == pytest.approx(first, abs=0.01)
    assert again.score(runs[0], 12, settings, random=True) == pytest.approx(random, abs=0.01)
    assert (tmp_path / "out/scores.csv").read_text() == table
