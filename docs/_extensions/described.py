"""Reads sections of docstrings as this package writes them: `name : text` describes the name, and text is no type."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

SECTIONS = {"Parameters", "Attributes"}


def describe(app: Sphinx, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Moves the text behind `name :` into a line of its own, where napoleon looks for a description."""
    section, new = "", list[str]()
    for number, line in enumerate(lines):
        if number + 1 < len(lines) and re.fullmatch(r"-{3,}", lines[number + 1]):
            section = line
        match = re.fullmatch(r"([*\w, ]+?) : (.+)", line)
        new += [match[1], f"    {match[2]}"] if match and section in SECTIONS else [line]
    lines[:] = new


def setup(app: Sphinx) -> dict[str, Any]:
    """Is called by Sphinx; comes before napoleon, whose priority is 500."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", describe, priority=400)
    return {"parallel_read_safe": True}
