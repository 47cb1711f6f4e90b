"""Options: name, type, default and help text; parsing and checking of values."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from electra.config.checks import check_choice, check_value, join_choices
from electra.config.suggestions import format_flag, suggest_value
from electra.errors import UsageError
from electra.external import shorten

SWITCH = {"true": True, "yes": True, "false": False, "no": False}
"""Words for the values of a `bool`."""
INT = re.compile(r"[+-]?[0-9]{1,400}")
FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?|[+-]?\.?inf(inity)?|\.?nan", re.IGNORECASE)
MAX_DIGITS = 400
"""Maximum characters of a number; the largest float64 has 309 digits."""


@dataclass(frozen=True)
class Option:
    """A command-line option, positional argument or value of a config file."""

    name: str
    """Name with underscores; dotted for fields of nested configurations."""
    type: type
    """bool, int, float or str."""
    optional: bool = False
    """Whether None is allowed, written null."""
    many: bool = False
    """Whether there are several values, in a tuple."""
    choices: Callable[[], Iterable[str]] | None = None
    """Function that returns the allowed values."""
    default: Any = None
    required: bool = False
    positional: bool = False
    help: str = ""

    @property
    def flag(self) -> str:
        """Name on the command line."""
        return self.name.upper() if self.positional else format_flag(self.name)

    @property
    def type_name(self) -> str:
        """Names of the allowed types or values: `int or null`, `true or false`, `file or line`."""
        if self.choices is not None:
            kinds = list(self.choices())
        else:
            kinds = ["true", "false"] if self.type is bool else [self.type.__name__]
        return join_choices([*kinds, "null"] if self.optional else kinds)

    def parse(self, text: str) -> Any:
        """Parse a word of the command line, or a string in a config file.

        Raises:
            UsageError: it is not a value of this option.
        """
        if self.optional and text.lower() == "null":
            return None
        value: Any = text
        if self.type is bool:
            value = SWITCH.get(text.lower())
        elif self.type is not str:
            value = parse_number(text)
        if value is None:
            raise self.error(text)
        return self.check_one(value)

    def check(self, value: Any) -> Any:
        """Check a value from Python or a config file, and convert it to the type of this option.

        Raises:
            UsageError: it is of another type, or not allowed.
        """
        if value is None and self.optional:
            return None
        if self.many and not isinstance(value, str):
            if not isinstance(value, (list, tuple)):
                raise self.error(value)
            return tuple(self.check_one(each) for each in value)
        return (self.check_one(value),) if self.many else self.check_one(value)

    def check_one(self, value: Any) -> Any:
        """Check a single value as in `check`."""
        if isinstance(value, str) and self.type is not str:
            return self.parse(value)
        if self.type is float and isinstance(value, int) and not isinstance(value, bool):
            check_value(self.name, value)
            value = float(value)
        elif self.type is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, self.type) or (self.type is int and isinstance(value, bool)):
            raise self.error(value)
        check_value(self.name, value)
        if self.choices is not None:
            self.check_choice(str(value))
        return value

    def check_choice(self, value: str) -> None:
        """Raise a `UsageError` if a value is not among the choices."""
        assert self.choices is not None
        allowed = [*self.choices(), *(["null"] if self.optional else [])]
        if value not in allowed and (hint := suggest_value(self.name, shorten(value), self.many)):
            raise UsageError("unknown-choice", f"{self.flag}: expected {self.type_name}, got {shorten(value)}{hint}")
        check_choice(self.flag, value, allowed)

    def error(self, value: Any) -> UsageError:
        """Build the error for a value of another type."""
        if isinstance(value, float) and value - value != 0:
            return UsageError("not-finite", f"{self.flag}: expected a finite number, got {value}")
        found = shorten(str(value)) or "an empty text"
        plain = str(value).replace(",", "").replace(" ", "").replace("_", "")
        is_grouped = self.type in (int, float) and plain != value and parse_number(plain) is not None
        hint = f"; write it as {plain}" if is_grouped else ""
        return UsageError("wrong-type", f"{self.flag}: expected {self.type_name}, got {found}{hint}")


def parse_number(text: str) -> int | float | None:
    """Parse a number, such as `1e3`; None if text is not a number. Integers are exact."""
    if len(text) > MAX_DIGITS:
        return None
    if INT.fullmatch(text):
        return int(text)
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan")) if FLOAT.fullmatch(text) else None


def lookup(path: str) -> Callable[[], Any]:
    """Return a function that imports a value by its module and name when it is called."""
    module, _, name = path.rpartition(".")
    return lambda: getattr(import_module(module), name)


def choice_field(default: str | tuple[str, ...] | None, choices: Callable[[], Iterable[str]]) -> Any:
    """A field of a configuration whose allowed values are looked up, the keys of a dictionary for instance."""
    return field(default=default, metadata={"choices": choices})


def fixed_field(default: Any) -> Any:
    """Define a field of a configuration that is not an option, because it is computed from others."""
    return field(default=default, metadata={"option": False})
