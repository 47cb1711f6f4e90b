"""The speedrun at toy sizes: every entry trains within its time, is scored, and adds a row to the records."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.toy_tasks import write_glue, write_neighbors

pytest.importorskip("transformers")

import speedrun

HOURS = 10 / 3600


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write toy data of all scores."""
    write_glue(tmp_path / "data/glue")
    for split in ("train", "test"):
        write_neighbors(tmp_path / f"data/chunk/{split}.txt", 40, seed=len(split))
    pair = {"sentence_good": "the cat sees it .", "sentence_bad": "cat the it sees .", "UID": "order"}
    (tmp_path / "data/pairs").mkdir()
    (tmp_path / "data/pairs/pairs.jsonl").write_text(json.dumps(pair) + "\n")
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a vocabulary for little text, and the toy tasks only."""
    prepare = speedrun.prepare
    monkeypatch.setattr(
        speedrun, "prepare", lambda text, out, name, size, length: prepare(text, out, name, 300, length)
    )
    monkeypatch.setattr(speedrun, "TASKS", ("sst2", "stsb"))


def run(entry: str, text: Path, data: Path, out: Path) -> list[dict[str, str]]:
    records = out / "records.csv"
    words = ["--text", str(text), "--data", str(data), "--out", str(out / entry), "--hours", str(HOURS)]
    speedrun.main([entry, *words, "--records", str(records)])
    with records.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_every_entry_adds_a_record(text: Path, data: Path, tmp_path: Path) -> None:
    for number, entry in enumerate(("tiny", "hour", "trainer"), 1):
        rows = run(entry, text, data, tmp_path)
        assert len(rows) == number
        row = rows[-1]
        assert (row["entry"], float(row["hours"])) == (entry, pytest.approx(HOURS, rel=1e-3))
        assert float(row["flops"]) > 0 < float(row["tokens"])
        assert "torch 2." in row["versions"]
        for name in ("pairs", "tags", "tags_last", "similarity", "glue", "sst2", "stsb"):
            assert float(row[name]) == float(row[name]), name
        assert float(row["glue"]) == pytest.approx((float(row["sst2"]) + float(row["stsb"])) / 2, rel=1e-3)


def test_an_existing_folder_is_refused(text: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "tiny").mkdir()
    with pytest.raises(SystemExit):
        run("tiny", text, data, tmp_path)
    assert "exists" in capsys.readouterr().err


def test_rate_warms_up_and_ends_at_zero() -> None:
    import torch
    from trainer import build_scheduler

    left = iter([1.0, 1.0, 0.95, 0.9, 0.45, 0.0])
    hours_left: Callable[[], float] = lambda: next(left)  # noqa: E731
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=2.0)
    scheduler = build_scheduler(optimizer, hours_left)
    rates = [scheduler.get_last_lr()[0]]
    for _ in range(4):
        optimizer.step()
        scheduler.step()
        rates.append(scheduler.get_last_lr()[0])
    assert rates == pytest.approx([0.0, 1.0, 2.0, 1.0, 0.0])
