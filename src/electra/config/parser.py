"""Configurations are frozen dataclasses; this turns them into options, help texts and files, and back.

One sentence of precedence: defaults, then preset, then config file, then command line (or keyword arguments).
"""

import argparse
import dataclasses
import os
import re
import sys
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import jsonargparse
import yaml

from electra.config.hints import hyphenated, suggest_option, suggest_value
from electra.config.plain_values import check_names, check_values, load_yaml, parse_value
from electra.errors import UsageError
from electra.external import shortened

jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
jsonargparse.set_loader("plain", parse_value, exceptions=(yaml.YAMLError, ValueError))

NUMBERS = tuple(kind for plain in (bool, int, float) for kind in (plain, plain | None))
"""Types of options whose values have one word."""


class HelpFormatter(jsonargparse.DefaultHelpFormatter):
    """jsonargparse's formatter, with types in words."""

    def _get_type_str(self, action: argparse.Action) -> str | None:
        words = {"str": "text", "int": "whole number", "float": "number", "bool": "true or false", " | ": " or "}
        text = super()._get_type_str(action)
        return text and re.sub(r"\b(str|int|float|bool)\b| \| ", lambda match: words[match[0]], plain_type(text))


class Parser(jsonargparse.ArgumentParser):
    """jsonargparse's parser, with errors as one line of ours and option names written with hyphens."""

    def __init__(self, **arguments: Any) -> None:
        # Half a name is a wrong name.
        super().__init__(formatter_class=HelpFormatter, allow_abbrev=False, parser_mode="plain", **arguments)
        self.sections: set[str] = set()
        """Names of groups of options."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Raise a `UsageError` that names the nearest right option where a name is wrong."""
        positionals = any(not action.option_strings for action in self._actions)
        raise UsageError(one_line(message, self.option_names(), self.prog, positionals)) from None

    def option_names(self) -> list[str]:
        """Every option that can be given, dotted, with underscores; no group of options, which jsonargparse has too."""
        shown = [action for action in self._actions if action.help != argparse.SUPPRESS]
        strings = [name for action in shown for name in action.option_strings if name.startswith("--")]
        return [name.removeprefix("--") for name in strings]

    def hide(self, names: set[str]) -> None:
        """Leave options out of the help text; they are understood all the same."""
        for action in self._actions:
            if action.dest in names:
                action.help = argparse.SUPPRESS

    def describe(self, name: str, text: str) -> None:
        """Add to an option's help text what only its caller knows."""
        action = next(action for action in self._actions if action.dest == name)
        action.help = f"{action.help} {text}"

    def options_of(self, *types: Any) -> set[str]:
        """The options that take a value of one of these types."""
        return {
            name
            for action in self._actions
            if getattr(action, "_typehint", None) in types
            for name in action.option_strings
        }

    def format_help(self, *arguments: Any) -> str:
        """The help text; `--seq_len` is shown as `--seq-len`, and both are understood."""
        return re.sub(r"--[a-z0-9_.]+", lambda match: match[0].replace("_", "-"), super().format_help(*arguments))

    def print_help(self, file: Any = None) -> None:
        """Print the help text; argparse's own method hides that it could not be written."""
        (file or sys.stdout).write(self.format_help())

    def read(self, argv: Iterable[str]) -> jsonargparse.Namespace:
        """Parse a command line, in which a switch such as --cased may stand without a value, and 1e3 is a whole number."""
        switches, counts = self.options_of(bool, bool | None), self.options_of(int, int | None)
        words = [underscored(word) for word in argv]

        def understood(before: str, word: str, after: str) -> str:
            name, equals, value = word.partition("=")
            if word in switches and after.lower() not in ("true", "false", "yes", "no", "null"):
                return f"{word}=true"
            if name in counts and equals:
                return f"{name}={parse_int(value)}"
            return parse_int(word) if before in counts else word

        for word in words:  # jsonargparse would read a file of this name, or import a class
            if (name := word.partition("=")[0].removeprefix("--")) in self.sections and word.startswith("--"):
                raise UsageError(
                    f"{hyphenated(name)} is a group of options; name one of them, as {self.option_of(name)}"
                )
            self.check_number(name, word.partition("=")[2])
        for before, word in pairwise(words):
            self.check_number(before.removeprefix("--"), word)
        neighbors = zip(["", *words], words, [*words, "--"][1:], strict=False)
        values = self.parse_args([understood(*each) for each in neighbors])
        check_values(vars(values.as_flat()))
        return values

    def check_number(self, name: str, text: str) -> None:
        """Raise a `UsageError` if an option of a number or a switch is given anything that YAML would have to expand.

        jsonargparse reads such values by a YAML loader that cannot be replaced; all others pass `parse_value`.
        """
        kind = next((kind for kind in NUMBERS if f"--{name}" in self.options_of(kind)), None)
        if kind is not None and not re.fullmatch(r"[\w.+-]{0,400}", text.strip()):
            words = kind.__name__ if isinstance(kind, type) else str(kind).replace(" | None", " or null")
            raise UsageError(f"{hyphenated(name)}: expected {words}, got {shortened(text)}")

    def parse_object(self, values: Any, *arguments: Any, **more: Any) -> jsonargparse.Namespace:
        """Parse names and values. Raises a `UsageError` where a group of options has a value, too."""
        for name in self.sections & set(values):
            if not isinstance(values[name], Mapping | jsonargparse.Namespace):
                raise UsageError(
                    f"{name} is {values[name]!r}; it is a group of options, such as {self.option_of(name)}"
                )
        return super().parse_object(values, *arguments, **more)

    def option_of(self, section: str) -> str:
        """The first option of a group."""
        return next(hyphenated(name) for name in self.option_names() if name.startswith(f"{section}."))

    def take(self, given: Mapping[str, Any]) -> jsonargparse.Namespace:
        """Parse keyword arguments; nested ones are configurations, dictionaries or dotted names."""

        def plain(value: Any) -> Any:
            if isinstance(value, os.PathLike):
                return os.fspath(value)
            return (
                dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
            )

        return self.take_plain({name: plain(value) for name, value in given.items()})

    def take_plain(self, given: Mapping[str, Any]) -> jsonargparse.Namespace:
        """Parse names and values out of a file; nested names are mappings, or dotted."""
        check_names(given)
        for name, value in flat(given).items():
            if isinstance(value, str):
                self.check_number(name, value)
        values = self.parse_object(dict(given))
        check_values(vars(values.as_flat()))
        return values


