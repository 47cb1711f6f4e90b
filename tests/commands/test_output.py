"""Output that nobody reads: training goes on, and a command whose output is its result ends as by SIGPIPE."""

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
from support.toy import weights

import electra
from electra import cli
from electra.console import Output, console
from electra.errors import StorageError

FULL = Path("/dev/full")
full = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full")


@contextmanager
def unread() -> Iterator[None]:
    """A standard output whose reader has ended."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        yield


@pytest.mark.slow
def test_training_continues_without_output(finished: Path, text: Path, tmp_path: Path, tiny_run: dict, capfd) -> None:
    with unread():
        electra.pretrain(str(text), out=str(tmp_path / "run"), **tiny_run)
    assert weights(tmp_path / "run") == weights(finished)
    complaint = "electra: standard output cannot be written: Broken pipe; the work goes on without it\n"
    assert capfd.readouterr().err == complaint


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [["flops"], ["flops", "--help"], ["--help"], ["--version"], ["pretrain", "--help"], ["paper-table", "1"]],
)
def test_result_on_a_closed_pipe(words: list[str], capfd: pytest.CaptureFixture) -> None:
    with unread(), pytest.raises(SystemExit) as stop:
        cli.main(words)
    assert stop.value.code == 141
    assert capfd.readouterr().err == ""


def test_predictions_on_a_closed_pipe(inputs: Path, tmp_path: Path, capfd: pytest.CaptureFixture) -> None:
    (tmp_path / "lines.txt").write_text("the cat is good .\n")
    with unread(), pytest.raises(SystemExit) as stop:
        cli.main(["predict", "--model", str(inputs / "tuned/seed-0/model"), "--input", str(tmp_path / "lines.txt")])
    assert stop.value.code == 141
    assert capfd.readouterr().err == ""


def test_predictions_without_standard_output(inputs: Path, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit) as stop:
        cli.main(["predict", "--model", str(inputs / "tuned/seed-0/model"), "--input", "-"])
    assert stop.value.code == 2
    assert "standard output is closed; name a file for the predictions by --out" in capfd.readouterr().err


@full
@pytest.mark.parametrize("words", [["flops"], ["--help"]])
def test_a_result_on_a_full_disk(words: list[str], monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    with FULL.open("w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(SystemExit) as stop:
            cli.main(words)
    assert stop.value.code == 2
    assert capfd.readouterr().err == "electra: error: standard output: cannot be written: No space left on device\n"


@pytest.mark.slow
@full
@pytest.mark.parametrize(
    ("words", "status"), [(["flops"], 2), (["--help"], 2), (["flops", "--what"], 2), (["no-such-command"], 2)]
)
def test_nothing_can_be_written(words: list[str], status: int) -> None:
    """Neither the result nor the error, nor what is in the buffers when Python ends."""
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
    assert "; the work goes on without it" in capsys.readouterr().err
    with pytest.raises(BrokenPipeError if number == errno.EPIPE else StorageError):
        Output(Failing(), required=True).write("text")


def test_what_is_required_ends_with_the_command(capsys: pytest.CaptureFixture) -> None:
    cli.main(["flops"])
    assert capsys.readouterr().out
    assert not console.required
