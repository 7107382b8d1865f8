"""Formulas as MathML, made at build time: pages need no script and no network to be read.

A command that the converter does not know would stand in the page as it was typed; it is a warning, and so an error.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

log = logging.getLogger(__name__)
# Environments that the converter does not know, and those that mean the same to a reader.
SAME = {"{aligned}": "{split}", "{gathered}": "{split}", "{align}": "{align*}"}


def formula(node: nodes.Element, display: str) -> str:
    """MathML of a formula; the warning names it."""
    text = node.astext()
    source = text
    for name, other in SAME.items():
        source = source.replace(name, other)
    try:
        found = str(convert(source, display=display))
        words = [word.strip() for word in ElementTree.fromstring(found).itertext()]
    except Exception as fault:  # the converter has many of its own, and ParseError says that it let something through
        log.warning("no formula: %s (%s: %s)", text, type(fault).__name__, fault, location=node)
        return ""
    for word in words:
        if re.fullmatch(r"\\[A-Za-z]+", word):
            log.warning("%s is not known in the formula %s", word, text, location=node)
    return found


def inline(writer: Any, node: nodes.Element) -> None:
    writer.body.append(formula(node, "inline"))
    raise nodes.SkipNode


def block(writer: Any, node: nodes.Element) -> None:
    writer.body.append(f'<div class="formula">{formula(node, "block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
