"""The report of fine-tuning: curves, scores and baselines, confusion matrix and residuals."""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix
from support.errors import notices
from support.toy_tasks import finetune_settings, save_model, write_conll, write_glue, write_jsonl

from electra.errors import RunError
from electra.finetuning.reporting.report import add_confusions, draw_training
from electra.finetuning.run import finetune


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("parts")
    return {"model": save_model(root / "model"), "glue": write_glue(root / "glue", rows=32)}


def read_seeds(out: Path, seeds: int) -> list[dict]:
    return [json.loads((out / f"seed-{seed}/results.json").read_text()) for seed in range(seeds)]


@pytest.mark.slow
def test_report_of_classes(parts, tmp_path: Path, caplog) -> None:
    out = tmp_path / "out"
    label = "<b>good</b> & $fine$"  # names are text, neither HTML nor formulas
    rows = [{"text": "the cat is good", "label": label}, {"text": "the cat is bad", "label": "bad"}] * 16
    train = write_jsonl(tmp_path / "train.jsonl", rows)
    given = {"train": str(train), "dev": str(train), "text": "text", "label": "label", "epochs": 3.0}
    summary = finetune(finetune_settings(parts["model"], "table", **given), out, seeds=2)
    [message] = notices(caplog, "report")
    assert str(out / "report.html") in message
    page = (out / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    for text in ("baseline: majority class", "50.0", f"{summary['metrics']['dev']['accuracy']['median']:.1f}"):
        assert text in page
    assert "<b>good" not in page
    assert {path.name for path in (out / "pictures").iterdir()} == {"training.png", "confusion.png"}
    results = read_seeds(out, 2)
    predicted = [
        [json.loads(line)["label"] for line in (out / f"seed-{seed}/predictions-dev.jsonl").read_text().splitlines()]
        for seed in range(2)
    ]
    gold, labels = [row["label"] for row in rows], results[0]["confusion"]["labels"]
    expected = sum(confusion_matrix(gold, each, labels=labels) for each in predicted)
    np.testing.assert_array_equal(add_confusions(results), expected)
    left, right = draw_training(out, results).axes
    for axes, number in ((left, 3), (right, 4)):  # two seeds, and a constant prediction or two baselines
        assert len(axes.get_lines()) == number
    scores = right.get_lines()[0].get_ydata()
    assert len(scores) == 3, "each epoch, the last one from the results"
    assert scores[-1] == results[0]["metrics"]["dev"]["accuracy"]


@pytest.mark.slow
def test_report_of_numbers(parts, tmp_path: Path) -> None:
    config = finetune_settings(parts["model"], "stsb", data=str(parts["glue"]), epochs=1.0)
    finetune(config, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out/pictures").iterdir()} == {"training.png", "residuals.png"}
    [results] = read_seeds(tmp_path / "out", 1)
    lines = (tmp_path / "out/seed-0/predictions-dev.jsonl").read_text().splitlines()
    assert results["residuals"]["predicted"] == pytest.approx([json.loads(line)["value"] for line in lines])
    gold = (parts["glue"] / "STS-B/dev.tsv").read_text().splitlines()[1:]
    assert results["residuals"]["targets"] == [float(row.split("\t")[-1]) for row in gold]


@pytest.mark.slow
def test_report_of_tags(parts, tmp_path: Path) -> None:
    train = write_conll(tmp_path / "train.conll", 20, 0)
    finetune(finetune_settings(parts["model"], "tagging", train=str(train), epochs=1.0), tmp_path / "out")
    assert {path.name for path in (tmp_path / "out/pictures").iterdir()} == {"training.png"}


@pytest.mark.slow
@pytest.mark.parametrize("confusion", [3, {"labels": ["a"]}, {"labels": ["a", "b"], "counts": [[1, 2], ["x", 3]]}])
def test_damaged_confusion(parts, tmp_path: Path, confusion: object) -> None:
    config = finetune_settings(parts["model"], "sst2", data=str(parts["glue"]), epochs=1.0)
    finetune(config, tmp_path / "out")
    file = tmp_path / "out/seed-0/results.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"confusion": confusion}))
    with pytest.raises(RunError) as raised:
        finetune(config, tmp_path / "out")
    assert str(file) in str(raised.value)


def test_confusions_of_other_shapes_are_left_out() -> None:
    for counts in ([[1, 2, 3], [1, 2, 3]], [[1, 2], [3]], []):
        assert add_confusions([{"confusion": {"labels": ["a", "b"], "counts": counts}}]) is None
    assert add_confusions([{}]) is None
    many = [{"confusion": {"labels": list("a" * 31), "counts": np.eye(31, dtype=int).tolist()}}]
    assert add_confusions(many) is None
