"""An option: its name, type, default and help text; parsing and checking of its values."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from electra.config.checks import check_choice, check_value, join_choices
from electra.config.suggestions import format_flag, suggest_value
from electra.errors import UsageError
from electra.external import shorten

SWITCH = {"true": True, "yes": True, "false": False, "no": False}
"""Words for the two values of a `bool`."""
INT = re.compile(r"[+-]?[0-9]{1,400}")
FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?|[+-]?\.?inf(inity)?|\.?nan", re.IGNORECASE)
MAX_DIGITS = 400
"""Characters of a number; the largest float64 has 309 digits."""


@dataclass(frozen=True)
class Option:
    """A command-line option, or a positional argument, or a value of a config file."""

    name: str
    """Dotted for fields of nested configurations, with underscores."""
    type: type
    """bool, int, float or str."""
    optional: bool = False
    """None is allowed, written null."""
    many: bool = False
    """Takes several values; the value is a tuple."""
    choices: Callable[[], Iterable[str]] | None = None
    """Looks up the allowed values."""
    default: Any = None
    required: bool = False
    positional: bool = False
    help: str = ""

    @property
    def flag(self) -> str:
        """As it is written on the command line."""
        return self.name.upper() if self.positional else format_flag(self.name)

    @property
    def type_name(self) -> str:
        """`int or null`, or the allowed values."""
        kinds = [self.type.__name__] if self.choices is None else list(self.choices())
        return join_choices([*kinds, "null"] if self.optional else kinds)

    def parse(self, text: str) -> Any:
        """The value that a word on the command line, or text in a config file, stands for.

        Raises:
            UsageError: it is no value of this option.
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
        """`value` in the type of this option; for values from Python and from config files.

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
        """`check` of a single value."""
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
        if value not in allowed and (hint := suggest_value(self.name, value)):
            raise UsageError(f"{self.flag}: expected {self.type_name}, got {shorten(value)}{hint}")
        check_choice(self.flag, value, allowed)

    def error(self, value: Any) -> UsageError:
        """The error for a value of another type."""
        if isinstance(value, float) and value - value != 0:
            return UsageError(f"{self.flag}: expected a finite number, got {value}")
        return UsageError(f"{self.flag}: expected {self.type_name}, got {shorten(str(value))}")


def parse_number(text: str) -> int | float | None:
    """The number that is written, `1e3` for instance; None if it is none. An integer stays exact."""
    if len(text) > MAX_DIGITS:
        return None
    if INT.fullmatch(text):
        return int(text)
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan")) if FLOAT.fullmatch(text) else None


def choice_field(default: str, choices: Callable[[], Iterable[str]]) -> Any:
    """A field of a configuration whose allowed values are looked up, the keys of a dictionary for instance."""
    return field(default=default, metadata={"choices": choices})


def fixed_field(default: Any) -> Any:
    """A field of a configuration that is not an option: it is computed from others."""
    return field(default=default, metadata={"option": False})
