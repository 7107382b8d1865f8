"""An HTML page and its pieces: sections, tables and numbers as text."""

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


def document(title: str, head: str, sections: Iterable[str]) -> str:
    """The whole page."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>\n"
        + head
        + "\n".join(sections)
        + "\n</main></body></html>\n"
    )


def section(title: str, body: str) -> str:
    """A box with a title; nothing where the body is empty."""
    return f"<section><h2>{title}</h2>{body}</section>" if body else ""


def figure(title: str, drawn: plots.Figure | None, text: str, more: str = "") -> str:
    """A box with a figure and a text under it; nothing without a figure."""
    if drawn is None:
        return ""
    return f"<section><h2>{title}</h2><div class=figure>{plots.svg(drawn)}</div><p class=muted>{text}</p>{more}</section>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts."""
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=scroll><table><tr>{''.join(f'<th>{escape(h)}</th>' for h in head)}</tr>{body}</table></div>"


def number(value: Any) -> str:
    """Four digits, thousands apart."""
    if isinstance(value, float):
        return "∞" if math.isinf(value) else f"{value:.4g}".replace("-", "−")
    return f"{value:,}" if isinstance(value, int) else str(value)


STYLE = """
:root{color-scheme:light;--ink:#1f2933;--muted:#6b7785;--line:#e4e7eb;--blue:#2364aa}
body{margin:0;background:#f5f6f8;color:var(--ink);font:15px/1.55 system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:880px;margin:0 auto;padding:2.2rem 1.2rem 4rem}
h1{font-size:1.65rem;margin:0;letter-spacing:-.01em}h2{font-size:1.05rem;margin:0 0 .7rem}
h1 i{font:600 .8rem/1 system-ui,sans-serif;vertical-align:middle;padding:.32em .7em;border-radius:2em;letter-spacing:0}
.good{background:#dff3e4;color:#1c6b36}.bad{background:#fbe3dd;color:#9a3412}
section{background:#fff;border:1px solid var(--line);border-radius:10px;padding:1.2rem 1.4rem;margin-top:1.1rem}
p{margin:.4rem 0}.muted{color:var(--muted);font-size:.9rem}
.note{border-left:3px solid var(--blue);background:#f2f6fb;padding:.55rem .9rem;margin-top:.9rem;font-size:.93rem}
.tiles{display:flex;flex-wrap:wrap;gap:.7rem;margin-top:1rem}
.tile{background:#fff;border:1px solid var(--line);border-radius:10px;padding:.65rem 1rem;min-width:7.2rem}
.tile b{display:block;font-size:1.35rem;font-variant-numeric:tabular-nums}.tile span{color:var(--muted);font-size:.82rem}
.figure svg{width:100%;height:auto;display:block}.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.87rem;font-variant-numeric:tabular-nums}
th{font-weight:600;color:var(--muted);text-align:left;white-space:nowrap}
th,td{padding:.36rem .9rem .36rem 0;border-bottom:1px solid var(--line);vertical-align:top}tr:last-child td{border-bottom:0}
details{margin-top:.8rem}summary{cursor:pointer;color:var(--blue)}pre{overflow-x:auto;font-size:.8rem}
code{font-size:.8rem;word-break:break-all}
@media print{body{background:#fff}section{break-inside:avoid;border:0;padding:0}}
"""
