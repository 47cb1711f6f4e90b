"""Checks of single values: range, allowed values, and paths that have to be local."""

import math
from collections.abc import Iterable, Mapping
from operator import ge, gt, le, lt
from typing import Any

from electra.config.suggestions import format_flag, suggest_choice
from electra.errors import UsageError
from electra.external import escape_unprintable, is_unicode, shorten

LARGEST_INT = 2**53
"""Integers up to here are exact in JSON, in float64 and as tensor sizes."""
MODELS = ("MODEL", "--model", "--init", "--init-generator", "--tokenizer")
"""Options for models and tokenizers, which are named on the hub without hf://."""
UNBOUNDED = ("clip_norm", "null_threshold")
"""Options whose value can be infinite: no gradient clipping; always or never an answer."""


def check_value(name: str, value: Any) -> None:
    """Check a value of any option: finite numbers, integers up to 2^53, valid Unicode.

    Raises:
        UsageError: the value, or one of a list of values, is invalid.
    """
    for each in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(each, str):
            shown = f"{format_flag(name)}: {shorten(escape_unprintable(each))}"
            if "\0" in each:
                raise UsageError("nul-character", f"{shown} has a NUL character")
            if not is_unicode(each):  # Python decodes bytes of the command line that are not UTF-8 to half surrogates
                raise UsageError("not-utf8", f"{shown} has bytes that are not UTF-8")
        elif isinstance(each, float) and not math.isfinite(each):
            if math.isnan(each) or name.rpartition(".")[2] not in UNBOUNDED:
                raise UsageError("not-finite", f"{format_flag(name)}: expected a finite number, got {each}")
        elif isinstance(each, int) and abs(each) > LARGEST_INT:
            raise UsageError(
                "out-of-range",
                f"{format_flag(name)}: expected a number of at most {LARGEST_INT:,} (2^53), got a larger one",
            )


def check_range(
    config: object,
    section: str,
    *names: str,
    at_least: int | float | None = None,
    above: int | float | None = None,
    below: int | float | None = None,
    at_most: int | float | None = None,
) -> None:
    """Check that fields of a configuration are in a range; None passes, NaN does not.

    Upper bounds that are far above useful values keep computations finite.

    Args:
        config: The dataclass.
        section: Where its options are, such as `training` for `--training.batch-size`; empty at the top level.
        names: Its fields.
        at_least, above: The lower bound, allowed itself or not.
        below, at_most: The upper bound, not allowed itself or allowed.

    Raises:
        UsageError: a value is outside; the message has the option, the value and the range.
    """
    for name in names:
        option = format_flag(f"{section}.{name}" if section else name)
        check_number(option, getattr(config, name), at_least, above, below, at_most)


def check_number(
    option: str,
    value: int | float | None,
    at_least: int | float | None = None,
    above: int | float | None = None,
    below: int | float | None = None,
    at_most: int | float | None = None,
) -> None:
    """Check one value as `check_range` does."""
    if value is None:
        return
    bounds = (("at least", at_least, ge), ("more than", above, gt), ("less than", below, lt), ("at most", at_most, le))
    broken = [(words, bound) for words, bound, holds in bounds if bound is not None and not holds(value, bound)]
    if not broken:
        return
    shown = "a number of many digits" if isinstance(value, int) and abs(value) >= 10**30 else value
    expected = " and ".join(f"{words} {f'{bound:,}' if abs(bound) < 1e15 else f'{bound:g}'}" for words, bound in broken)
    raise UsageError("out-of-range", f"{option} is {shown}; it must be {expected}")


def check_choice(flag: str, value: str, choices: Iterable[str]) -> None:
    """Raise a `UsageError` that lists the allowed values, and the nearest one, if `value` is none of them."""
    allowed = list(choices)
    if value not in allowed:
        hint = suggest_choice(value, allowed)
        found = shorten(str(value)) or "an empty text"
        raise UsageError("unknown-choice", f"{flag}: expected {join_choices(allowed)}, got {found}{hint}")


def join_choices(choices: Iterable[str]) -> str:
    """Format as `a, b or c`."""
    *first, last = choices
    return f"{', '.join(first)} or {last}" if first else last


def check_local(paths: Mapping[str, object]) -> None:
    """Check that no path is an address of a data set of the Hugging Face hub; `paths` is option -> its path, None passes.

    Raises:
        UsageError: one begins with hf://. (`Path` normalizes this to hf:/owner/name.)
    """
    for option, path in paths.items():
        if path is None or not str(path).startswith("hf:/"):
            continue
        name = str(path).removeprefix("hf:").lstrip("/")
        advice = f"download it first: hf download --repo-type dataset {name} --local-dir FOLDER"
        if option in MODELS:
            advice = f"name a model of the hub without hf://, as {name}"
        raise UsageError(
            "hub-not-allowed",
            f"{option} hf://{name}: hf:// is for text to pre-train on and for GLUE (hf://nyu-mll/glue); {advice}",
        )
