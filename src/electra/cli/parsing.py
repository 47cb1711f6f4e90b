"""Parsing of the command line: the options of a command, its help text, and checks of its words."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from electra.cli.table import COMMANDS
from electra.config.options import lookup

if TYPE_CHECKING:
    from electra.config.parser import Parser


def build_parser(name: str) -> "Parser":
    """The command line of a command: parameters of its function, then fields of its configuration."""
    import dataclasses

    from electra import commands
    from electra.config.declarations import get_function_options, get_options, get_sections
    from electra.config.parser import Parser

    command = COMMANDS[name]
    options = get_function_options(getattr(commands, name.replace("-", "_")))
    sections: dict[str, str] = {}
    if command.config:
        config = lookup(command.config)()
        options = options | {key: option for key, option in get_options(config).items() if key not in options}
        sections = get_sections(config)
    for key, changes in command.changes.items():
        options[key] = dataclasses.replace(options[key], **changes)
    return Parser(name, options, sections)


def format_help(name: str, words: Sequence[str]) -> str:
    """The help text of a command; that of pre-training has the defaults of the preset that is given."""
    from electra.errors import UsageError

    parser = build_parser(name)
    given: dict[str, Any] = {}
    with suppress(UsageError):
        given = parser.parse(words, complete=False)
    description, defaults = COMMANDS[name].summary, {}
    if name == "pretrain":
        from electra.config.resolve import flat_fields
        from electra.presets import get_preset

        preset = get_preset(given.get("preset") or "small")
        defaults = flat_fields(preset)
        description += (
            " Run again with the same --out, it resumes. Values come from the preset, then from the file --config, then "
            f"from the options, each overriding the one before. The defaults shown are those of the preset {preset.preset}."
        )
    return parser.format_help(description, defaults)


def check_command(name: str) -> None:
    """Raise a `UsageError` that names the nearest command if there is none of this name."""
    if name not in COMMANDS:
        import difflib

        from electra.errors import UsageError

        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(COMMANDS)}"
        raise UsageError("unknown-command", f"there is no command {name!r}; {hint}")


def take_flags(words: list[str]) -> set[str]:
    """Remove the flags that every command has from its words, and return their long names."""
    short = {"-h": "--help", "-q": "--quiet", "-v": "--verbose"}
    known = {**short, **{flag: flag for flag in short.values()}}
    end = words.index("--") if "--" in words else len(words)
    flags = {known[word] for word in words[:end] if word in known}
    words[:end] = [word for word in words[:end] if word not in known]
    return flags


def check_input_words(name: str, words: Sequence[str]) -> None:
    """Raise a `UsageError` for a text among the words of a command that takes the name of a file, such as `predict`."""
    import shlex

    from electra.errors import UsageError

    for before, word in pairs(words):
        source = word.removeprefix("--input=")
        named = source != word or before == "--input"
        is_text = named and not (Path(source).suffix or Path(source).exists() or source.startswith(("-", "hf://")))
        is_value = before.startswith("--") and "=" not in before
        if is_text or not (is_value or word.startswith("-")):
            code, problem = ("text-as-file", "is not a file") if named else ("text-as-option", "is not an option")
            raise UsageError(
                code,
                f"{shlex.quote(source)} {problem}; texts are read from a file, --input FILE, or from standard input: "
                f"echo {shlex.quote(source)} | electra {name} --model MODEL --input -",
            )


def pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each word with the one before it."""
    return zip(["", *words], words, strict=False)
