"""Typed validation of external files: a schema for each kind of file, and a one-line message for any problem.

A schema is a dataclass, a TypedDict or any other type that pydantic validates. Validation is strict: a string is not
converted to a number. Unknown keys are kept in a TypedDict and ignored in a dataclass.
"""

import re
import reprlib
import stat
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict, is_typeddict

from electra.errors import ElectraError
from electra.external import one_line, refuse_special_file

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")

SIZE_LIMIT = 64 << 20
"""Default maximum bytes of a JSON file; parsed, it takes about ten times as much memory."""


class JsonObject(TypedDict):
    """Object with any keys."""


def check_file(path: Path, error: type[ElectraError], limit: int | None = None) -> None:
    """Raise `error` unless `path` is a regular file that exists and has at most `limit` bytes.

    Reading anything else can block (a FIFO), never end (a device) or fail (a directory).
    """
    refuse_special_file(path, error)
    try:
        found = path.stat()
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the path
        raise make_read_error(path, problem, error) from problem
    if not stat.S_ISREG(found.st_mode):
        raise error(
            "unreadable",
            f"{path}: cannot be read: {'Is a directory' if stat.S_ISDIR(found.st_mode) else 'not a regular file'}",
        )
    if limit is not None and found.st_size > limit:
        raise error("too-large", f"{path}: {found.st_size:,} bytes; a file of this kind has at most {limit:,}")


def read_bytes(path: Path, error: type[ElectraError], limit: int = SIZE_LIMIT) -> bytes:
    """Read a regular file of at most `limit` bytes. Raises `error`."""
    check_file(path, error, limit)
    try:
        return path.read_bytes()
    except OSError as problem:
        raise make_read_error(path, problem, error) from problem


def read_tensors(path: Path, error: type[ElectraError]) -> "dict[str, Tensor]":
    """Load the tensors of a safetensors file on the CPU: name -> tensor. Raises `error`."""
    from safetensors import SafetensorError  # imports torch, which not every command needs
    from safetensors.torch import load_file

    check_file(path, error)
    try:
        return load_file(path)
    except (SafetensorError, OSError, RuntimeError, ValueError) as problem:
        raise error("unreadable", f"{path}: cannot be read ({one_line(problem)})") from problem


def read_json(path: Path, schema: type[T], error: type[ElectraError], limit: int = SIZE_LIMIT) -> T:
    """Read a JSON file and validate it. Raises `error`, whose message names the file and the place in it."""
    return validate_json(read_bytes(path, error, limit), schema, str(path), error)


def read_object(path: Path, error: type[ElectraError], limit: int = SIZE_LIMIT) -> dict[str, Any]:
    """Read a JSON file that holds an object with any content. Raises `error`."""
    return cast("dict[str, Any]", read_json(path, JsonObject, error, limit))


def validate_json(
    data: bytes | str, schema: type[T], place: str, error: type[ElectraError], line: int | None = None
) -> T:
    """Parse a JSON document and validate it; `line` is its number if the document is one line of a file.

    Raises `error`, whose message begins with `place`.
    """
    try:
        return build_validator(cast(Any, schema)).validate_json(
            data, strict=True, extra="allow" if is_typeddict(schema) else "ignore"
        )
    except ValidationError as problem:
        raise error(find_code(problem), describe_error(problem, place, line)) from None


def validate(value: Any, schema: type[T], place: str, error: type[ElectraError]) -> T:
    """Validate a Python value. Raises `error`, whose message begins with `place`."""
    try:
        return build_validator(cast(Any, schema)).validate_python(value, strict=True)
    except ValidationError as problem:
        raise error(find_code(problem), describe_error(problem, place)) from None


@cache
def build_validator(schema: Any) -> Any:
    """Build the validator of a schema; cached, because this takes about a millisecond."""
    return TypeAdapter(schema)


def find_code(problem: ValidationError) -> str:
    """Find the code of an error about the first problem."""
    kind = problem.errors(include_url=False, include_context=False)[0]["type"]
    if kind.endswith("_type"):
        return "wrong-type"
    return {"json_invalid": "not-json", "missing": "missing-field", "finite_number": "not-finite"}.get(
        kind, "wrong-value"
    )


def describe_error(problem: ValidationError, place: str, line: int | None = None) -> str:
    """Describe the first problem in one line."""
    first, *more = problem.errors(include_url=False, include_context=False)
    if first["type"] == "json_invalid":
        message = first["msg"].removeprefix("Invalid JSON: ")
        if found := re.fullmatch(r"(.*) at line (\d+) column (\d+)", message):
            return f"{place}:{line or found[2]}: not JSON: {found[1]} (column {found[3]})"
        return f"{place}: not JSON: {message}"
    place = place if line is None else f"{place}:{line}"
    if not first["loc"] and first["type"] in ("dict_type", "dataclass_type"):
        return f"{place}: not a JSON object"
    where = format_location(first["loc"])
    if first["type"] == "missing":
        text = f"{where} is missing"
    else:
        text = f"{first['msg'].replace('Input', where, 1)}, got {reprlib.repr(first['input'])}"
        text = text if text.startswith(where) else f"{where}: {text}"
    others = f" (and {len(more):,} more problems)" if more else ""
    return f"{place}: {' '.join(text.split())}{others}"


def format_location(keys: tuple[int | str, ...]) -> str:
    """Format `('train', 3, 'bytes')` as `train[3].bytes`."""
    text = "".join(
        f"[{key}]"
        if isinstance(key, int)
        else f".{key}"
        if re.fullmatch(r"[\w-]{1,60}", key)
        else f".{reprlib.repr(key)}"
        for key in keys
    )
    return text.removeprefix(".") or "the content"


def make_read_error(path: Path, problem: Exception, error: type[ElectraError]) -> ElectraError:
    """Convert a system error about a file to an error of the package."""
    reason = getattr(problem, "strerror", None) or problem
    missing = isinstance(problem, FileNotFoundError)
    return error("missing" if missing else "unreadable", f"{path}: cannot be read: {reason}")
