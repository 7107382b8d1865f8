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
MATHML = "{http://www.w3.org/1998/Math/MathML}"
PRIMES = ("\N{PRIME}", "\N{DOUBLE PRIME}", "\N{TRIPLE PRIME}")
MO, ROWS = f"{MATHML}mo", [MATHML + name for name in ("math", "mrow", "mtd", "msqrt", "mstyle")]
SCRIPTS = [MATHML + name for name in ("msub", "msup", "msubsup", "munder")]
SIGNS, CLOSING = ("+", "-", "\N{MINUS SIGN}", "\N{PLUS-MINUS SIGN}"), (")", "]", "}", "!", *PRIMES)
FUNCTIONS = ("log", "exp", "sin", "cos", "min", "max", "det", "arg", "tr", "diag", "dim", "Pr", "var", "sup", "inf", "lim")
ElementTree.register_namespace("", MATHML.strip("{}"))
# Environments that the converter does not know, and those that mean the same to a reader.
SAME = {"{aligned}": "{split}", "{gathered}": "{split}", "{align}": "{align*}"}
# Operators of two signs, which the converter would draw apart: command -> a letter on the way, operator.
TOGETHER = {r"\mathrel{+}=": ("\ue000", "+="), r"\mathrel{-}=": ("\ue001", "-=")}


def formula(node: nodes.Element, display: str) -> str:
    """MathML of a formula; the warning names it."""
    text = node.astext()
    source = text
    for name, other in SAME.items():
        source = source.replace(name, other)
    for command, (letter, _) in TOGETHER.items():
        source = source.replace(command, f"{letter} ")
    try:
        tree = ElementTree.fromstring(convert(source, display=display))
    except Exception as fault:  # the converter has many of its own, and ParseError says that it let something through
        log.warning("no formula: %s (%s: %s)", text, type(fault).__name__, fault, location=node)
        return ""
    for word in tree.itertext():
        if re.fullmatch(r"\\[A-Za-z]+", word.strip()):
            log.warning("%s is not known in the formula %s", word.strip(), text, location=node)
    for element in list(tree.iter()):
        if element.text == "~":  # what the converter makes of \sim
            element.tag, element.text = MO, "\N{TILDE OPERATOR}"
        for letter, operator in TOGETHER.values():
            if element.text == letter:
                element.tag, element.text = MO, operator
        lower_prime(element)
        space(element)
    return ElementTree.tostring(tree, encoding="unicode")


def space(row: ElementTree.Element) -> None:
    """Thin spaces about a function's name, none after a sign, none about a vertical bar."""
    if row.tag not in ROWS:
        return
    for at in range(len(row) - 1, -1, -1):
        one, before = row[at], row[at - 1] if at else None
        if one.tag == MO:
            if one.text in SIGNS and (before is None or (before.tag == MO and before.text not in CLOSING)):
                one.set("form", "prefix")
            if one.text == "|":
                one.attrib.update(lspace="0", rspace="0")
            if one.attrib.pop("minsize", None):  # of \big(, which some browsers hang too low
                one.attrib.update(stretchy="false", mathsize="120%")
        elif before is not None and before.tag != MO and (is_function(before) or is_function(one)):
            row.insert(at, ElementTree.Element(f"{MATHML}mspace", width="0.17em"))


def is_function(element: ElementTree.Element) -> bool:
    """log, and log with an index or an exponent."""
    name = element[0] if element.tag in SCRIPTS else element
    return name.tag == f"{MATHML}mi" and name.text in FUNCTIONS


def lower_prime(element: ElementTree.Element) -> None:
    """x' with the prime on the line: its glyph is high and small by itself, and as an exponent it can hardly be seen."""
    name = element.tag.removeprefix(MATHML)
    if name in ("msup", "msubsup") and "".join(element[-1].itertext()).strip() in PRIMES:
        base, *below, prime = element
        if below:
            inner = ElementTree.Element(f"{MATHML}msub")
            inner.extend((base, *below))
            base = inner
        mark = ElementTree.Element(MO, lspace="0", rspace="0.1em")
        mark.text = "".join(prime.itertext()).strip()
        element.tag = f"{MATHML}mrow"
        element[:] = [base, mark]


def inline(writer: Any, node: nodes.Element) -> None:
    writer.body.append(formula(node, "inline"))
    raise nodes.SkipNode


def block(writer: Any, node: nodes.Element) -> None:
    writer.body.append(f'<div class="formula">{formula(node, "block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", inline_renderers=(inline, None), block_renderers=(block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
