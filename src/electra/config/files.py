"""Config files: reading a safe subset of YAML, writing configurations and comparing them."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from electra.config.options import MAX_DIGITS
from electra.config.suggestions import format_flag
from electra.errors import UsageError
from electra.external import is_unicode, one_line, refuse_special_file

MAX_BYTES = 2 << 20
"""Maximum bytes of a config file: the limit of a command line, which can name many files."""
MAX_DEPTH = 20
SHOWN_DIFFERENCES = 3
"""Number of differing options in a message."""

TAGS = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map")}
TEXT = "tag:yaml.org,2002:str"
NUMBERS = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}


class UnsupportedYamlError(yaml.YAMLError):
    """YAML that config files do not support; its code becomes that of the `UsageError`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class PlainLoader(yaml.SafeLoader):
    """PyYAML loader of null, booleans, numbers, strings, lists and mappings, without aliases, tags and duplicate names.

    A few hundred bytes of aliases can expand to gigabytes, and tags create objects. A date is a string.
    """

    depth = 0
    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose the next node, and check it before values are built from it."""
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise make_yaml_error("yaml-alias", f"an alias (*{event.anchor}); write out its value", event)
        if getattr(event, "tag", None) is not None:
            raise make_yaml_error("yaml-tag", f"a tag ({event.tag}); remove it", event)
        if self.depth == MAX_DEPTH:
            raise make_yaml_error("too-deep", f"values nested more than {MAX_DEPTH} deep", event)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        if node is not None:
            check_node(node)
        return node


def check_node(node: yaml.Node) -> None:
    """Raise a `yaml.YAMLError` for a node that config files do not support."""
    if node.tag not in TAGS:
        raise make_yaml_error("special-value", f"{node.value!r}, which has a special meaning in YAML; quote it", node)
    if isinstance(node, yaml.ScalarNode):
        if node.tag in NUMBERS and len(node.value) > MAX_DIGITS:
            raise make_yaml_error("too-many-digits", f"a number of {len(node.value):,} characters", node)
        if node.tag in NUMBERS and ":" in node.value:
            raise make_yaml_error("base-60", f"{node.value}, which YAML reads as a base-60 number; quote it", node)
        if "\0" in node.value:
            raise make_yaml_error("nul-character", "a NUL character", node)
        if not is_unicode(node.value):
            raise make_yaml_error("half-surrogate", "half a surrogate pair, which is not a character", node)
    if isinstance(node, yaml.MappingNode):
        names = set()
        for key, _ in node.value:
            if key.tag != TEXT:
                name = repr(key.value) if isinstance(key, yaml.ScalarNode) else "of several values"
                raise make_yaml_error(
                    "name-not-text",
                    f"the name {name}, which is not text; names are those of options, like seq_len",
                    key,
                )
            if key.value in names:
                raise make_yaml_error("repeated-name", f"the name {key.value!r} a second time", key)
            names.add(key.value)


def make_yaml_error(code: str, found: str, node: Any) -> UnsupportedYamlError:
    """Build an error that names the line."""
    return UnsupportedYamlError(code, f"line {node.start_mark.line + 1} has {found}")


def load_yaml(path: Path) -> Any:
    """Load a YAML file of plain values.

    Raises:
        UsageError: no such file, too large, or not plain YAML.
    """
    refuse_special_file(path, UsageError)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UsageError("too-large", f"{path}: not a config file (more than {MAX_BYTES:,} bytes)")
        return yaml.load(data.decode(), Loader=PlainLoader)
    except FileNotFoundError:
        raise UsageError("missing", f"{path}: no such config file") from None
    except OSError as error:
        raise UsageError("unreadable", f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise UsageError("not-utf8", f"{path}: not a config file (not UTF-8 at byte {error.start:,})") from None
    except (ValueError, yaml.YAMLError) as error:  # ValueError: a number like 0x_
        code = error.code if isinstance(error, UnsupportedYamlError) else "not-yaml"
        raise UsageError(code, f"{path}: not a config file ({describe_yaml_error(error)})") from None


def describe_yaml_error(error: Exception) -> str:
    """Return the line and the problem of an error, without an excerpt of the file."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return one_line(error)


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Convert {"a": {"b": 1}} to {"a.b": 1}; dotted names are unchanged, an empty mapping is a value."""
    items: dict[str, Any] = {}
    for key, value in nested.items():
        name = f"{prefix}{key}"
        items.update(flatten(value, f"{name}.") if isinstance(value, Mapping) and value else {name: value})
    return items


def load(path: Path) -> dict[str, Any]:
    """Load the values of a config file, with dotted names.

    Raises:
        UsageError: no such file, not YAML, or not a mapping.
    """
    values = load_yaml(path)
    if not isinstance(values, dict):
        raise UsageError("not-mapping", f"{path}: not a config file (expected names and values)")
    return flatten(values)


def to_yaml(config: Any) -> str:
    """Format a configuration as a config file."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items()}
        return list(value) if isinstance(value, tuple) else value

    return yaml.safe_dump(plain(dataclasses.asdict(config)), sort_keys=False)


def describe_difference(saved: Path, config: Any, free: tuple[str, ...]) -> str | None:
    """Describe how a configuration differs from a saved one; None if it does not.

    An option that the file does not have was added since; its default is what was done before.

    Args:
        saved: Config file of the saved configuration.
        config: The configuration.
        free: Prefixes of the names of options that may differ.
    """
    defaults, new = (flatten(yaml.safe_load(to_yaml(each))) for each in (type(config)(), config))
    old = defaults | load(saved)
    changed = {
        name: (old.get(name), new.get(name))
        for name in old | new
        if old.get(name) != new.get(name) and not name.startswith(free)
    }
    if not changed:
        return None
    shown = [
        f"{format_flag(name)} is {format_value(before)} there, {format_value(after)} here"
        for name, (before, after) in list(changed.items())[:SHOWN_DIFFERENCES]
    ]
    more = len(changed) - len(shown)
    return "; ".join([*shown, f"{more} more {'option differs' if more == 1 else 'options differ'}"] if more else shown)


def format_value(value: Any) -> str:
    """Format a value of a config file as on the command line."""
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value)) or "not set"
    return "not set" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
