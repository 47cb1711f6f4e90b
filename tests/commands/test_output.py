"""Output that cannot be written: training continues, and a command whose output is its result ends as by SIGPIPE."""

import errno
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.command_line import RUN
from support.errors import fails
from support.toy import weights

import electra
from electra import cli
from electra.console import Output, console
from electra.errors import StorageError

FULL = Path("/dev/full")
full = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full")


@contextmanager
def closed_pipe() -> Iterator[None]:
    """Replace the standard output by a pipe whose reader has ended."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        yield


@pytest.mark.slow
def test_training_continues_without_output(finished: Path, text: Path, tmp_path: Path, tiny_run: dict, capfd) -> None:
    with closed_pipe():
        electra.pretrain(str(text), out=str(tmp_path / "run"), **tiny_run)
    assert weights(tmp_path / "run") == weights(finished)
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("electra: ")
    assert os.strerror(errno.EPIPE) in line


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [["flops"], ["flops", "--help"], ["--help"], ["--version"], ["pretrain", "--help"], ["paper-table", "1"]],
)
def test_result_on_a_closed_pipe(words: list[str], capfd: pytest.CaptureFixture) -> None:
    with closed_pipe(), pytest.raises(SystemExit) as stop:
        cli.main(words)
    assert stop.value.code == 141
    assert capfd.readouterr().err == ""


def test_predictions_on_a_closed_pipe(inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    (tmp_path / "lines.txt").write_text("the cat is good .\n")
    with closed_pipe(), pytest.raises(SystemExit) as stop:
        cli.main(["predict", "--model", str(inputs / "tuned/seed-0/model"), "--input", str(tmp_path / "lines.txt")])
    assert stop.value.code == 141
    assert capfd.readouterr().err == ""


def test_predictions_without_standard_output(inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    fails(["predict", "--model", inputs / "tuned/seed-0/model", "--input", "-"], "stdout-closed", "--out")


@full
@pytest.mark.parametrize("words", [["flops"], ["--help"]])
def test_a_result_on_a_full_disk(words: list[str], monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    with FULL.open("w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        fails(words, "stdout-failed", os.strerror(errno.ENOSPC))
    assert len(capfd.readouterr().err.splitlines()) == 1


@pytest.mark.slow
@full
@pytest.mark.parametrize(
    ("words", "status"), [(["flops"], 2), (["--help"], 2), (["flops", "--what"], 2), (["no-such-command"], 2)]
)
def test_exit_code_when_nothing_can_be_written(words: list[str], status: int) -> None:
    """The exit code is kept when neither the result, nor the error, nor the buffers can be written."""
    with FULL.open("w") as stream:
        done = subprocess.run([sys.executable, "-m", "electra", *words], stdout=stream, stderr=stream, check=False)
    assert done.returncode == status


@pytest.mark.slow
@full
def test_training_whose_output_and_errors_are_full(text: Path, tmp_path: Path) -> None:
    words = ["pretrain", str(text), "--out", str(tmp_path / "run"), *RUN]
    with FULL.open("w") as stream:
        done = subprocess.run([sys.executable, "-m", "electra", *words], stdout=stream, stderr=stream, check=False)
    assert done.returncode == 0
    assert (tmp_path / "run/summary.json").exists()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EPIPE])
def test_a_stream_that_fails(number: int, capsys: pytest.CaptureFixture) -> None:
    class Failing(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(number, "failed")

    assert Output(Failing()).write("text") == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert "failed" in line
    with pytest.raises(BrokenPipeError if number == errno.EPIPE else StorageError):
        Output(Failing(), required=True).write("text")


def test_output_is_no_longer_required_after_a_command(capsys: pytest.CaptureFixture) -> None:
    cli.main(["flops"])
    assert capsys.readouterr().out
    assert not console.required
