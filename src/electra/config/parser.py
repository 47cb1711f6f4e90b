"""Parse command lines to options, and format the help text of a command."""

import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from electra.config.files import format_value
from electra.config.options import SWITCH, Option
from electra.config.resolve import make_section_error
from electra.config.suggestions import suggest_option
from electra.errors import UsageError
from electra.external import shorten

COMMON = {
    "--help, -h": "Show this text.",
    "--quiet, -q": "Show warnings and results only.",
    "--verbose, -v": "Show debug messages too, and the module of each message.",
}
"""Flags of every command."""
SHORT = {"-h": "--help", "-q": "--quiet", "-v": "--verbose"}
MIN_WIDTH, MAX_WIDTH = 40, 110
INDENT = 8


@dataclass(frozen=True)
class Parser:
    """The command line of one command."""

    command: str
    options: Mapping[str, Option]
    """By name; of several positional arguments only the last has several values."""
    sections: Mapping[str, str] = field(default_factory=dict)
    """Groups of options: prefix of their dotted names -> help text."""

    def parse(self, words: Sequence[str], complete: bool = True) -> dict[str, Any]:
        """Parse the given options: name -> value.

        Args:
            words: The command line, without `COMMON`.
            complete: Raise an error if a required option is missing.

        Raises:
            UsageError: no such option, a wrong value, or an option without a value.
        """
        given: dict[str, Any] = {}
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if is_value(word) or word == "--":
                values = [word, *take_values(rest)] if word != "--" else rest[:]
                rest = rest if word != "--" else []
                given |= self.parse_positional(values, given)
                continue
            flag, equals, text = word.partition("=")
            option = self.find(flag)
            if equals:
                given[option.name] = self.parse_values(option, [text])
            elif option.many:
                given[option.name] = self.parse_values(option, take_values(rest))
            elif option.type is bool:
                value = bool(rest) and (rest[0].lower() in SWITCH or (option.optional and rest[0].lower() == "null"))
                given[option.name] = option.parse(rest.pop(0)) if value else True
            else:
                value = bool(rest) and not rest[0].startswith("--") and rest[0] not in SHORT
                given[option.name] = self.parse_values(option, [rest.pop(0)] if value else [])
        if complete:
            self.check_required(given)
        return given

    def find(self, flag: str) -> Option:
        """Find the option of a flag. Raises a `UsageError` that names the nearest one if there is none."""
        if not flag.startswith("--"):
            raise UsageError("unknown-option", f"there is no option {shorten(flag)}; --help lists all options")
        name = flag.removeprefix("--").replace("-", "_")
        names = [each.name for each in self.options.values() if not each.positional]
        if name in names:
            return self.options[name]
        if name in self.sections:
            raise make_section_error(name, names)
        negated = self.options.get(name.removeprefix("no_"))
        if negated is not None and negated.type is bool:
            hint = f"use {negated.flag} false"
        else:
            hint = suggest_option(name, names, self.command)
        raise UsageError("unknown-option", f"there is no option {shorten(flag.replace('_', '-'))}; {hint}")

    def parse_positional(self, words: list[str], given: Mapping[str, Any]) -> dict[str, Any]:
        """Parse the next positional arguments from words without a flag."""
        options = [each for each in self.options.values() if each.positional]
        if not words:
            return {}
        if not options:
            raise UsageError("not-option", f"{shorten(words[0])!r} is not an option; --help lists all options")
        left = [option for option in options if option.name not in given]
        if not left:
            raise UsageError(
                "scattered-values",
                f"{shorten(words[0])!r} follows an option that has its one value; name all of {options[-1].flag} together",
            )
        parsed = {}
        for option in left:
            taken, words = (words, []) if option.many else (words[:1], words[1:])
            if taken:
                parsed[option.name] = self.parse_values(option, taken)
        if words:
            raise UsageError("extra-argument", f"extra argument {shorten(words[0])!r}; expected one {left[-1].flag}")
        return parsed

    def parse_values(self, option: Option, words: Sequence[str]) -> Any:
        """Parse the value of an option from its words."""
        if not words:
            raise UsageError("missing-value", f"{option.flag} needs a value: {option.type_name}")
        return tuple(map(option.parse, words)) if option.many else option.parse(words[0])

    def check_required(self, given: Mapping[str, Any]) -> None:
        """Raise a `UsageError` that names the required options that are missing."""
        missing = [each.flag for each in self.options.values() if each.required and each.name not in given]
        if missing:
            verb = "is" if len(missing) == 1 else "are"
            raise UsageError(
                "missing-option",
                f"{' and '.join(missing)} {verb} missing; electra {self.command} --help explains "
                f"{'it' if len(missing) == 1 else 'them'}",
            )

    def format_help(self, description: str, defaults: Mapping[str, Any]) -> str:
        """Format the help text; `defaults` override those of the options."""
        width = max(MIN_WIDTH, min(shutil.get_terminal_size().columns - 2, MAX_WIDTH))
        groups: dict[str, list[Option]] = {"arguments": [], "options": []}
        for option in self.options.values():
            section = option.name.partition(".")[0] if "." in option.name else "options"
            groups.setdefault("arguments" if option.positional else section, []).append(option)
        lines = [
            f"usage: electra {self.command} {' '.join(self.format_usage())}",
            "",
            *textwrap.wrap(description, width),
        ]
        for name, options in groups.items():
            if name == "options" or options:
                about = self.sections.get(name, "")
                lines += ["", f"{name}: {about}".rstrip() if about else f"{name}:"]
            for option in options:
                lines += format_option(option, defaults.get(option.name, option.default), width)
            if name == "options":
                lines += [line for flags, text in COMMON.items() for line in format_entry(flags, text, width)]
        return "\n".join(lines) + "\n"

    def format_usage(self) -> Iterator[str]:
        """Yield the positional arguments and the required options for the usage line."""
        for option in self.options.values():
            if option.positional:
                words = f"{option.flag} ..." if option.many else option.flag
                yield words if option.required else f"[{words}]"
        for option in self.options.values():
            if option.required and not option.positional:
                yield f"{option.flag} {format_metavar(option)}"
        yield "[options]"


def is_value(word: str) -> bool:
    """Whether a word is not a flag; `-` is standard input."""
    return not word.startswith("-") or word == "-"


def take_values(rest: list[str]) -> list[str]:
    """Remove the words up to the next flag from `rest`, and return them."""
    number = next((i for i, word in enumerate(rest) if not is_value(word)), len(rest))
    taken, rest[:] = rest[:number], rest[number:]
    return taken


def format_metavar(option: Option) -> str:
    """Format the name of an option's value, the last part of the option's name; `...` means several values."""
    return option.name.rpartition(".")[2].upper().replace("_", "-") + " ..." * option.many


def format_option(option: Option, default: Any, width: int) -> list[str]:
    """Format the lines of an option in the help text."""
    facts = [f"type: {option.type_name}"]
    if option.required:
        facts.append("required")
    elif default not in ((), [], ""):
        facts.append(f"default: {'null' if default is None else format_value(default)}")
    flag = option.flag
    if option.type is bool:
        flag += " [true|false]"
    elif not option.positional:
        flag += f" {format_metavar(option)}"
    return format_entry(flag, f"{option.help} ({', '.join(facts)})", width)


def format_entry(flag: str, text: str, width: int) -> list[str]:
    """Format a flag, and its text below it."""
    return [f"  {flag}", *textwrap.wrap(text, width, initial_indent=" " * INDENT, subsequent_indent=" " * INDENT)]
