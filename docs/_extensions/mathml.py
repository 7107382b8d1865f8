"""Formulas as MathML, made at build time: pages need no script and no network to be read.

A command that the converter does not know would stand in the page as it was typed; it is a warning, and so an error.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

log = logging.getLogger(__name__)


def formula(node: nodes.Element, display: str) -> str:
    """MathML of a formula; the warning names it."""
    text = node.astext()
    try:
        found = convert(text, display=display)
    except Exception as fault:  # the converter has many of its own
        log.warning("no formula: %s (%s: %s)", text, type(fault).__name__, fault, location=node)
        return ""
    for unknown in re.findall(r">\s*(\\[A-Za-z]+)", found):
        log.warning("%s is not known in the formula %s", unknown, text, location=node)
    return str(found)


def inline(writer: Any, node: nodes.Element) -> None:
    writer.body.append(formula(node, "inline"))
    raise nodes.SkipNode


def block(writer: Any, node: nodes.Element) -> None:
    writer.body.append(f'<div class="formula">{formula(node, "block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
