"""What a result says, by the ids of its findings and checks: tests compare these and the values in them, and no sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Values = dict[str, Any]


def _all(of: Any) -> Iterator[tuple[str, Values]]:
    """Each once: a doubt is a finding, and a check of the verdict."""
    summary = of if isinstance(of, dict) else of.summary
    found = summary.get("findings", [])
    known = [one["id"] for one in found]
    for one in (*found, *(check for check in summary.get("checks", ()) if check.get("id") not in known)):
        yield one.get("id", ""), one.get("values", {})


def said(of: Any, id: str) -> list[Values]:
    """The values of each finding with this id, of a result or of its summary."""
    return [values for name, values in _all(of) if name == id]


def ids(of: Any) -> set[str]:
    return {name for name, _ in _all(of)}


def clients(of: Any, id: str) -> list[Any]:
    """Those that the one finding with this id names."""
    (values,) = said(of, id)
    return list(values["clients"])
