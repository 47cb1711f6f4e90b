"""`electra finetune`, `glue` and `predict` on the command line and from Python: the same names, one line for a mistake."""

import json
from pathlib import Path

import pytest
import yaml
from toy_tasks import save_model, write_glue, write_jsonl

import electra
from electra import cli


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("parts")
    return {"model": str(save_model(root / "model")), "glue": str(write_glue(root / "glue", rows=32))}


FAST = ("--epochs", "1", "--learning-rate", "1e-2", "--runtime.threads", "1")


def test_finetune_then_predict(parts, tmp_path: Path, capsys) -> None:
    out = tmp_path / "out"
    cli.main(
        [
            "finetune",
            "sst2",
            "--model",
            parts["model"],
            "--data",
            parts["glue"],
            "--out",
            str(out),
            "--seeds",
            "2",
            *FAST,
        ]
    )
    printed = capsys.readouterr().out
    assert "dev accuracy: median" in printed
    assert f"Results: {out}/results.json" in printed
    from_python = electra.finetune(
        "sst2",
        model=parts["model"],
        data=parts["glue"],
        out=str(tmp_path / "py"),
        seeds=2,
        epochs=1,
        learning_rate=1e-2,
    )
    assert from_python["metrics"] == json.loads((out / "results.json").read_text())["metrics"]

    capsys.readouterr()
    inputs = write_jsonl(tmp_path / "a.jsonl", [{"sentence": "the cat is good ."}, {"sentence": "the dog is bad ."}])
    cli.main(["predict", "--model", str(out), "--input", str(inputs)])
    on_terminal = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    cli.main(["predict", "--model", str(out), "--input", str(inputs), "--out", str(tmp_path / "said.jsonl")])
    assert capsys.readouterr().out == ""
    assert [json.loads(line) for line in (tmp_path / "said.jsonl").read_text().splitlines()] == on_terminal
    assert list(electra.predict(model=str(out), input=str(inputs))) == on_terminal


def test_glue(parts, tmp_path: Path, capsys) -> None:
    words = [
        "--model",
        parts["model"],
        "--data",
        parts["glue"],
        "--out",
        str(tmp_path / "out"),
        "--tasks",
        "sst2",
        "rte",
    ]
    cli.main(["glue", *words, "--seeds", "1", "--submission", *FAST])
    printed = capsys.readouterr().out
    assert "ELECTRA-Large, 1.75M (Table 2)" in printed
    assert "2 files for gluebenchmark.com" in printed
    assert "the site also wants CoLA.tsv" in printed


def test_an_option_reaches_the_run(parts, tmp_path: Path) -> None:
    words = [
        "--weight-decay",
        "0.1",
        "--warmup",
        "0.2",
        "--layerwise-decay",
        "0.5",
        "--max-length",
        "20",
        "--select",
        "best",
    ]
    cli.main(
        [
            "finetune",
            "rte",
            "--model",
            parts["model"],
            "--data",
            parts["glue"],
            "--out",
            str(tmp_path / "out"),
            *FAST,
            *words,
        ]
    )
    saved = yaml.safe_load((tmp_path / "out" / "seed-0" / "config.yaml").read_text())
    expected = {
        "weight_decay": 0.1,
        "warmup": 0.2,
        "layerwise_decay": 0.5,
        "max_length": 20,
        "select": "best",
        "epochs": 1.0,
    }
    assert {name: saved[name] for name in expected} == expected
    results = json.loads((tmp_path / "out" / "seed-0" / "results.json").read_text())
    assert results["protocol"] == {"epochs": 1.0, "learning_rate": 0.01, "layerwise_decay": 0.5}
    assert results["selected"].startswith("best on dev")
    assert json.loads((tmp_path / "out/seed-0/model/task.json").read_text())["max_length"] == 20


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["finetune", "colla", "--model", "{model}", "--out", "{out}"], "there is no task 'colla'"),
        (["finetune", "sst2", "--out", "{out}"], "--model is missing"),
        (["finetune", "sst2", "--model", "{out}/x", "--data", "{glue}", "--out", "{out}"], "not a model directory"),
        (["finetune", "sst2", "--model", "{model}", "--data", "{out}", "--out", "{out}"], "no SST-2/"),
        (["finetune", "sst2", "--model", "{model}", "--out", "{out}"], "sst2 needs --data"),
        (["finetune", "table", "--model", "{model}", "--train", "a.csv", "--out", "{out}"], "--text and --label"),
        (["finetune", "table", "--model", "{model}", "--text", "t", "--label", "y", "--out", "{out}"], "--train FILE"),
        (["finetune", "sst2", "--model", "{model}", "--data", "{glue}", "--swap-pairs", "true", "--out", "{out}"], "the order of a pair has a meaning"),
        (["finetune", "sst2", "--model", "{model}", "--learning-rat", "1", "--out", "{out}"], "did you mean --learning-rate?"),
        (["finetune", "sst2", "--model", "{model}", "--seeds", "0", "--out", "{out}"], "--seeds is 0"),
        (["glue", "--model", "{model}", "--out", "{out}"], "--data is missing"),
        (["predict", "--model", "{model}", "--input", "-"], "not a fine-tuned model"),
    ],
)  # fmt: skip
def test_mistakes(parts, tmp_path: Path, capsys, words: list[str], message: str) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main([word.format(**parts, out=tmp_path / "out") for word in words])
    assert stop.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert message in lines[0]
    assert not (tmp_path / "out").exists()
