"""Text that is gone, or that has changed, when a run or a preparation goes on."""

import json
import os
import shutil
from pathlib import Path

import pytest
from support.command_line import error
from support.toy import sentences, weights

import electra
from electra.data import chunks
from electra.data import prepare as prepare_module
from electra.errors import DataError


def same_size(path: Path) -> None:
    """Change the text, but neither its size nor the time of its last change."""
    stat = path.stat()
    path.write_text(path.read_text().replace("cat", "dog"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_size == stat.st_size
    assert path.stat().st_mtime_ns == stat.st_mtime_ns


@pytest.fixture
def source(text: Path, tmp_path: Path) -> Path:
    """A folder of text of one's own."""
    return Path(shutil.copytree(text, tmp_path / "source"))


@pytest.mark.slow
@pytest.mark.parametrize("procedure", ["joint", "two-stage-scratch"])
def test_run_resumes_without_its_text(
    procedure: str, source: Path, tmp_path: Path, tiny_run: dict, capsys: pytest.CaptureFixture
) -> None:
    """Bit for bit as with it: the prepared data is complete."""
    run, whole = tmp_path / "run", tmp_path / "whole"
    tiny_run |= {"procedure": procedure}
    for out in (whole, run):
        electra.pretrain(str(source), out=str(out), **tiny_run)
    (run / "summary.json").unlink()
    shutil.rmtree(sorted((run / "checkpoints").iterdir())[-1])
    shutil.rmtree(run / "discriminator")
    source.rename(tmp_path / "elsewhere")
    capsys.readouterr()
    electra.pretrain(str(source), out=str(run), **tiny_run)
    said = capsys.readouterr().out
    assert f"! {source}: cannot be read: No such file or directory; using the text prepared in" in said
    assert "resuming from step" in said
    assert weights(run) == weights(whole)


@pytest.mark.slow
def test_text_that_is_gone_before_it_is_prepared(source: Path, tmp_path: Path, tiny_run: dict) -> None:
    run = tmp_path / "run"
    electra.pretrain(str(source), out=str(run), **tiny_run)
    (run / "summary.json").unlink()
    (run / "data/manifest.json").unlink()
    source.rename(tmp_path / "elsewhere")
    with pytest.raises(electra.errors.TextError, match="source: cannot be read"):
        electra.pretrain(str(source), out=str(run), **tiny_run)
    assert (run / "checkpoints").exists()


@pytest.mark.slow
def test_text_that_changed_under_the_same_size(
    source: Path, tmp_path: Path, tiny_run: dict, capsys: pytest.CaptureFixture
) -> None:
    run = tmp_path / "run"
    electra.pretrain(str(source), out=str(run), **tiny_run)
    (run / "summary.json").unlink()
    same_size(source / "b.txt")
    with pytest.raises(DataError) as refused:
        electra.pretrain(str(source), out=str(run), **tiny_run)
    assert f"prepared from other text: {source / 'b.txt'} has the same size but other content" in str(refused.value)


def test_text_that_was_copied_is_compared_once(
    source: Path, tmp_path: Path, finished: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["prepare", str(source), "--tokenizer", str(finished / "tokenizer"), "--out", str(tmp_path / "data")]
    electra.cli.main([*words, "--workers", "1"])
    shutil.copytree(source, tmp_path / "copy")
    shutil.rmtree(source)
    (tmp_path / "copy").rename(source)
    capsys.readouterr()
    electra.cli.main(words)
    assert f"{source / 'a.txt'} may have changed since" in capsys.readouterr().out
    monkeypatch.setattr(prepare_module, "read_chunks", None)
    electra.cli.main(words)
    said = capsys.readouterr().out
    assert "it is reused" in said
    assert "may have changed" not in said


def test_unfinished_preparation_reports_changed_files(
    source: Path, tmp_path: Path, finished: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is prepared in the end is the text as it is in the end."""
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 2_000)
    words = ["prepare", str(source), "--tokenizer", str(finished / "tokenizer"), "--workers", "1", "--out"]
    electra.cli.main([*words, str(tmp_path / "data")])
    (tmp_path / "data/manifest.json").unlink()
    capsys.readouterr()
    electra.cli.main([*words, str(tmp_path / "data")])
    assert "may have changed" not in capsys.readouterr().out
    (tmp_path / "data/manifest.json").unlink()
    same_size(source / "b.txt")
    electra.cli.main([*words, str(tmp_path / "data")])
    assert f"! {source / 'b.txt'} may have changed since preparation started: parts" in capsys.readouterr().out
    electra.cli.main([*words, str(tmp_path / "anew")])
    ours, anew = (json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("data", "anew"))
    assert ours == anew


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"x": 1}', None])
def test_stamps_that_cannot_be_read(
    damage: str | None, source: Path, tmp_path: Path, finished: Path, capsys: pytest.CaptureFixture
) -> None:
    """The text is read again, which is sure."""
    data = tmp_path / "data"
    words = ["prepare", str(source), "--tokenizer", str(finished / "tokenizer"), "--out", str(data), "--workers", "1"]
    electra.cli.main(words)
    stamps = (data / "stamps.json").read_bytes()
    (data / "stamps.json").unlink() if damage is None else (data / "stamps.json").write_text(damage)
    electra.cli.main(words)
    assert "is read again and compared" in capsys.readouterr().out
    assert (data / "stamps.json").read_bytes() == stamps
    (source / "b.txt").write_text(sentences(50, seed=2)[:100].ljust((source / "b.txt").stat().st_size))
    (data / "stamps.json").write_text(damage or "")
    assert "has the same size but other content" in error(capsys, *words)
