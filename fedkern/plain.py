"""What JSON and TOML hold, as a type: of texts that others wrote, before each value is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
