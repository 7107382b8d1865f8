"""Figures of the sparse models: what is drawn is what was found."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.patches import FancyArrowPatch

from fedkern.results import graphs, plots
from fedkern.results.selection import Edge

NODES = ("Raf", "Mek", "Erk")


def texts(figure: Any) -> list[str]:
    axes = figure.axes[0]
    return [text.get_text() for text in axes.texts]


def test_the_heat_map_shows_every_probability_at_its_place() -> None:
    pip = np.array([[0.5, 0.1, 0.2], [0.9, 0.5, 0.3], [0.4, 0.8, 0.5]])
    made = graphs.heat_map(pip, NODES, "a title")
    axes = made.axes[0]
    shown = np.ma.filled(axes.images[0].get_array(), np.nan)
    assert np.isnan(np.diag(shown)).all()
    assert shown[1, 0] == 0.9
    assert [label.get_text() for label in axes.get_yticklabels()] == list(NODES)
    assert sorted(texts(made)) == ["0.10", "0.20", "0.30", "0.40", "0.80", "0.90"]
    assert (axes.get_ylabel(), axes.get_xlabel(), pip[0, 0]) == ("to", "from", 0.5)  # what was given is not changed
    many = graphs.heat_map(np.zeros((70, 70)), [str(k) for k in range(70)])
    assert texts(many) == []
    assert len(many.axes[0].get_yticklabels()) == 0
    assert "<svg" in plots.svg(many)


def arrows(figure: Any) -> list[FancyArrowPatch]:
    return [patch for patch in figure.axes[0].patches if isinstance(patch, FancyArrowPatch)]


def test_the_graph_has_an_arrow_for_each_edge_from_its_source() -> None:
    made = graphs.network([Edge("Mek", "Raf", 0.8, 0.99), Edge("Erk", "Mek", -0.4, 0.95)], NODES)
    first, second = arrows(made)
    start, end = first.get_path().vertices[[0, -1]] if first.get_path() is not None else (None, None)
    assert np.hypot(*(np.asarray(start) - [0, 1])) < np.hypot(*(np.asarray(end) - [0, 1]))  # Raf stands on top
    assert first.get_linewidth() > second.get_linewidth()
    assert first.get_edgecolor() != second.get_edgecolor()
    assert set(texts(made)) == set(NODES)
    assert texts(graphs.network([], NODES))[-1] == "no edge"
    lines = graphs.network([Edge("Mek", "Raf", 0.8, 0.99)], NODES, directed=False)
    assert len(arrows(lines)) == 1


def test_of_many_nodes_only_those_with_an_edge_are_drawn() -> None:
    many = [f"n{k}" for k in range(100)]
    assert set(texts(graphs.network([Edge("n3", "n80", 0.1, 1.0)], many))) == {"n3", "n80"}


def test_undirected_edges_stand_once() -> None:
    pip = np.array([[0, 0.9, 0.2], [0.9, 0, 0.8], [0.2, 0.8, 0]])
    edges = graphs.undirected(-pip, pip > 0.5, NODES, pip)
    assert edges == [Edge("Raf", "Mek", -0.9, 0.9), Edge("Mek", "Erk", -0.8, 0.8)]


def test_effects_show_the_global_value_the_average_and_the_sites() -> None:
    numbers = {"mean": 0.3, "q05": 0.1, "q95": 0.5}
    parameters = {
        "theta[age]": numbers,
        "theta_std[age]": numbers | {"pip": 0.65},
        "average_std[age]": numbers,
        "theta_std[age]@clinic-b": numbers,
        "theta[sex]": numbers | {"pip": 0.1},
        "tau[age]": numbers,
        "eta": numbers,
    }
    made = graphs.effects(parameters)
    assert made is not None
    axes = made.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["age", "sex"]
    assert texts(made) == ["0.65", "0.10"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["global value", "site average", "clinic-b"]
    assert sum(len(line.get_xdata()) == 2 and line.get_xdata()[0] == 0.1 for line in axes.lines) == 4
    assert graphs.effects({"eta": numbers}) is None
    crowd = graphs.effects({f"theta[x{k}]": numbers | {"mean": k} for k in range(50)})
    assert crowd is not None
    labels = [label.get_text() for label in crowd.axes[0].get_yticklabels()]
    assert (len(labels), labels[0], labels[-1]) == (graphs.MOST_EFFECTS, "x20", "x49")


def test_what_has_not_converged_is_marked() -> None:
    pip = np.array([[0.5, 0.1, 0.2], [0.9, 0.5, 0.3], [0.4, 0.8, 0.5]])
    rhat = np.array([[np.nan, 1.0, 1.2], [1.04, np.nan, 1.06], [1.0, 1.0, np.nan]])
    made = graphs.heat_map(pip, NODES, rhat=rhat)
    assert sorted(texts(made)) == ["0.10", "0.20*", "0.30*", "0.40", "0.80", "0.90"]
    shade = made.axes[0].images[1].get_array()[..., 3]
    np.testing.assert_array_equal(shade > 0, rhat > 1.05)
    assert "R-hat above 1.05" in made.texts[0].get_text()
    assert not graphs.heat_map(pip, NODES, rhat=np.ones((3, 3))).texts
    edges = [Edge("Mek", "Raf", 0.8, 0.99, rhat=1.3), Edge("Erk", "Mek", -0.4, 0.95, rhat=1.0)]
    made = graphs.network(edges, NODES)
    assert [arrow.get_linestyle() for arrow in arrows(made)] == [":", "-"]
    assert any("R-hat above 1.05" in text for text in texts(made))
    pairs = graphs.undirected(pip, pip > 0.15, NODES, pip, rhat)
    assert [(edge.name, edge.rhat, edge.is_doubtful) for edge in pairs] == [("Erk -> Raf", 1.2, True), ("Erk -> Mek", 1.06, True)]
    row = {"mean": 0.3, "q05": 0.1, "q95": 0.5}
    drawn = graphs.effects({"theta[age]": row, "theta[sex]": row}, unsure=["sex"])
    assert drawn is not None
    assert [label.get_text() for label in drawn.axes[0].get_yticklabels()] == ["age", "sex*"]
    assert "R-hat above 1.05" in drawn.axes[0].get_xlabel()
