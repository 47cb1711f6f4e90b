"""Config files: a subset of YAML that neither expands nor makes objects; writing configurations and comparing them."""

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
"""Bytes of a config file: as many as a command line may have, which can name many files."""
MAX_DEPTH = 20
SHOWN_DIFFERENCES = 3
"""Differing options that a message names."""

TAGS = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map")}
TEXT = "tag:yaml.org,2002:str"
NUMBERS = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}


class PlainLoader(yaml.SafeLoader):
    """PyYAML's loader of null, booleans, numbers, strings, lists and mappings, without aliases, tags and repeated names.

    A few hundred bytes of aliases can expand to gigabytes; tags make objects. A date is a string.
    """

    depth = 0
    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next node, checked before anything is built of it."""
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise make_yaml_error(f"an alias (*{event.anchor}); write out what it stands for", event)
        if getattr(event, "tag", None) is not None:
            raise make_yaml_error(f"a tag ({event.tag}); leave it out", event)
        if self.depth == MAX_DEPTH:
            raise make_yaml_error(f"values nested more than {MAX_DEPTH} deep", event)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        if node is not None:
            check_node(node)
        return node


def check_node(node: yaml.Node) -> None:
    """Raise a `yaml.YAMLError` for a node that no config file needs."""
    if node.tag not in TAGS:
        raise make_yaml_error(f"{node.value!r}, which has a special meaning in YAML; put it into quotes", node)
    if isinstance(node, yaml.ScalarNode):
        if node.tag in NUMBERS and len(node.value) > MAX_DIGITS:
            raise make_yaml_error(f"a number of {len(node.value):,} characters", node)
        if node.tag in NUMBERS and ":" in node.value:
            raise make_yaml_error(f"{node.value}, which YAML takes for a number of base 60; put it into quotes", node)
        if "\0" in node.value or not is_unicode(node.value):
            raise make_yaml_error("a NUL character or half a surrogate pair", node)
    if isinstance(node, yaml.MappingNode):
        names = set()
        for key, _ in node.value:
            if key.tag != TEXT:
                name = repr(key.value) if isinstance(key, yaml.ScalarNode) else "of several values"
                raise make_yaml_error(
                    f"the name {name}, which is not text; names are those of options, like seq_len", key
                )
            if key.value in names:
                raise make_yaml_error(f"the name {key.value!r} a second time", key)
            names.add(key.value)


def make_yaml_error(found: str, node: Any) -> yaml.YAMLError:
    """An error that names the line."""
    return yaml.YAMLError(f"line {node.start_mark.line + 1} has {found}")


def load_yaml(path: Path) -> Any:
    """The content of a YAML file of plain values.

    Raises:
        UsageError: no such file, a file that is too large, or not plain YAML.
    """
    refuse_special_file(path, UsageError)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UsageError(f"{path}: not a config file (more than {MAX_BYTES:,} bytes)")
        return yaml.load(data.decode(), Loader=PlainLoader)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such config file") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a config file (not UTF-8 at byte {error.start:,})") from None
    except (ValueError, yaml.YAMLError) as error:  # ValueError: a number like 0x_
        raise UsageError(f"{path}: not a config file ({one_line(error)})") from None


def flatten(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} as {"a.b": 1}; dotted names stay, an empty mapping is a value."""
    items: dict[str, Any] = {}
    for key, value in nested.items():
        name = f"{prefix}{key}"
        items.update(flatten(value, f"{name}.") if isinstance(value, Mapping) and value else {name: value})
    return items


def load(path: Path) -> dict[str, Any]:
    """The values of a config file, with dotted names.

    Raises:
        UsageError: no such file, not YAML, or not a mapping.
    """
    values = load_yaml(path)
    if not isinstance(values, dict):
        raise UsageError(f"{path}: not a config file (expected names and values)")
    return flatten(values)


def to_yaml(config: Any) -> str:
    """A configuration as the text of a config file."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items()}
        return list(value) if isinstance(value, tuple) else value

    return yaml.safe_dump(plain(dataclasses.asdict(config)), sort_keys=False)


def describe_difference(saved: Path, config: Any, free: tuple[str, ...]) -> str | None:
    """Describe how a configuration differs from a saved one; None if it does not.

    Args:
        saved: Config file.
        config: The configuration.
        free: Beginnings of the names of options that may differ.
    """
    theirs, ours = load(saved), flatten(yaml.safe_load(to_yaml(config)))
    changed = {
        name: (theirs.get(name), ours.get(name))
        for name in theirs | ours
        if theirs.get(name) != ours.get(name) and not name.startswith(free)
    }
    if not changed:
        return None
    shown = [
        f"{format_flag(name)} is {format_value(old)} there, {format_value(new)} here"
        for name, (old, new) in list(changed.items())[:SHOWN_DIFFERENCES]
    ]
    more = len(changed) - len(shown)
    return "; ".join([*shown, f"{more} more {'option differs' if more == 1 else 'options differ'}"] if more else shown)


def format_value(value: Any) -> str:
    """A value of a config file as it is written on the command line."""
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value)) or "not set"
    return "not set" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
