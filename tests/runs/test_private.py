"""Permissions of the output: those of the umask, and with --private those of the owner only."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command_line import commands

import electra

COMMANDS = ["pretrain", "finetune", "glue", "predict", "prepare", "tokenizer"]


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """Set a umask that lets the group read, and check that it is restored."""
    before = os.umask(0o027)
    yield
    assert os.umask(before) == 0o027, "the umask is restored"


def modes(folder: Path) -> set[tuple[str, str]]:
    """Return the kinds and permissions of all files and directories in a folder, including hidden ones."""
    return {
        ("directory" if path.is_dir() else "file", oct(path.stat().st_mode & 0o777))
        for path in folder.rglob("*")
        if not path.is_symlink()
    }


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_default_permissions_are_those_of_the_umask(command: str, inputs: Path, tmp_path: Path) -> None:
    electra.cli.main(commands(inputs, tmp_path / "new/out")[command])
    assert modes(tmp_path) == {("directory", "0o750"), ("file", "0o640")}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_private_output_is_for_the_owner_only(command: str, inputs: Path, tmp_path: Path) -> None:
    electra.cli.main([*commands(inputs, tmp_path / "new/out")[command], "--private"])
    assert modes(tmp_path) == {("directory", "0o700"), ("file", "0o600")}


@pytest.mark.slow
def test_private_in_python(inputs: Path, tmp_path: Path, tiny_run: dict) -> None:
    """The umask is changed during a command; while predictions are iterated over, it is not changed between them."""
    text, tuned = str(inputs / "text"), str(inputs / "tuned/seed-0/model")
    electra.tokenizer(text, out=str(tmp_path / "tokenizer"), vocab_size=160, private=True)
    prepared = electra.prepare(text, tokenizer=str(tmp_path / "tokenizer"), out=str(tmp_path / "data"), private=True)
    assert prepared.exists()
    electra.pretrain(text, out=str(tmp_path / "run"), private=True, **tiny_run | {"steps": 1})
    task = {"model": str(inputs / "model"), "data": str(inputs / "glue"), "epochs": 1.0, "seeds": 1}
    electra.finetune("sst2", out=str(tmp_path / "sst2"), private=True, **task)
    electra.glue(tasks="sst2", out=str(tmp_path / "glue"), private=True, **task)
    predictions = electra.predict(
        tuned, inputs / "lines.txt", out=str(tmp_path / "predictions/out.jsonl"), private=True
    )
    for _ in predictions:
        (tmp_path.parent / f"{tmp_path.name}-other").touch()
    assert modes(tmp_path) == {("directory", "0o700"), ("file", "0o600")}
    assert (tmp_path.parent / f"{tmp_path.name}-other").stat().st_mode & 0o777 == 0o640
