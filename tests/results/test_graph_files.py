"""A graph's edges for other programs, and the numbers that a result has of them."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fedkern.data.simulate.federations import Settings, simulate
from fedkern.errors import JobError
from fedkern.results import selection
from fedkern.results.result import Result
from support.command import Ended

EDGE = {"to": "a", "source": "b <&\x01>", "mean": -0.25, "pip": 0.97, "mcse": 0.001, "rhat": "nan"}
SUMMARY: dict[str, Any] = {
    "graph": {"nodes": ["a", "b <&\x01>", "c"], "edges": [EDGE]},
    "parameters": {"x": {"mean": "nan", "n": 2}},
}


def read(content: bytes | str) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """Labels by id, and edges with their numbers."""
    space = {"g": selection.NAMESPACE}
    root = ElementTree.fromstring(content)
    declared = {key.get("id"): key.get("attr.type") for key in root.iterfind("g:key", space)}
    labels = {node.get("id", ""): node.findtext("g:data", namespaces=space) or "" for node in root.iterfind(".//g:node", space)}
    edges = []
    for edge in root.iterfind(".//g:edge", space):
        data = {str(one.get("key")): float(one.text or "") for one in edge.iterfind("g:data", space)}
        assert all(declared[key] == "double" for key in data)
        edges.append({"source": labels[edge.get("source", "")], "to": labels[edge.get("target", "")], **data})
    return labels, edges


def test_graphml_has_all_nodes_and_the_chosen_edges() -> None:
    labels, (edge,) = read(selection.graphml(SUMMARY))
    assert list(labels.values()) == ["a", "b <&\ufffd>", "c"]
    assert edge == {"source": "b <&\ufffd>", "to": "a", "mean": -0.25, "pip": 0.97, "mcse": 0.001}


def test_there_is_no_graph_of_a_regression_nor_of_chains_that_disagree() -> None:
    for summary, text in (({}, "the result has no graph"), (SUMMARY | {"by_mode": []}, "the chains disagree")):
        with pytest.raises(JobError, match=text):
            selection.edges(summary)


def test_parameters_are_numbers() -> None:
    row = Result(SUMMARY, None).parameters["x"]  # type: ignore[arg-type]
    assert math.isnan(row["mean"])
    assert row["n"] == 2


def test_the_command_prints_them(fedkern: Callable[..., Ended], tmp_path: Path) -> None:
    path = simulate("mrf", tmp_path / "mrf", Settings(clients=3, rows=60, columns=4, seed=2))
    assert fedkern("run", path, "--out", tmp_path / "out", "--set", "job.rounds=800").code == 0
    wanted = json.loads((tmp_path / "out" / "summary.json").read_text())["graph"]["edges"]
    assert wanted
    table = list(csv.DictReader(io.StringIO(fedkern("report", tmp_path / "out", "--graph", "csv").out)))
    assert [(row["source"], row["to"], float(row["pip"])) for row in table] == [(e["source"], e["to"], e["pip"]) for e in wanted]
    _, edges = read(fedkern("report", tmp_path / "out", "--graph", "graphml").out)
    assert [(edge["source"], edge["mean"], edge["rhat"]) for edge in edges] == [
        (e["source"], e["mean"], e["rhat"]) for e in wanted
    ]
