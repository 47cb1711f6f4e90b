"""Files that belong to another user."""

import os
from pathlib import Path

import pytest

SOMEBODY = 12_345


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a path belong to another user; only root can give it away, so anybody else becomes another user."""
    if os.geteuid() == 0:
        os.chown(path, SOMEBODY, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)
