"""Checks of external input: file types, paths, JSON and Unicode; escaping and formats of text in messages."""

import importlib.util
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
"""JSON escape of half of a surrogate pair; a complete pair has two of these."""
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line separators, marks that change the writing direction, and half surrogate pairs."""

EXTRAS = {
    "dedup": ("rensa",),
    "hub": ("datasets", "huggingface_hub"),
    "onnx": ("onnx", "onnxruntime", "onnxscript"),
    "serve": ("fastapi", "uvicorn"),
    "tf": ("google_crc32c",),
}
"""Extras in pyproject.toml -> their packages."""


def require_extra(extra: str, subject: str) -> None:
    """Check that the packages of an extra are installed.

    Args:
        extra: A key of `EXTRAS`.
        subject: Start of the message: what needs them, in the singular.

    Raises:
        UsageError: a package is missing; the message has the command that installs the extra.
    """
    if any(importlib.util.find_spec(package) is None for package in EXTRAS[extra]):
        raise UsageError(
            "missing-extra",
            f"{subject} needs an extra: pip install 'electra[{extra}]' (from a clone: '.[{extra}]')",
        )


def refuse_special_file(path: Path, error: type[ElectraError]) -> None:
    """Raise `error` for a named pipe, a socket or a device before it is opened: opening or reading one may never end.

    Folders and missing files are left to the caller.
    """
    try:
        mode = path.stat().st_mode
    except OSError:
        return
    except ValueError:  # a NUL in the path
        raise error("bad-path", f"{path}: a path cannot contain a NUL character") from None
    for is_kind, name in SPECIAL_FILES:
        if is_kind(mode):
            raise error(
                "special-file",
                f"{path}: {name}, expected a regular file; write its content to a file and give that file",
            )


def check_output_path(out: str | os.PathLike[str], option: str = "--out") -> Path:
    """Return the path of an output.

    Raises:
        UsageError: it is blank, for example from an unset shell variable; an empty path would be the current folder.
    """
    if not os.fspath(out).strip():
        raise UsageError("empty-option", f"{option} is empty; name a directory or file, or . for the current folder")
    return Path(out)


def check_output_file(out: str | os.PathLike[str], option: str = "--out") -> Path:
    """Return the path of an output file, which may replace an existing file.

    Raises:
        UsageError: it is blank, or exists and is not a regular file: a folder, or a device such as /dev/null.
    """
    path = check_output_path(out, option)
    if path.exists() and not path.is_file():
        raise UsageError(
            "not-regular-file", f"{option} {path}: not a regular file; name a file to write, or omit {option}"
        )
    return path


def decode_json(
    text: str | bytes, place: str, error: type[ElectraError], hint: str = "", half_surrogates: bool = False
) -> Any:
    """Parse JSON without a schema; `electra.schema` validates against one.

    Args:
        text: The JSON document.
        place: File and line; messages begin with it.
        error: Type of error to raise.
        hint: End of the message if `text` is not JSON.
        half_surrogates: Accept half surrogate pairs, which JSON can escape but UTF-8 cannot encode.

    Raises:
        ElectraError: of type `error`: `text` is not JSON, or not JSON that Python can represent.
    """
    try:
        value = json.loads(text)
        escaped = not half_surrogates and HALF_SURROGATE.search(
            text if isinstance(text, str) else text.decode("latin-1")
        )
        if escaped and not is_unicode(json.dumps(value, ensure_ascii=False)):
            raise error("half-surrogate", f"{place}: half a surrogate pair, which is not a character")
    except json.JSONDecodeError as problem:
        where = (
            f"column {problem.colno}"
            if isinstance(text, str) and problem.lineno == 1
            else f"line {problem.lineno}, column {problem.colno}"
        )
        raise error("not-json", f"{place}: not JSON: {problem.msg} ({where}){hint}") from problem
    except RecursionError as problem:
        raise error("too-deep", f"{place}: not JSON that can be read: nested too deeply") from problem
    except UnicodeDecodeError as problem:
        raise error("not-utf8", f"{place}: not JSON that can be read: not UTF-8 at byte {problem.start:,}") from problem
    except ValueError as problem:  # from Python's conversion of integers
        raise error(
            "too-many-digits", f"{place}: not JSON that can be read: a number of more than 4,300 digits"
        ) from problem
    return value


def is_unicode(text: str) -> bool:
    """Whether text has no half surrogate pair; JSON can escape these, and Python uses them for bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_unicode(text: str, place: str, error: type[ElectraError]) -> str:
    """Return the text. Raises `error` if it has half a surrogate pair, which no tokenizer and no encoding accepts."""
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        message = f"{place}: half a surrogate pair at character {problem.start}, which is not a character"
        raise error("half-surrogate", message) from problem
    return text


def replace_surrogates(text: str) -> str:
    """Replace each half surrogate pair by U+FFFD, and each complete pair by its character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def one_line(error: BaseException, limit: int = 200) -> str:
    """Return the message of a library's error on one line, truncated to `limit` characters."""
    return " ".join(str(error).split())[:limit]


def escape_unprintable(text: str) -> str:
    r"""Escape unprintable characters, as \n or \x1b, so that text has one line and cannot control a terminal."""
    return UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def shorten(text: str, limit: int = 80) -> str:
    """Truncate text to `limit` characters, for a message."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def format_count(number: int, thing: str) -> str:
    """Format a number with a noun in the singular or plural: `1 file`, `2 files`."""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")
