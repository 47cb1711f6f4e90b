"""What comes from outside: kinds of files, paths, JSON, and text that is to be printed."""

import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from electra.errors import ElectraError, UsageError

SPECIAL_FILES: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
HALF_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""How JSON spells half of a surrogate pair; a whole pair is spelled by two of these."""
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line separators, marks that reverse the direction of writing, and half surrogate pairs."""


def refuse_special_file(path: Path, error: type[ElectraError]) -> None:
    """Raise `error` for a named pipe, a socket or a device, before it is opened: opening or reading one may never end.

    Folders and files that do not exist are left to the caller.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    except ValueError:  # a NUL in the path
        raise error(f"{path}: no path can hold a NUL character") from None
    for is_kind, name in SPECIAL_FILES:
        if is_kind(mode):
            raise error(f"{path}: {name}, and only regular files are read; write its content into a file and name that")


def check_output_path(out: str | os.PathLike[str]) -> Path:
    """The path of an output.

    Raises:
        UsageError: it is blank, as where a shell variable is not set: an empty path would be the current folder.
    """
    if not os.fspath(out).strip():
        raise UsageError("--out is empty; name a directory or file, or . for the current folder")
    return Path(out)


def check_output_file(out: str | os.PathLike[str]) -> Path:
    """The path of a file to be written, which would take the place of what is there.

    Raises:
        UsageError: it is blank, or something else than a file is there: a folder, or a device such as /dev/null.
    """
    path = check_output_path(out)
    if path.exists() and not path.is_file():
        raise UsageError(f"--out {path}: not a regular file; name a file to be written, or leave --out out")
    return path


def decode_json(
    text: str | bytes, place: str, error: type[ElectraError], hint: str = "", half_surrogates: bool = False
) -> Any:
    """A JSON value of any kind; `electra.schema` reads JSON that has to fit a schema.

    Args:
        text: The JSON document.
        place: File, and line of it, with which messages begin.
        error: What to raise.
        hint: What a message ends with where `text` is not JSON.
        half_surrogates: Accept half surrogate pairs, which JSON can spell and no encoding can.

    Raises:
        ElectraError: of type `error`, where `text` is not JSON, or none that can be held.
    """
    try:
        value = json.loads(text)
        if not half_surrogates and HALF_SURROGATE.search(text if isinstance(text, str) else text.decode("latin-1")):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as problem:
        where = (
            f"column {problem.colno}"
            if isinstance(text, str) and problem.lineno == 1
            else f"line {problem.lineno}, column {problem.colno}"
        )
        raise error(f"{place}: not JSON: {problem.msg} ({where}){hint}") from problem
    except RecursionError as problem:
        raise error(f"{place}: not JSON that can be read: nested too deeply") from problem
    except UnicodeDecodeError as problem:
        raise error(f"{place}: not JSON that can be read: not UTF-8 at byte {problem.start:,}") from problem
    except UnicodeEncodeError as problem:
        raise error(f"{place}: half a surrogate pair, which is no character") from problem
    except ValueError as problem:  # of Python's conversion of whole numbers
        raise error(f"{place}: not JSON that can be read: a number of more than 4,300 digits") from problem
    return value


def is_unicode(text: str) -> bool:
    """Whether text has no half surrogate pair: JSON can spell these, and Python has them for bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def replace_surrogates(text: str) -> str:
    """Replace each half surrogate pair by U+FFFD; whole pairs become their character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def one_line(error: BaseException, limit: int = 200) -> str:
    """Return the message of a library's error on one line, cut after `limit` characters, for a message of ours."""
    return " ".join(str(error).split())[:limit]


def escape_unprintable(text: str) -> str:
    r"""Text in one line that leaves a terminal as it is: what is not printable in it becomes an escape like \n or \x1b."""
    return UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def shorten(text: str, limit: int = 80) -> str:
    """Text of at most `limit` characters, for a message."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
