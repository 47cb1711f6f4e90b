"""Files from outside, read through one typed validation: a schema for each kind of file, one line for whatever is wrong.

A schema is a dataclass, a TypedDict or any other type that pydantic validates. It is checked strictly: no text is taken for
a number. Keys that a schema does not name are kept in a TypedDict and ignored in a dataclass.
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
"""Bytes of a JSON file, unless its reader has another limit: parsed, it takes some ten times as much memory."""


class JsonObject(TypedDict):
    """An object with any keys."""


def check_file(path: Path, error: type[ElectraError], limit: int | None = None) -> None:
    """Raise `error` unless `path` is a regular file that exists and has at most `limit` bytes.

    Opening anything else can block (a FIFO), never end (a device) or fail half-way (a directory).
    """
    refuse_special_file(path, error)
    try:
        found = path.stat()
    except (OSError, ValueError) as problem:  # ValueError: a NUL in the path
        raise make_read_error(path, problem, error) from problem
    if not stat.S_ISREG(found.st_mode):
        raise error(f"{path}: cannot be read: {'Is a directory' if stat.S_ISDIR(found.st_mode) else 'no regular file'}")
    if limit is not None and found.st_size > limit:
        raise error(f"{path}: {found.st_size:,} bytes; a file of this kind has at most {limit:,}")


def read_bytes(path: Path, error: type[ElectraError], limit: int = SIZE_LIMIT) -> bytes:
    """The content of a regular file of at most `limit` bytes. Raises `error`."""
    check_file(path, error, limit)
    try:
        return path.read_bytes()
    except OSError as problem:
        raise make_read_error(path, problem, error) from problem


def read_tensors(path: Path, error: type[ElectraError]) -> "dict[str, Tensor]":
    """The tensors of a safetensors file, by name, on the CPU. Raises `error`."""
    from safetensors import SafetensorError  # with torch, which not every command needs
    from safetensors.torch import load_file

    check_file(path, error)
    try:
        return load_file(path)
    except (SafetensorError, OSError, RuntimeError, ValueError) as problem:
        raise error(f"{path}: cannot be read ({one_line(problem)})") from problem


def read_json(path: Path, schema: type[T], error: type[ElectraError], limit: int = SIZE_LIMIT) -> T:
    """The content of a JSON file, which has to fit `schema`. Raises `error`, with the file's name and the place in it."""
    return validate_json(read_bytes(path, error, limit), schema, str(path), error)


def read_object(path: Path, error: type[ElectraError], limit: int = SIZE_LIMIT) -> dict[str, Any]:
    """The content of a JSON file that holds an object, whatever is in it. Raises `error`."""
    return cast("dict[str, Any]", read_json(path, JsonObject, error, limit))


def validate_json(
    data: bytes | str, schema: type[T], place: str, error: type[ElectraError], line: int | None = None
) -> T:
    """A JSON document that has to fit `schema`; `line` is its number where it is one line of a file.

    Raises `error`, whose message begins with `place`.
    """
    try:
        return build_validator(cast(Any, schema)).validate_json(
            data, strict=True, extra="allow" if is_typeddict(schema) else "ignore"
        )
    except ValidationError as problem:
        raise error(describe_error(problem, place, line)) from None


def validate(value: Any, schema: type[T], place: str, error: type[ElectraError]) -> T:
    """A value that has to fit `schema`, for what is not JSON. Raises `error`, whose message begins with `place`."""
    try:
        return build_validator(cast(Any, schema)).validate_python(value, strict=True)
    except ValidationError as problem:
        raise error(describe_error(problem, place)) from None


@cache
def build_validator(schema: Any) -> Any:
    """Building one takes about a millisecond."""
    return TypeAdapter(schema)


def describe_error(problem: ValidationError, place: str, line: int | None = None) -> str:
    """The first thing that is wrong, in one line."""
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
    """`('train', 3, 'bytes')` as `train[3].bytes`."""
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
    """What the system says of a file, as an error of ours."""
    reason = getattr(problem, "strerror", None) or problem
    return error(f"{path}: cannot be read: {reason}")
