"""Commands in this process, and the line that they end with."""

import pytest

from electra import cli

RUN = [
    "--preset",
    "tiny",
    "--steps",
    "2",
    "--seq-len",
    "24",
    "--workers",
    "1",
    "--training.batch-size",
    "4",
    "--model.num-layers",
    "1",
    "--model.vocab-size",
    "160",
]
"""Options of a run of a second on the toy language."""


def error(capsys: pytest.CaptureFixture, *words: str) -> str:
    """The one line that a command ends with."""
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    assert stop.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("electra: error: ")
    return lines[0].removeprefix("electra: error: ")
