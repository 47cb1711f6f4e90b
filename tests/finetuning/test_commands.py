"""`electra finetune`, `glue` and `predict` on the command line and from Python: the same options, errors in one line."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy.stats import pearsonr
from support.errors import check_message, fails, notices
from support.toy_tasks import save_model, toy_tokenizer, write_glue, write_jsonl, write_questions

import electra
from electra import cli, display
from electra.finetuning.benchmark import grid
from electra.finetuning.classification.table import Columns, load_table_task


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
    assert "dev accuracy" in printed
    assert f"{out}/results.json" in printed
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
    cli.main(["predict", "--model", str(out), "--input", str(inputs), "--out", str(tmp_path / "predictions.jsonl")])
    assert capsys.readouterr().out == ""
    assert [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()] == on_terminal
    assert list(electra.predict(model=str(out), input=inputs)) == on_terminal


def test_glue(parts, tmp_path: Path, capsys, caplog) -> None:
    words = [
        "--model",
        parts["model"],
        "--data",
        parts["glue"],
        "--out",
        str(tmp_path / "out"),
        "--tasks",
        "sst2,rte",
    ]
    cli.main(["glue", *words, "--seeds", "1", "--submission", *FAST])
    assert "ELECTRA-Large, 1.75M (Table 2)" in capsys.readouterr().out
    [written] = notices(caplog, "submission")
    check_message(written, 2)
    [missing] = notices(caplog, "incomplete-submission")
    check_message(missing, "CoLA.tsv")


def test_options_are_saved(parts, tmp_path: Path) -> None:
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
    assert results["hyperparameters"] == {
        "epochs": 1.0,
        "learning_rate": 0.01,
        "layerwise_decay": 0.5,
        "pooling": "cls",
    }
    assert results["selected"].startswith("best on dev")
    assert json.loads((tmp_path / "out/seed-0/model/task.json").read_text())["max_length"] == 20


def test_options_of_spans(parts, tmp_path: Path) -> None:
    train, dev = write_questions(tmp_path / "train.json", 16, 0), write_questions(tmp_path / "dev.json", 4, 1)
    files = ["--model", parts["model"], "--train", str(train), "--dev", str(dev), "--out", str(tmp_path / "out")]
    spans = ["--span.head", "plain", "--span.max-answer-length", "2", "--span.n-best-size", "3", "--span.doc-stride=8"]
    cli.main(["finetune", "squad1", *files, *spans, *FAST])
    span = json.loads((tmp_path / "out/seed-0/model/task.json").read_text())["span"]
    given = {"head": "plain", "max_answer_length": 2, "n_best_size": 3, "doc_stride": 8, "beam_size": 20}
    assert {name: span[name] for name in given} == given
    rows = [json.loads(line) for line in (tmp_path / "out/seed-0/predictions-dev.jsonl").read_text().splitlines()]
    assert {len(row["n_best"]) for row in rows} == {3}
    assert all(len(row["answer"].split()) <= 2 for row in rows)


def test_kind_of_a_table(parts, tmp_path: Path, caplog) -> None:
    table = write_jsonl(tmp_path / "a.jsonl", [{"t": f"the cat {'is ' * i}good", "y": i % 4} for i in range(20)])
    words = ["--model", parts["model"], "--train", str(table), "--text", "t", "--label", "y", *FAST]
    cli.main(["finetune", "table", *words, "--out", str(tmp_path / "found")])
    [message] = notices(caplog, "column-kind")
    check_message(message, "'y'", 4, "0, 1, 2, 3")
    caplog.clear()
    cli.main(["finetune", "table", *words, "--kind", "regression", "--out", str(tmp_path / "given")])
    [message] = notices(caplog, "column-kind")
    check_message(message, "'y'")
    assert "0, 1, 2, 3" not in message
    assert json.loads((tmp_path / "given" / "results.json").read_text())["main_metric"] == "spearman"


def test_split_seed(parts, tmp_path: Path) -> None:
    """The dev scores are those on the rows that --split-seed holds out, whatever --seed is."""
    table = write_jsonl(tmp_path / "a.jsonl", [{"t": f"the cat {'is ' * i}good", "y": i**2 + 0.5} for i in range(20)])
    words = ["--train", str(table), "--text", "t", "--label", "y", "--dev-share", "0.5", *FAST]
    for split, seed in ((0, 1), (5, 0)):
        out = tmp_path / f"{split}-{seed}"
        seeds = ["--split-seed", str(split), "--seed", str(seed)]
        cli.main(["finetune", "table", "--model", parts["model"], *words, *seeds, "--out", str(out)])
        columns = Columns("t", None, "y")
        dev = load_table_task({"train": table}, columns, toy_tokenizer(), dev_share=0.5, split_seed=split).read("dev")
        expected = pearsonr(np.load(out / f"seed-{seed}" / "logits-dev.npy")[:, 0], dev.labels).statistic
        scores = json.loads((out / "results.json").read_text())["metrics"]["dev"]
        assert scores["pearson"]["median"] == pytest.approx(100 * expected)


@pytest.mark.parametrize("switch", ["{}", "{} true", "{}=true", "{} True"])
def test_boolean_options_need_no_value(monkeypatch, switch: str) -> None:
    seen = []
    monkeypatch.setattr(grid, "glue", lambda config, out, **rest: seen.append((config, rest)) or {})
    monkeypatch.setattr(display, "show_glue", lambda results, given: None)
    of_config = ("swap_pairs", "from_scratch", "skip_bad_rows", "summed_loss", "bias_correction")
    of_grid = ("intermediate", "submission")
    names = ["--" + name.replace("_", "-") for name in (*of_config, *of_grid)]
    words = " ".join(switch.format(name) for name in names).split()
    cli.main(["glue", "--model", "m", "--data", "d", *words, "--out", "o"])
    cli.main(["glue", "--model", "m", "--data", "d", "--out", "o", *(f"{name}=false" for name in names)])
    for (config, rest), expected in zip(seen, (True, False), strict=True):
        assert [getattr(config, name) for name in of_config] == [expected] * len(of_config)
        assert [rest[name] for name in of_grid] == [expected] * len(of_grid)


@pytest.mark.parametrize(
    ("words", "code", "values"),
    [
        (["finetune", "colla", "--model", "{model}", "--out", "{out}"], "unknown-choice", ["TASK", "colla", "cola?"]),
        (["finetune", "sst2", "--out", "{out}"], "missing-option", ["--model"]),
        (["finetune", "sst2", "--model", "{out}/x", "--data", "{glue}", "--out", "{out}"], "not-model", ["out/x"]),
        (["finetune", "sst2", "--model", "{model}", "--data", "{out}", "--out", "{out}"], "missing", ["SST-2/"]),
        (["finetune", "sst2", "--model", "{model}", "--out", "{out}"], "missing-option", ["sst2", "--data"]),
        (["finetune", "table", "--model", "{model}", "--train", "a.csv", "--out", "{out}"], "missing-option", ["--text", "--label"]),
        (["finetune", "table", "--model", "{model}", "--text", "t", "--label", "y", "--out", "{out}"], "missing-option", ["--train"]),
        (["finetune", "sst2", "--model", "{model}", "--data", "{glue}", "--swap-pairs", "true", "--out", "{out}"], "no-swap", ["--swap-pairs", "sst2"]),
        (["finetune", "sst2", "--model", "{model}", "--learning-rat", "1", "--out", "{out}"], "unknown-option", ["--learning-rate"]),
        (["finetune", "sst2", "--model", "{model}", "--seeds", "0", "--out", "{out}"], "out-of-range", ["--seeds", 0]),
        (["glue", "--model", "{model}", "--out", "{out}"], "missing-option", ["--data"]),
        (["predict", "--model", "{model}", "--input", "-"], "not-finetuned", ["electra finetune"]),
    ],
)  # fmt: skip
def test_errors(parts, tmp_path: Path, capsys, words: list[str], code: str, values: list) -> None:
    fails([word.format(**parts, out=tmp_path / "out") for word in words], code, *values)
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "out").exists()
