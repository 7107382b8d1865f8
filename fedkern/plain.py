"""Defines types for the content of JSON and TOML: one for texts that others wrote, before each value is looked at, and one for
after. Writes tables as TOML, which Python only reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .printing import toml_key, toml_text

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
Record = Mapping[str, Any]  # what a JSON file or message holds under its names, where the reader knows which and of what type


def to_toml(table: Mapping[str, Any], above: str = "") -> str:
    """Returns tables as TOML."""
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = [f"{toml_key(key)} = {inline(value)}" for key, value in plain.items()]
    for key in (key for key in table if key not in plain):
        path = f"{above}{toml_key(key)}"
        lines += [f"[{path}]", to_toml(table[key], f"{path}.")]
    return "\n".join(line for line in lines if line)


def inline(value: Any) -> str:
    """Returns a value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{toml_key(key)} = {inline(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(inline, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return toml_text(value) if isinstance(value, str) else str(value)  # repr of a float: inf and nan are TOML's words, too
