"""Checks of single values: range, allowed values, and paths that have to be local."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from electra.config.suggestions import format_flag, suggest_choice
from electra.errors import UsageError
from electra.external import escape_unprintable, is_unicode, shorten

LARGEST_INT = 2**53
"""Integers up to here are exact in JSON, in float64 and as tensor sizes."""
UNBOUNDED = ("clip_norm", "null_threshold")
"""Options whose value can be infinite: no gradient clipping; always or never an answer."""


def check_value(name: str, value: Any) -> None:
    """Check a value of any option: finite numbers, integers up to 2^53, valid Unicode.

    Raises:
        UsageError: the value, or one of a list of values, is invalid.
    """
    for each in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(each, str):
            problem = "a NUL character" if "\0" in each else "" if is_unicode(each) else "bytes that are not UTF-8"
            if problem:
                raise UsageError(
                    "unprintable", f"{format_flag(name)}: {shorten(escape_unprintable(each))} holds {problem}"
                )
        elif isinstance(each, float) and not math.isfinite(each):
            if math.isnan(each) or name.rpartition(".")[2] not in UNBOUNDED:
                raise UsageError("not-finite", f"{format_flag(name)}: expected a finite number, got {each}")
        elif isinstance(each, int) and abs(each) > LARGEST_INT:
            raise UsageError(
                "out-of-range",
                f"{format_flag(name)}: expected a number of at most {LARGEST_INT:,} (2^53), got a larger one",
            )


def check_limits(config: Any, prefix: str, **limits: int | float) -> None:
    """Raise a `UsageError` if a field of a configuration is greater than its limit, or NaN; None passes.

    The limits are far above useful values; they keep computations finite.
    """
    for name, limit in limits.items():
        value = getattr(config, name)
        if value is not None and not value <= limit:
            option = prefix + (name.replace("_", "-") if prefix.startswith("--") else name)
            shown = "a number of many digits" if isinstance(value, int) and value >= 10**30 else value
            raise UsageError(
                "out-of-range",
                f"{option} is {shown}; it must be at most {f'{limit:,}' if limit < 1e15 else f'{limit:g}'}",
            )


def check_choice(flag: str, value: str, choices: Iterable[str]) -> None:
    """Raise a `UsageError` that lists the allowed values, and the nearest one, if `value` is none of them."""
    allowed = list(choices)
    if value not in allowed:
        hint = suggest_choice(value, allowed)
        raise UsageError("unknown-choice", f"{flag}: expected {join_choices(allowed)}, got {shorten(str(value))}{hint}")


def join_choices(choices: Iterable[str]) -> str:
    """Format as `a, b or c`."""
    *first, last = choices
    return f"{', '.join(first)} or {last}" if first else last


def check_local(paths: Mapping[str, object], hub_name: str | None = None) -> None:
    """Check that no path is an address of the Hugging Face hub.

    Args:
        paths: Option -> its path; None passes.
        hub_name: Option that accepts names of models on the hub, without hf://.

    Raises:
        UsageError: one begins with hf://. (`Path` normalizes this to hf:/owner/name.)
    """
    for option, path in paths.items():
        if path is None or not str(path).startswith("hf:/"):
            continue
        name = str(path).removeprefix("hf:").lstrip("/")
        kind = "" if option in ("--model", "--init", "--tokenizer") else "--repo-type dataset "
        advice = f"download it first: hf download {kind}{name} --local-dir FOLDER"
        if option == hub_name:
            advice = f"name a model of the hub without hf://, as {name}"
        raise UsageError(
            "hub-not-allowed",
            f"{option} hf://{name}: hf:// is for text to pre-train on and for GLUE (hf://nyu-mll/glue); {advice}",
        )
