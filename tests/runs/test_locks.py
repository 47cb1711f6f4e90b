"""Two processes with the same --out: the error of the second names the first, and it writes nothing."""

import os
import signal
import socket
from pathlib import Path

import pytest
from support.command_line import commands
from support.errors import check_error, fails, notices, raises
from support.processes import Holder

import electra
from electra.errors import RunError
from electra.pretraining import run as run_module
from electra.storage import LOCK, lock_output


def files(folder: Path) -> dict[str, bytes | None]:
    """Read all files of a folder; the content of a directory is None."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


@pytest.mark.slow
@pytest.mark.parametrize("command", ["pretrain", "finetune", "glue", "study", "predict", "prepare", "tokenizer"])
def test_a_second_process_is_rejected(command: str, inputs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    lock = tmp_path / ".out.lock" if command == "predict" else out / LOCK
    holder = Holder(out, lock)
    try:
        before = files(tmp_path)
        process = f"process {holder.process.pid} on {socket.gethostname()} (-c {out} {lock})"
        fails(commands(inputs, out)[command], "in-use", f"{out}: ", process, "--out")
        assert files(tmp_path) == before
    finally:
        holder.end()


@pytest.mark.slow
def test_a_run_is_locked_until_it_is_finished(
    inputs: Path, tmp_path: Path, tiny_run: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is also held while evaluation, models and report are written after the last step."""
    seen = []
    finish = run_module.finish
    monkeypatch.setattr(
        run_module,
        "finish",
        lambda config, directory, *rest: (
            seen.append((directory.path / LOCK).exists()) or finish(config, directory, *rest)
        ),
    )
    electra.pretrain(str(inputs / "text"), out=str(tmp_path / "run"), **tiny_run | {"steps": 1})
    assert seen == [True]


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    """The lock is free even if the recorded process id belongs to another process (here: this one)."""
    holder = Holder(tmp_path / "out", tmp_path / "out" / LOCK)
    holder.end(signal.SIGKILL)
    lock = tmp_path / "out" / LOCK
    lock.write_text(lock.read_text().replace(str(holder.process.pid), str(os.getpid())))
    with lock_output(tmp_path / "out", lock):
        assert str(os.getpid()) in lock.read_text()
    assert list((tmp_path / "out").iterdir()) == []


def test_lock_file_is_removed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for out in (tmp_path / "new/out", tmp_path / "there/out", tmp_path / "there"):
        with lock_output(out, out / LOCK):
            assert (out / LOCK).exists()
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "there"]


def test_lock_of_a_recreated_directory_is_kept(tmp_path: Path) -> None:
    """One process removes its directory, and another one creates it again before the first releases its lock."""
    out, aside = tmp_path / "out", tmp_path / "aside"
    with lock_output(out, out / LOCK):
        out.rename(aside)
        holder = Holder(out, out / LOCK)
    assert (out / LOCK).exists()
    with raises(RunError, "in-use", f"{out}: ", f"process {holder.process.pid} "), lock_output(out, out / LOCK):
        pass
    holder.end()


def test_invalid_descriptions_of_the_process_with_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / LOCK
    for description, shown in (
        ("", "another process"),
        ("[]", "another process"),
        ('{"pid": 1, "host": "a\\nb", "command": "x\\n\\u001b[31m"}', r"process 1 on a\nb (x??[31m)"),
        ('{"pid": 1, "host": "h", "command": "' + "y" * 300 + '"}', f"process 1 on h ({'y' * 200}…)"),
    ):
        with lock_output(tmp_path, lock):
            lock.write_text(description)
            with pytest.raises(RunError) as raised, lock_output(tmp_path, lock):
                pass
        check_error(raised.value, RunError, "in-use", f"{tmp_path}: ", f" {shown};")


def test_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unsupported(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("electra.storage.fcntl.flock", unsupported)
    with lock_output(tmp_path, tmp_path / LOCK):
        pass
    (warning,) = notices(caplog, "no-locks")
    assert warning.startswith(f"{tmp_path}: ")
    assert "(Operation not supported)" in warning
