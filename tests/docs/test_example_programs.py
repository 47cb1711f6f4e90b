"""The programs in examples/ run."""

import json
import runpy
import sys
from pathlib import Path

import pytest
from support.places import ROOT

from electra.pretraining.objectives.catalog import OBJECTIVES
from electra.pretraining.objectives.spec import CORRUPTIONS
from electra.train.metrics_log import read_metrics

EXAMPLES = ROOT / "examples"


@pytest.mark.slow
def test_classifier(tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "".join(f"the cat is {word} .,{stars}\n" for word, stars in (("good", 1), ("bad", 0)) * 20)
    (tmp_path / "reviews.csv").write_text("review,stars\n" + rows)
    words = [str(finished), str(tmp_path / "reviews.csv"), str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["classifier.py", *words])
    runpy.run_path(str(EXAMPLES / "classifier.py"), run_name="__main__")


@pytest.mark.slow
def test_domain_adaptation(
    tmp_path: Path, text: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main = runpy.run_path(str(EXAMPLES / "domain_adaptation.py"))["main"]
    options = ["steps=3", "workers=1", "model={vocab_size: 160}"]
    main(str(text / "a.txt"), str(text / "b.txt"), str(tmp_path), *options)
    lines = capsys.readouterr().out.splitlines()
    scores = [line for line in lines if line.startswith(("before", "after"))]
    assert [line.split()[0] for line in scores] == ["before", "after"]
    assert all("AUC" in line for line in scores)


@pytest.mark.slow
def test_objective(
    tmp_path: Path, text: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for table in (CORRUPTIONS, OBJECTIVES):
        monkeypatch.setitem(table, "swap", None)  # removed again after the test
    main = runpy.run_path(str(EXAMPLES / "objective.py"))["main"]
    main(str(text), str(tmp_path / "run"), "steps=20", "workers=1", "model={vocab_size: 160}")
    assert "AUC " in capsys.readouterr().out
    rows = list(read_metrics(tmp_path / "run/metrics.jsonl"))
    assert rows[-1]["replaced"] > 0
    assert 0 <= rows[-1]["swapped_same"] < 0.5
    assert (tmp_path / "run/discriminator").is_dir()


@pytest.mark.slow
def test_notebook(tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").symlink_to(text)
    names: dict = {}
    for cell in json.loads((EXAMPLES / "first_steps.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]).replace('preset="tiny"', 'preset="tiny", model={"vocab_size": 160}'), names)
