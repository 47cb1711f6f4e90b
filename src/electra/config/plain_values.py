"""Names and values of options, out of files, command lines and Python: plain ones; nothing that grows or makes objects."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonargparse
import yaml

from electra.config.hints import hyphenated
from electra.errors import UsageError
from electra.external import is_unicode, printable, refuse_special_file, shortened

MAX_BYTES = 2 << 20
"""Of a config file: as much as a command line can hold, which may name many files."""
MAX_DEPTH = 20
MAX_DIGITS = 400
"""Characters of a number; the largest float64 has 309 digits."""

LARGEST_INT = 2**53
"""Whole numbers up to here are exact in JSON, in float64 and as a tensor's sizes."""
CLASS_KEYS = {"class_path", "init_args", "dict_kwargs", "__path__"}
"""Keys by which jsonargparse would import and build any class that is named."""

TAGS = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "seq", "map")}
TEXT = "tag:yaml.org,2002:str"
NUMBERS = {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}


class PlainLoader(yaml.SafeLoader):
    """PyYAML's loader of null, booleans, numbers, text, lists and mappings, without aliases, tags and repeated names.

    A few hundred bytes of aliases can stand for gigabytes; tags make objects. A date is text.
    """

    depth = 0
    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """The next node, of which nothing has been built yet."""
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise refusal(f"an alias (*{event.anchor}); write out what it stands for", event)
        if getattr(event, "tag", None) is not None:
            raise refusal(f"a tag ({event.tag}); leave it out", event)
        if self.depth == MAX_DEPTH:
            raise refusal(f"values nested more than {MAX_DEPTH} deep", event)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        if node is not None:
            check_node(node)
        return node


def check_node(node: yaml.Node) -> None:
    """Raise a `yaml.YAMLError` for a node that no config file needs."""
    if node.tag not in TAGS:
        raise refusal(f"{node.value!r}, which has a special meaning in YAML; put it into quotes", node)
    if isinstance(node, yaml.ScalarNode):
        if node.tag in NUMBERS and len(node.value) > MAX_DIGITS:
            raise refusal(f"a number of {len(node.value):,} characters", node)
        if node.tag in NUMBERS and ":" in node.value:
            raise refusal(f"{node.value}, which YAML takes for a number of base 60; put it into quotes", node)
        if "\0" in node.value or any("\ud800" <= char <= "\udfff" for char in node.value):
            raise refusal("a NUL character or half a surrogate pair", node)
    if isinstance(node, yaml.MappingNode):
        names = set()
        for key, _ in node.value:
            if key.tag != TEXT:
                name = repr(key.value) if isinstance(key, yaml.ScalarNode) else "of several values"
                raise refusal(f"the name {name}, which is not text; names are those of options, like seq_len", key)
            if key.value in names:
                raise refusal(f"the name {key.value!r} a second time", key)
            names.add(key.value)


def refusal(what: str, found: Any) -> yaml.YAMLError:
    """An error that names the line."""
    return yaml.YAMLError(f"line {found.start_mark.line + 1} has {what}")


def parse_value(text: str) -> Any:
    """The value of an option, as jsonargparse reads it, if it is a plain one.

    Raises:
        yaml.YAMLError: it is not.
    """
    yaml.compose(text, Loader=PlainLoader)
    return jsonargparse.get_loader("yaml")(text)


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
        raise UsageError(f"{path}: not a config file ({' '.join(str(error).split())})") from None


def check_names(given: Mapping[str, Any]) -> None:
    """Raise a `UsageError` for names that are no text, and those by which classes would be imported."""
    for name, value in given.items():
        if not isinstance(name, str):
            raise UsageError(f"the name {name!r} is not text; names are those of options, like seq_len")
        if CLASS_KEYS & set(name.split(".")):
            raise UsageError(f"there is no option {hyphenated(name)}; --help lists all options")
        if isinstance(value, Mapping):
            check_names(value)


def is_limit(name: str, value: float) -> bool:
    """Whether infinity has a meaning for an option: no clipping, or always and never an answer."""
    return not math.isnan(value) and name.rpartition(".")[2] in ("clip_norm", "null_threshold")


def check_values(values: Mapping[str, Any]) -> None:
    """Raise a `UsageError` for values that no option can have, whatever it means."""
    for name, value in values.items():
        for each in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(each, str):
                problem = "a NUL character" if "\0" in each else "" if is_unicode(each) else "bytes that are not UTF-8"
                if problem:
                    raise UsageError(f"{hyphenated(name)}: {shortened(printable(each))} holds {problem}")
            elif isinstance(each, float) and not math.isfinite(each) and not is_limit(name, each):
                raise UsageError(f"{hyphenated(name)}: expected a finite number, got {each}")
            elif isinstance(each, int) and abs(each) > LARGEST_INT:
                raise UsageError(
                    f"{hyphenated(name)}: expected a number of at most {LARGEST_INT:,} (2^53), got a larger one"
                )
