"""Text that was removed or has changed when a run or a preparation is resumed."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
from support.errors import fails, notices, raises
from support.toy import sentences, weights

import electra
from electra.data import chunks
from electra.data import prepare as prepare_module
from electra.errors import DataError


def change_content(path: Path) -> None:
    """Change the text of a file, but neither its size nor its modification time."""
    stat = path.stat()
    path.write_text(path.read_text().replace("cat", "dog"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_size == stat.st_size
    assert path.stat().st_mtime_ns == stat.st_mtime_ns


@pytest.fixture
def source(text: Path, tmp_path: Path) -> Path:
    """A copy of the text that a test may change."""
    return Path(shutil.copytree(text, tmp_path / "source"))


@pytest.mark.slow
@pytest.mark.parametrize("procedure", ["joint", "two-stage-scratch"])
def test_run_resumes_without_its_text(
    procedure: str, source: Path, tmp_path: Path, tiny_run: dict, caplog: pytest.LogCaptureFixture
) -> None:
    """The weights are bit for bit the same as with the text, because the prepared data is complete."""
    run, whole = tmp_path / "run", tmp_path / "whole"
    tiny_run |= {"procedure": procedure}
    for out in (whole, run):
        electra.pretrain(str(source), out=str(out), **tiny_run)
    (run / "summary.json").unlink()
    shutil.rmtree(sorted((run / "checkpoints").iterdir())[-1])
    shutil.rmtree(run / "discriminator")
    source.rename(tmp_path / "elsewhere")
    caplog.clear()
    electra.pretrain(str(source), out=str(run), **tiny_run)
    unreadable = notices(caplog, "source-unreadable")
    assert unreadable
    for notice in unreadable:
        assert notice.startswith(f"{source}: ")
        assert os.strerror(errno.ENOENT) in notice
        assert str(run) in notice
    assert notices(caplog, "resuming")
    assert weights(run) == weights(whole)


@pytest.mark.slow
def test_text_that_is_missing_before_it_is_prepared_is_rejected(source: Path, tmp_path: Path, tiny_run: dict) -> None:
    run = tmp_path / "run"
    electra.pretrain(str(source), out=str(run), **tiny_run)
    (run / "summary.json").unlink()
    (run / "data/manifest.json").unlink()
    source.rename(tmp_path / "elsewhere")
    with raises(electra.errors.TextError, "missing", f"{source}: "):
        electra.pretrain(str(source), out=str(run), **tiny_run)
    assert (run / "checkpoints").exists()


@pytest.mark.slow
def test_text_of_the_same_size_with_other_content_is_rejected(source: Path, tmp_path: Path, tiny_run: dict) -> None:
    run = tmp_path / "run"
    electra.pretrain(str(source), out=str(run), **tiny_run)
    (run / "summary.json").unlink()
    change_content(source / "b.txt")
    with raises(DataError, "other-content", source / "b.txt", "--out"):
        electra.pretrain(str(source), out=str(run), **tiny_run)


def test_text_that_was_copied_is_compared_once(
    source: Path, tmp_path: Path, finished: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["prepare", str(source), "--tokenizer", str(finished / "tokenizer"), "--out", str(tmp_path / "data")]
    electra.cli.main([*words, "--workers", "1"])
    shutil.copytree(source, tmp_path / "copy")
    shutil.rmtree(source)
    (tmp_path / "copy").rename(source)
    caplog.clear()
    electra.cli.main(words)
    (notice,) = notices(caplog, "text-may-have-changed")
    assert notice.startswith(f"{source / 'a.txt'} ")
    monkeypatch.setattr(prepare_module, "read_chunks", None)
    caplog.clear()
    electra.cli.main(words)
    assert notices(caplog, "reused-data")
    assert not notices(caplog, "text-may-have-changed")


def test_unfinished_preparation_reports_changed_files(
    source: Path, tmp_path: Path, finished: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data that is prepared in the end is that of the text with its last changes."""
    monkeypatch.setattr(chunks, "CHUNK_CHARS", 2_000)
    words = ["prepare", str(source), "--tokenizer", str(finished / "tokenizer"), "--workers", "1", "--out"]
    electra.cli.main([*words, str(tmp_path / "data")])
    (tmp_path / "data/manifest.json").unlink()
    electra.cli.main([*words, str(tmp_path / "data")])
    assert not notices(caplog, "text-may-have-changed-meanwhile")
    (tmp_path / "data/manifest.json").unlink()
    change_content(source / "b.txt")
    electra.cli.main([*words, str(tmp_path / "data")])
    (notice,) = notices(caplog, "text-may-have-changed-meanwhile")
    assert notice.startswith(f"{source / 'b.txt'} ")
    electra.cli.main([*words, str(tmp_path / "anew")])
    ours, anew = (json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("data", "anew"))
    assert ours == anew


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"x": 1}', None])
def test_text_is_compared_when_the_stamps_are_invalid(
    damage: str | None, source: Path, tmp_path: Path, finished: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = tmp_path / "data"
    words = ["prepare", str(source), "--tokenizer", str(finished / "tokenizer"), "--out", str(data), "--workers", "1"]
    electra.cli.main(words)
    stamps = (data / "stamps.json").read_bytes()
    (data / "stamps.json").unlink() if damage is None else (data / "stamps.json").write_text(damage)
    electra.cli.main(words)
    assert notices(caplog, "text-may-have-changed")
    assert (data / "stamps.json").read_bytes() == stamps
    (source / "b.txt").write_text(sentences(50, seed=2)[:100].ljust((source / "b.txt").stat().st_size))
    (data / "stamps.json").write_text(damage or "")
    fails(words, "other-content", f"{data}: ", " 2 ", f"{source}/")
