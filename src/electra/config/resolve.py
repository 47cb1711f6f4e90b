"""Resolve the configuration of a command: options override the config file, which overrides the preset."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast, get_type_hints

from electra.config.declarations import get_options, get_sections
from electra.config.files import flatten, load
from electra.config.suggestions import format_flag, suggest_option
from electra.errors import UsageError

Config = TypeVar("Config")


def resolve(
    preset: Config,
    file: Mapping[str, Any],
    overrides: Mapping[str, Any],
    *,
    alternatives: Sequence[str] = (),
    command: str = "",
) -> Config:
    """Build a configuration: `preset`, overridden by `file`, overridden by `overrides`. Does not read files.

    Args:
        preset: Dataclass, possibly with nested dataclasses.
        file: Values of a config file, see `read_config`.
        overrides: Values by name; names of nested fields are dotted, or the value is a mapping or a dataclass.
        alternatives: Mutually exclusive options: if a layer sets one, those of earlier layers become None.
        command: Command, for suggestions in error messages.

    Raises:
        UsageError: no such option, or a wrong value.
    """
    values = flat_fields(preset)
    for layer in (check_options(type(preset), file, command), check_options(type(preset), overrides, command)):
        if any(layer.get(name) is not None for name in alternatives):
            values.update(dict.fromkeys(alternatives))
        values.update(layer)
    return cast(Config, build(type(preset), values))


def read_config(path: Path, config: type, command: str = "") -> dict[str, Any]:
    """Read the values of a config file for a configuration class, with dotted names.

    Raises:
        UsageError: no such file, not YAML, no such option, or a wrong value; the message begins with the path.
    """
    values = load(path)
    try:
        return check_options(config, values, command)
    except UsageError as error:
        raise UsageError(error.code, f"{path}: {error}") from None


def check_options(config: type, given: Mapping[str, Any], command: str = "") -> dict[str, Any]:
    """Check names and types of given options, and return their values with dotted names.

    Raises:
        UsageError: no such option, or a wrong value.
    """
    options, sections = get_options(config), get_sections(config)
    values = {}
    for name, value in flatten({name: to_plain(value) for name, value in given.items()}).items():
        if name in sections:
            if value == {}:
                continue
            raise make_section_error(name, list(options))
        if (parent := name.rpartition(".")[0]) in options:
            raise options[parent].error("names and values")
        if name not in options:
            raise UsageError(
                "unknown-option",
                f"there is no option {format_flag(name)}; {suggest_option(name, list(options), command)}",
            )
        values[name] = options[name].check(value)
    return values


def make_section_error(section: str, names: Sequence[str]) -> UsageError:
    """Build the error for a value of a group of options."""
    first = next(name for name in names if name.startswith(f"{section}."))
    return UsageError(
        "option-group", f"{format_flag(section)} is a group of options; name one of them, such as {format_flag(first)}"
    )


def to_plain(value: Any) -> Any:
    """Convert a path to a string, and a dataclass to a mapping."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return flat_fields(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


def flat_fields(config: Any) -> dict[str, Any]:
    """Return the fields of a configuration; names of nested fields are dotted."""
    return flatten(dataclasses.asdict(config))


def build(config: type, values: Mapping[str, Any], prefix: str = "") -> Any:
    """Build a dataclass, and those nested in it, from values with dotted names."""
    arguments = {}
    for name, kind in get_type_hints(config).items():
        nested = dataclasses.is_dataclass(kind)
        arguments[name] = build(kind, values, f"{prefix}{name}.") if nested else values[prefix + name]
    return config(**arguments)
