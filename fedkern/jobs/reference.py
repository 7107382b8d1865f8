"""Writes every key of a file with its type, default and meaning, as a commented TOML file, from the sections that check it."""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ..sections import marked_keys
from .keys import Section

Default = Callable[[FieldInfo, str, str], tuple[str, str]]
WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}


def text(
    head: str, config: type[Section], default: Default, kinds: Mapping[str, str] | None = None, *, expert: bool = False
) -> str:
    """Returns the whole file, without keys for experts; or with `expert` these alone.

    Parameters
    ----------
    head : comments before the first table
    config : the model of the file
    default : a key's field, the path of its table and its name -> its default as TOML, and what to say of other defaults
    kinds : "section.key" -> its type in words, where its annotation does not tell
    """
    parts, marked = [head], marked_keys(config, "expert")
    for path, section in tables(config):
        lines = [f"[{path}]"]
        for key, field in section.model_fields.items():
            if table_in(field.annotation) is None and (f"{path}.{key}" in marked) == expert:
                value, differs = default(field, path, key)
                kind = (kinds or {}).get(f"{path}.{key}") or kind_of(field.annotation)
                lines.append(f"# {key} = {value}".ljust(32) + f"# {kind}: {field.description}{differs}")
        if len(lines) > 1 or not expert:
            parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def tables(section: type[Section], before: str = "") -> Iterator[tuple[str, type[Section]]]:
    """Yields the tables in a table, each before those in it, with its path. A name that the user chooses is NAME."""
    for name, field in section.model_fields.items():
        if (inner := table_in(field.annotation)) is not None:
            path = f"{before}{name}" + (".NAME" if get_origin(field.annotation) is dict else "")
            yield path, inner
            yield from tables(inner, f"{path}.")


def table_in(annotation: object) -> type[Section] | None:
    """Returns the section of a key's type, or of the names in the user's table; None if the key is no table."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((section for argument in get_args(annotation) if (section := table_in(argument)) is not None), None)


def toml(value: object) -> str:
    """Returns a default as TOML; dots where the key has none."""
    return "..." if value in (PydanticUndefined, None) else json.dumps(value)


def kind_of(annotation: Any) -> str:
    """Returns the type of a key in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return kind_of(arguments[0])
    if origin is Literal:
        return " | ".join(json.dumps(value) for value in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(kind_of(a) for a in arguments if a is not type(None)))
    if origin is list:
        return f"list of {kind_of(arguments[0]).removesuffix('s')}s"
    if origin is dict:
        if arguments[1] is Any:
            return "table"
        return f"table of {kind_of(arguments[1]).removesuffix('s')}s"
    return WORDS.get(annotation, "table")
