"""Reads the posterior that a run has written while it waits for clients of whom it has nothing yet: that of all others."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ..printing import align_columns, listed

FILE = "so-far.json"  # in the server's folder


class SoFar(NamedTuple):
    """Holds a posterior without some clients."""

    without: list[str]  # their names
    parameters: Mapping[str, Mapping[str, float]]  # name -> mean, sd, q05, q95

    def describe(self) -> Iterator[str]:
        """Yields it as a table."""
        yield ""
        yield f"posterior so far, without {listed(self.without, 3)}:"
        names = [name for name in self.parameters if not name.split("[")[0].endswith("_std")]
        columns = ("mean", "sd", "q05", "q95")
        rows = [(name, *(f"{self.parameters[name][column]:.4g}" for column in columns)) for name in names]
        yield from align_columns([("", *columns), *rows])


def read(folder: Path) -> SoFar | None:
    """Reads it from a run's folder; None where there is none, all clients are in it by now, or it is half written."""
    try:
        content = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return SoFar(content["without"], content["parameters"]) if content["without"] else None
    except (OSError, ValueError, KeyError):
        return None
