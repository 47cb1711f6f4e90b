"""Runs on several sources: training by weight, exact resuming, and held-out metrics of each source."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from support.errors import fails, notices
from support.toy import sentences, trace, weights

import electra
from electra.cli import main
from electra.data.loader import build_batch
from electra.data.shards import PreparedData
from electra.data.sources import list_source_rows
from electra.pretraining.evaluation.held_out import evaluate
from electra.pretraining.export import open_model
from electra.pretraining.run_directory import RunDirectory
from electra.seeding import Stream, derive_row_keys
from electra.train.checkpoint import Checkpoints

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sources wiki and law.txt."""
    folder = tmp_path_factory.mktemp("mixing")
    (folder / "wiki").mkdir()
    (folder / "wiki/a.txt").write_text(sentences(300))
    (folder / "law.txt").write_text(sentences(100, seed=1).replace("cat", "court"))
    return folder


def list_texts(folder: Path) -> list[str]:
    return [str(folder / "wiki"), str(folder / "law.txt")]


def test_run_reads_sources_by_weight_and_resumes_exactly(
    folder: Path, tmp_path: Path, tiny_run: dict, caplog: pytest.LogCaptureFixture
) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    mixed = tiny_run | {"weights": ("wiki=1", "law.txt=3")}
    for out in (whole, run):
        electra.pretrain(list_texts(folder), out=str(out), **mixed)
    (message, *_) = notices(caplog, "mixture")
    assert "25.0% " in message
    assert "75.0% " in message
    (run / "summary.json").unlink()
    shutil.rmtree(sorted((run / "checkpoints").iterdir())[-1])
    electra.pretrain(list_texts(folder), out=str(run), **mixed)
    assert notices(caplog, "resuming")
    assert weights(run) == weights(whole)
    assert trace(run) == trace(whole)
    plain = tmp_path / "plain"
    electra.pretrain(out=str(plain), data=str(whole / "data"), **tiny_run)
    assert weights(plain) != weights(whole)
    by_data = tmp_path / "by-data"
    electra.pretrain(out=str(by_data), data=str(whole / "data"), **mixed)
    assert weights(by_data) == weights(whole), "prepared data can be mixed in any way"


def test_heldout_metrics_of_each_source(
    folder: Path, tmp_path: Path, tiny_run: dict, capsys: pytest.CaptureFixture[str]
) -> None:
    """They equal the evaluation of exactly the examples of the source, computed here without the code of the loader."""
    run = tmp_path / "run"
    summary = electra.pretrain(list_texts(folder), out=str(run), mix_temperature=2.0, **tiny_run)
    metrics = electra.evaluate(str(run))
    assert isinstance(metrics, dict)
    by_source = metrics.pop("by_source")
    assert metrics == pytest.approx(summary["heldout"])
    assert json.loads((run / "summary.json").read_text())["heldout_by_source"] == by_source
    assert set(by_source) == {"wiki", "law.txt"}
    assert (
        by_source["wiki"]["evaluated_tokens"] + by_source["law.txt"]["evaluated_tokens"] == metrics["evaluated_tokens"]
    )
    with open_model(RunDirectory(run), None) as (model, data, tokenizer, runtime):
        Checkpoints(run / "checkpoints", 1).restore(model)
        for i, name in enumerate(("wiki", "law.txt")):
            texts = [tokenizer.tokens(data.heldout[row].ids.tolist()) for row in range(len(data.heldout))]
            of_source = list_source_rows(data.manifest, "heldout")[i]
            rows = of_source[np.arange(len(of_source))]
            assert all("cat" not in texts[row] for row in rows) if name == "law.txt" else rows.size
            keys = derive_row_keys(rows, Stream.HELDOUT_ROWS)
            batch = build_batch(data.heldout, rows, keys, tokenizer.pad_id)
            expected = evaluate(model, [batch], torch.from_numpy(data.unigrams), runtime).metrics
            assert by_source[name] == pytest.approx(expected, rel=1e-4)
    capsys.readouterr()
    main(["evaluate", str(run)])
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("all", "wiki", "law.txt"))
    report = (run / "report.html").read_text()
    assert "<td class=n>wiki<td class=n>law.txt" in report


def test_one_source_has_no_columns(finished: Path) -> None:
    assert "by_source" not in electra.evaluate(str(finished))
    assert "heldout_by_source" not in json.loads((finished / "summary.json").read_text())


def test_prepared_sources_are_mixed_from_the_command_line(
    folder: Path, tmp_path: Path, finished: Path, monkeypatch
) -> None:
    monkeypatch.chdir(folder)
    data = tmp_path / "data"
    main(
        [
            "prepare",
            "wiki",
            "law.txt",
            "--tokenizer",
            str(finished / "tokenizer"),
            "--out",
            str(data),
            "--seq-len",
            "24",
        ]
    )
    assert PreparedData.open(data).manifest.settings.names == ["wiki", "law.txt"]
    start = ["pretrain", "--data", data, "--preset", "tiny", "--steps", 2, "--training.batch-size", 8]
    for words, code, values in (
        (["--weights", "wiki=1", "laws=2"], "unknown-source", ["laws", "law.txt"]),
        (["--weights", "wiki=0", "law.txt=0"], "out-of-range", ["wiki", 0]),
        (["--weights", "wiki=nan", "law.txt=1"], "out-of-range", ["wiki", "nan"]),
        (["--weights", "wiki=1", "law.txt=-2"], "out-of-range", ["law.txt"]),
        (["--weights", "wiki=1"], "missing-weight", ["law.txt"]),
        (["--weights", "wiki=1", "law.txt=1", "--mix-temperature", "2"], "conflicting-options", []),
        (["--mix-temperature", "0"], "out-of-range", ["--mix-temperature"]),
    ):
        fails([*start, "--out", tmp_path / "no", *words], code, *values)
        assert not (tmp_path / "no").exists()
    (tmp_path / "empty.txt").touch()
    text = [
        "pretrain",
        "wiki",
        tmp_path / "empty.txt",
        "--preset",
        "tiny",
        "--steps",
        2,
        "--workers",
        1,
        "--seq-len",
        24,
    ]
    fails(
        [*text, "--out", tmp_path / "e", "--training.batch-size", 8, "--mix-temperature", 2],
        "empty-source",
        "empty.txt",
    )
    fails(
        ["pretrain", "wiki", "--preset", "tiny", "--out", tmp_path / "o", "--mix-temperature", 2], "one-source", "wiki"
    )
