"""Defines types for the content of JSON and TOML: one for texts that others wrote, before each value is looked at, and one for
after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
Record = Mapping[str, Any]  # what a JSON file or message holds under its names, where the reader knows which and of what type