def parse_int(number: str) -> str:
    """`1e3` or `1000.0` as `1000`; anything else as it stands."""
    if re.fullmatch(r"\d+(\.\d*)?([eE]\+?\d{1,2})?", number) and float(number).is_integer():
        return str(int(number)) if number.isdigit() else str(int(float(number)))
    return number


def underscored(word: str) -> str:
    """`--seq-len=64` as `--seq_len=64`."""
    name, equals, value = word.partition("=")
    return name[:2] + name[2:].replace("-", "_") + equals + value if word.startswith("--") else word


def one_line(message: str, names: list[str], program: str, positionals: bool) -> str:
    """What jsonargparse says of an error in several lines, in one, with the nearest right name."""
    if missing := re.search(r"the following arguments are required: (.+)", message):
        shown = [hyphenated(name) if name in names else name.upper() for name in missing[1].split(", ")]
        return f"{' and '.join(shown)} {'is' if len(shown) == 1 else 'are'} missing; {program} --help explains it"
    if stray := re.search(r"[Uu]nrecognized arguments?: (?!--)(\S+)", message):
        if stray[1].startswith("-") and len(stray[1]) > 1:
            return f"there is no option {stray[1]}; options begin with two hyphens, and --help lists them"
        why = (
            "stands behind options; name all text together" if positionals else "is no option; --help lists all options"
        )
        return f"{stray[1]!r} {why}"
    wrong = re.search(r"[Uu]nrecognized arguments?: --()([\w.]+)", message) or re.search(
        r"(?:Group '([\w.]+)' does not accept o|O)ption '([\w.]+)'", message
    )
    if wrong:
        name = ".".join(part for part in wrong.groups() if part)
        return f"there is no option {hyphenated(name)}; {suggest_option(name, names, program)}"
    if typed := re.search(r'Parser key "([\w.]+)":', message):
        wanted = re.findall(r"[Ee]xpected an? (.+?)(?:\. Got value|$)", message, re.MULTILINE)
        value = re.search(r"(?:Given|Got) value: (.*)", message)
        if wanted and value:
            if nested := re.match(r"NestedArg\(key='(\w+)'", value[1]):
                return one_line(f"Unrecognized arguments: --{typed[1]}.{nested[1]}", names, program, positionals)
            if value[1] in ("nan", "inf", "-inf"):
                return f"{hyphenated(typed[1])}: expected a finite number, got {value[1]}"
            kinds = " or ".join(dict.fromkeys(map(plain_type, wanted)))
            if value[1].startswith("Namespace("):
                return f"{hyphenated(typed[1])}: expected {kinds}, got names and values"
            hint = suggest_value(typed[1], value[1])
            return f"{hyphenated(typed[1])}: expected {kinds}, got {shortened(value[1])}{hint}"
    return shortened(" ".join(message.split()), 300)


