"""Writes a graph's chosen edges for other programs: as GraphML (networkx, igraph, Cytoscape, Gephi), or as a table."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from ..errors import JobError
from .plain import Record, real

HEAD = ("to", "source", "mean", "pip", "mcse", "rhat")  # of an edge: its ends, standardised effect, PIP, the PIP's error, R-hat
NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # characters that no XML may hold

Row = list[str | float]


def edges(summary: Record) -> list[Row]:
    """Returns the edges of the false discovery rate's set, as summary.json has them, in the order of `HEAD`; NaN if unknown.

    Raises
    ------
    JobError
        The result is no graph, or its chains disagree, so that there is no graph over all of them.
    """
    if "graph" not in summary:
        raise JobError('the result has no graph: model.kind = "mrf" or "sem" gives one')
    if "by_mode" in summary:
        raise JobError(
            "the chains disagree, and there is no graph over all of them: by_mode in summary.json has one of each mode"
        )
    return [[str(row["to"]), str(row["source"]), *(real(row.get(key)) for key in HEAD[2:])] for row in summary["graph"]["edges"]]


def graphml(summary: Record) -> bytes:
    """Returns all nodes and the chosen edges, directed, as GraphML; names of nodes are their `label`."""
    chosen = edges(summary)
    root = ElementTree.Element("graphml", xmlns=NAMESPACE)
    keys = [("node", "label", "string"), *(("edge", name, "double") for name in HEAD[2:])]
    for about, name, kind in keys:
        ElementTree.SubElement(root, "key", {"id": name, "for": about, "attr.name": name, "attr.type": kind})
    graph = ElementTree.SubElement(root, "graph", edgedefault="directed")
    place = {str(name): f"n{i}" for i, name in enumerate(summary["graph"]["nodes"])}
    for name, label in place.items():
        node = ElementTree.SubElement(graph, "node", id=label)
        ElementTree.SubElement(node, "data", key="label").text = NO_XML.sub("\ufffd", name)
    for to, source, *numbers in chosen:
        edge = ElementTree.SubElement(graph, "edge", source=place[str(source)], target=place[str(to)])
        for name, value in zip(HEAD[2:], numbers):
            if value == value:
                ElementTree.SubElement(edge, "data", key=name).text = repr(value)
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"
