"""Derive options with help texts from the fields of a dataclass or the parameters of a function."""

import ast
import dataclasses
import inspect
import os
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from electra.config.options import Option

PLAIN = (str, bool, int, float)


@cache
def get_options(config: type) -> dict[str, Option]:
    """Return the fields of a dataclass as options: name -> option; names of nested fields are dotted.

    The docstring under a field is its help text. Fields defined by `electra.config.options.fixed_field` are omitted.
    """
    types, help_texts = get_type_hints(config), parse_field_docstrings(config)
    options: dict[str, Option] = {}
    for field in dataclasses.fields(config):
        if not field.metadata.get("option", True):
            continue
        if dataclasses.is_dataclass(types[field.name]):
            for option in get_options(types[field.name]).values():
                name = f"{field.name}.{option.name}"
                options[name] = dataclasses.replace(option, name=name)
            continue
        option = build_option(field.name, types[field.name])
        options[field.name] = dataclasses.replace(
            option,
            choices=field.metadata.get("choices", option.choices),
            default=None if field.default is dataclasses.MISSING else field.default,
            help=help_texts.get(field.name, ""),
        )
    return options


@cache
def get_sections(config: type) -> dict[str, str]:
    """Return the nested dataclasses of a dataclass: field name -> help text."""
    types, help_texts = get_type_hints(config), parse_field_docstrings(config)
    return {name: help_texts.get(name, "") for name, kind in types.items() if dataclasses.is_dataclass(kind)}


def get_function_options(function: Callable[..., Any]) -> dict[str, Option]:
    """Return the parameters of a function as options: name -> option; those that are not keyword-only are positional.

    Parameters of other types than `build_option` has, such as callbacks, are for Python only and are left out. The help texts
    are the `Args` section of its docstring.
    """
    types, help_texts = get_type_hints(function), parse_argument_docstrings(function)
    options = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD or not is_option(types[name]):
            continue
        required = parameter.default is parameter.empty
        options[name] = dataclasses.replace(
            build_option(name, types[name]),
            default=None if required else parameter.default,
            required=required,
            positional=parameter.kind is parameter.POSITIONAL_OR_KEYWORD,
            help=help_texts.get(name, ""),
        )
    return options


def build_option(name: str, annotation: Any) -> Option:
    """An option of a type: one of `PLAIN` or a Literal, a tuple or iterable of these, or None besides. A path is a str."""
    kinds, flat = get_members(annotation), get_flat_members(annotation)
    literals = [value for kind in flat if get_origin(kind) is Literal for value in get_args(kind)]
    plain = str if literals or any(map(is_path, flat)) else next(kind for kind in PLAIN if kind in flat)
    return Option(
        name,
        plain,
        optional=NoneType in kinds,
        many=any(map(is_series, kinds)),
        choices=(lambda: literals) if literals else None,
    )


def is_option(annotation: Any) -> bool:
    """Whether `build_option` has an option of this type."""
    return any(each in PLAIN or is_path(each) or get_origin(each) is Literal for each in get_flat_members(annotation))


def get_flat_members(annotation: Any) -> list[Any]:
    """The members of a union, and in the place of a series those of its elements."""
    kinds = get_members(annotation)
    return [each for kind in kinds for each in (get_members(get_args(kind)[0]) if is_series(kind) else [kind])]


def get_members(annotation: Any) -> Sequence[Any]:
    """The members of a union; any other type alone."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def is_series(kind: Any) -> bool:
    """Whether a type holds several values."""
    return get_origin(kind) in (tuple, Iterable)


def is_path(kind: Any) -> bool:
    """Whether a type is `os.PathLike[str]`."""
    return get_origin(kind) is os.PathLike


def parse_field_docstrings(config: type) -> dict[str, str]:
    """Parse the docstrings under the fields of a dataclass and those it inherits: name -> text in one line."""
    body = ast.parse(textwrap.dedent(inspect.getsource(config))).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for base in config.__bases__:
        found |= parse_field_docstrings(base) if dataclasses.is_dataclass(base) else {}
    for statement, following in pairwise(body.body):
        if isinstance(statement, ast.AnnAssign) and isinstance(following, ast.Expr):
            name, text = statement.target, following.value
            if isinstance(name, ast.Name) and isinstance(text, ast.Constant) and isinstance(text.value, str):
                found[name.id] = " ".join(text.value.split())
    return found


def parse_argument_docstrings(function: Callable[..., Any]) -> dict[str, str]:
    """Parse the `Args` section of a docstring: name -> text in one line."""
    section = (inspect.getdoc(function) or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if line.startswith("     "):
            found[name] += " " + line.strip()
        else:
            name, _, text = line.strip().partition(": ")
            found[name] = text
    return found
