"""Pieces of an HTML page: sections, tables and numbers as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape as quoted
from typing import Any

from ..printing import several
from . import plots


def escape(text: str) -> str:
    """A text inside of a page: no markup, and nothing that turns or hides what stands beside it."""
    return quoted(several(text))


def section(title: str, body: str) -> str:
    """A box with a title; nothing where the body is empty."""
    return f"<section><h2>{title}</h2>{body}</section>" if body else ""


def figure(title: str, made: Any, text: str, more: str = "") -> str:
    """A box with a figure and a text under it; nothing without a figure."""
    if made is None:
        return ""
    return f"<section><h2>{title}</h2><div class=figure>{plots.svg(made)}</div><p class=muted>{text}</p>{more}</section>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts."""
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=scroll><table><tr>{''.join(f'<th>{escape(h)}</th>' for h in head)}</tr>{body}</table></div>"


def number(value: Any) -> str:
    """Four digits, thousands apart."""
    if isinstance(value, float):
        return "∞" if math.isinf(value) else f"{value:.4g}".replace("-", "−")
    return f"{value:,}" if isinstance(value, int) else str(value)