def plain_type(text: str) -> str:
    """`<class 'int'>` as `int`, `typing.Literal['a', 'b']` as `a or b`; a path is a `str` on the command line."""
    if "PathLike[str]" in text:
        text = re.sub(r"^Union\[(.*)\]$", lambda match: match[1].replace(", ", " | "), text)
        text = text.replace(" | PathLike[str]", "")
    if choices := re.fullmatch(r"(?:typing\.)?Literal\[(.*)\]", text):
        return " or ".join(choice.strip(" '") for choice in choices[1].split(","))
    return re.sub(r"<class '(\w+)'>", r"\1", text).replace("NoneType", "null")


def parser_for(cls: type, defaults: Any, skip: Iterable[str] = (), **arguments: Any) -> Parser:
    """A parser of the fields of a dataclass, nested ones by dotted names, with the values of `defaults` as defaults."""
    parser = Parser(**arguments)
    parser.add_class_arguments(cls, skip=set(skip))
    groups = {
        field.name for field in dataclasses.fields(cls) if dataclasses.is_dataclass(getattr(defaults, field.name))
    }
    parser.sections = groups
    parser.hide(groups)
    values = flat(dataclasses.asdict(defaults))
    parser.set_defaults({name: value for name, value in values.items() if name not in skip})
    return parser


def flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} as {"a.b": 1}; keys that are dotted already stay."""
    items: dict[str, Any] = {}
    for key, value in nested.items():
        items.update(flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {prefix + key: value})
    return items


def load(path: Path) -> dict[str, Any]:
    """The values of a config file, flat.

    Raises:
        UsageError: no such file, not YAML, or not a mapping.
    """
    values = load_yaml(path)
    if not isinstance(values, dict):
        raise UsageError(f"{path}: not a config file (expected names and values)")
    return flat(values)


def to_yaml(config: Any) -> str:
    """A configuration as the text of a config file."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items()}
        return list(value) if isinstance(value, tuple) else value

    return yaml.safe_dump(plain(dataclasses.asdict(config)), sort_keys=False)


def check_limits(config: Any, prefix: str, **limits: int | float) -> None:
    """Raise a `UsageError` if a field of a configuration is more than its limit, or NaN; None passes.

    The limits are far beyond what makes sense: they keep what is computed from a number finite.
    """
    for name, most in limits.items():
        value = getattr(config, name)
        if value is not None and not value <= most:
            option = prefix + (name.replace("_", "-") if prefix.startswith("--") else name)
            shown = "a number of many digits" if isinstance(value, int) and value >= 10**30 else value
            raise UsageError(f"{option} is {shown}; it must be at most {f'{most:,}' if most < 1e15 else f'{most:g}'}")


SHOWN_DIFFERENCES = 3


def difference_to(saved: Path, config: Any, free: tuple[str, ...]) -> str | None:
    """How a configuration differs from one that was saved, in words; None if it does not.

    Names that begin with one of `free` may differ.
    """
    theirs, ours = load(saved), flat(yaml.safe_load(to_yaml(config)))
    changed = {
        name: (theirs.get(name), ours.get(name))
        for name in theirs | ours
        if theirs.get(name) != ours.get(name) and not name.startswith(free)
    }
    if not changed:
        return None
    shown = [
        f"{hyphenated(name)} is {plain_value(old)} there, {plain_value(new)} here"
        for name, (old, new) in list(changed.items())[:SHOWN_DIFFERENCES]
    ]
    more = len(changed) - len(shown)
    return "; ".join([*shown, f"{more} more {'option differs' if more == 1 else 'options differ'}"] if more else shown)


def plain_value(value: Any) -> str:
    """A value of a config file as one would say it."""
    if isinstance(value, list):
        return " ".join(map(str, value)) or "not set"
    return "not set" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
