"""Ways to damage a file, and a check of the errors that damaged files cause."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from electra.errors import ElectraError

Damage = Callable[[Path], object]
"""Function that damages a file of a directory."""


def write(name: str, content: bytes | str) -> Damage:
    """Replace the content of a file."""
    return lambda folder: (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)


def edit(name: str, **changes: Any) -> Damage:
    """Set keys of a JSON file; `__` separates nested keys, and the value `...` removes a key."""

    def damage(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        for keys, value in changes.items():
            *path, last = keys.split("__")
            place = content
            for key in path:
                place = place[int(key) if isinstance(place, list) else key]
            last = int(last) if isinstance(place, list) else last
            place.pop(last) if value is ... else place.__setitem__(last, value)
        (folder / name).write_text(json.dumps(content))

    return damage


def cut(name: str, size: int) -> Damage:
    """Truncate a file."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def instead(name: str, make: Callable[[Path], object]) -> Damage:
    """Replace a file by something else, which `make` creates."""

    def damage(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return damage


def oversized(name: str) -> Damage:
    """Extend a file to 1 TB (sparse)."""

    def damage(folder: Path) -> None:
        with (folder / name).open("r+b") as file:
            file.truncate(1 << 40)

    return damage


NOT_JSON: dict[str, bytes] = {
    "empty": b"",
    "cut": b'{"a": 1',
    "not an object": b"[]",
    "a text": b'"x"',
    "not UTF-8": b'{"a": "\xff"}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "half a surrogate": b'{"a": "\\ud800"}',
    "half a surrogate as a key": b'{"\\ud800": 1}',
    "nested deeply": b'{"a": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "an integer of 5,000 digits": b'{"a": ' + b"9" * 5_000 + b"}",
    "binary": bytes(range(256)),
}
NOT_FILES: dict[str, Callable[[str], Damage]] = {
    "a directory": lambda name: instead(name, Path.mkdir),
    "a FIFO": lambda name: instead(name, os.mkfifo),
    "a device": lambda name: instead(name, lambda path: path.symlink_to("/dev/zero")),
}


def broken_json(name: str) -> dict[str, Damage]:
    """Damage a JSON file: not JSON, not an object, not a regular file, or much too large."""
    return {
        **{f"{name} {case}": write(name, content) for case, content in NOT_JSON.items()},
        f"{name} {{}}": write(name, "{}"),
        **{f"{name} is {case}": make(name) for case, make in NOT_FILES.items()},
        f"{name} is absurdly large": oversized(name),
    }


def check_short_error(error: ElectraError, name: str) -> None:
    """Check that an error has a code, and a message of one line, of limited length, that names a file or an option."""
    text = str(error)
    assert re.fullmatch("[a-z0-9]+(-[a-z0-9]+)*", error.code), repr(error)
    assert name in text, text
    assert "\n" not in text
    assert len(text) < 900, text


def contents(folder: Path) -> dict[str, bytes]:
    """Read all files of a directory, to check that nothing was written."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.resolve() != Path("/dev/zero") and path.stat().st_size < 1 << 30
    }
