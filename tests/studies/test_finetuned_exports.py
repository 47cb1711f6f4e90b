"""`finetune --at all` and `glue --at all`: scores of each network that a run exported."""

import csv
from pathlib import Path

import pytest
from support.errors import fails
from support.toy import TINY_RUN
from support.toy_tasks import write_glue

import electra
from electra import cli
from electra.studies.finetuned_exports import draw_curve

FAST = {"epochs": 1.0, "learning_rate": 1e-2, "baseline": "none"}


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory, text: Path) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("parts")
    electra.pretrain(text, out=root / "run", **TINY_RUN | {"export_at": ("3steps", "6steps")})
    return {"run": root / "run", "glue": write_glue(root / "glue", rows=32)}


def read_table(out: Path) -> list[dict[str, str]]:
    with (out / "learning_curve.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_finetune(parts, tmp_path: Path, capsys) -> None:
    given = {"data": parts["glue"], "seeds": 2, **FAST}
    curve = electra.finetune("sst2", model=parts["run"], out=tmp_path / "all", at="all", **given)
    assert [row["step"] for row in curve["exports"]] == [3, 6]
    for row, path in zip(curve["exports"], sorted((parts["run"] / "exports").iterdir()), strict=True):
        alone = electra.finetune("sst2", model=path, out=tmp_path / path.name, **given)
        assert row["accuracy"] == alone["metrics"]["dev"]["accuracy"]["median"]
        assert row["accuracy_std"] == alone["metrics"]["dev"]["accuracy"]["std"]
    table = read_table(tmp_path / "all")
    assert [float(row["flops"]) for row in table] == [row["flops"] for row in curve["exports"]]
    assert [float(row["accuracy"]) for row in table] == [row["accuracy"] for row in curve["exports"]]
    assert (tmp_path / "all/learning_curve.png").read_bytes().startswith(b"\x89PNG")
    again = [
        "finetune",
        "sst2",
        "--model",
        parts["run"],
        "--data",
        parts["glue"],
        "--out",
        tmp_path / "all",
        "--seeds=2",
    ]
    capsys.readouterr()
    cli.main([*map(str, again), "--at=all", "--epochs=1", "--learning-rate=1e-2", "--baseline=none"])
    assert "accuracy" in capsys.readouterr().out, "the runs are finished, and the table is shown"


@pytest.mark.slow
def test_glue(parts, tmp_path: Path) -> None:
    given = {"model": parts["run"], "data": parts["glue"], "tasks": iter(["sst2", "rte"]), "seeds": 1, **FAST}
    results = electra.glue(**given, out=tmp_path / "out", at="all")
    last = {name: each["metrics"]["dev"]["accuracy"]["median"] for name, each in results["tasks"].items()}
    assert {name: results["exports"][-1][name] for name in ("sst2", "rte")} == last
    assert [row["step"] for row in read_table(tmp_path / "out")] == ["3", "6"]
    assert all(row["rte"] for row in read_table(tmp_path / "out"))


def test_figure_has_a_line_for_each_score() -> None:
    rows = [
        {"step": s, "tokens": s, "flops": 10.0 * s, "seconds": s, "rte": s, "rte_std": 1.0, "sst2": s} for s in (1, 2)
    ]
    for axes, factor in zip(draw_curve(rows).axes, (1, 10), strict=True):
        assert [line.get_label() for line in axes.get_lines()] == ["rte", "sst2"]
        assert axes.get_lines()[0].get_xdata().tolist() == [factor, 2 * factor]


def test_model_without_exports(parts, tmp_path: Path) -> None:
    words = ["--data", parts["glue"], "--out", tmp_path / "out", "--at", "all"]
    fails(["finetune", "sst2", "--model", parts["run"] / "discriminator", *words], "not-run")
    fails(["glue", "--model", parts["run"], *words[:-1], "ever"], "unknown-choice", "--at")
    assert not (tmp_path / "out").exists()
