"""Shows the neighbours that were found on a map to people: counts across clients, a table of all pairs, and a figure."""

from __future__ import annotations

import csv
import importlib.util
import io
from collections import Counter

import numpy as np

from ....arrays import Indices
from ....data.graph import Map
from ....data.places import listed
from ....errors import JobError
from ....results.plots import BLUE, MUTED, ORANGE, canvas


def across(made: Map) -> str:
    """Returns a sentence on the pairs of two clients. Raises JobError: several clients have no such pair: nothing would tie them
    together."""
    i, j = _once(made)
    names, of = made.clients, made.client
    between = Counter(tuple(sorted((names[of[a]], names[of[b]]))) for a, b in zip(i, j) if of[a] != of[b])
    total = sum(between.values())
    if not total:
        raise JobError(
            f"data: none of the {len(i):,} pairs of neighbours is of two clients, and nothing would tie them together; look for "
            "names that are written in two ways, and for borders that do not meet (data.snap); or set data.unlinked = true"
        )
    apart = [name for name in names if all(name not in pair for pair in between)]
    shown = listed([f"{a} and {b} {count:,}" for (a, b), count in between.most_common()])
    text = f"{total:,} of {len(i):,} pairs of neighbours are of two clients: {shown}"
    if apart:
        text += f"; none is of {listed(apart)}, whose areas nothing ties to others"
    return text


def files(made: Map | None) -> dict[str, bytes]:
    """Returns the files beside the prior of a map: neighbours.csv, and neighbours.png where it can be drawn."""
    if made is None:
        return {}
    picture = figure(made)
    if picture is None:
        return {"neighbours.csv": table(made)}
    return {"neighbours.csv": table(made)} | {"neighbours.png": picture}


def table(made: Map) -> bytes:
    """Returns neighbours.csv: each pair once, with its clients and its connected component.

    Of neighbours that were given by position it has the positions, too, as their file has them.
    """
    text = io.StringIO(newline="")
    lines = csv.writer(text, lineterminator="\n")
    by_position = ("position", "neighbour_position") if made.positions else ()
    lines.writerow(("area", "client", "neighbour", "neighbour_client", "component", *by_position))
    component = made.graph.components()
    for a, b in zip(*_once(made)):
        ends = (made.graph.names[a], made.clients[made.client[a]], made.graph.names[b], made.clients[made.client[b]])
        positions = (made.positions[a], made.positions[b]) if made.positions else ()
        lines.writerow((*ends, component[a] + 1, *positions))
    return text.getvalue().encode()


def figure(made: Map) -> bytes | None:
    """Draws neighbours.png: pairs as lines between the areas' centres, those of two clients in another colour.

    It is None without centres, or without matplotlib.
    """
    if made.centroids is None or importlib.util.find_spec("matplotlib") is None:
        return None
    from matplotlib.collections import LineCollection

    i, j = _once(made)
    places, crossing = made.centroids, made.client[i] != made.client[j]
    drawn = canvas(8, 8)
    axes = drawn.subplots()
    for those, colour, width, words in ((~crossing, BLUE, 0.7, "of one client"), (crossing, ORANGE, 1.4, "of two clients")):
        lines = np.stack([places[i[those]], places[j[those]]], axis=1)
        label = f"{len(lines):,} pairs {words}"
        axes.add_collection(LineCollection([*lines], colors=colour, linewidths=width, label=label))
    alone = made.graph.islands
    x, y = places.T
    axes.scatter(x, y, s=max(2.0, min(14.0, 6000 / len(places))), color=MUTED, zorder=3, label=f"{len(places):,} areas")
    if len(alone):
        words = f"{len(alone):,} alone"
        axes.scatter(x[alone], y[alone], s=40, marker="s", facecolor="none", edgecolor=ORANGE, zorder=4, label=words)
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.02), ncols=4, frameon=False, fontsize=8.5)
    axes.set_title("Neighbours, as they were found", loc="left", fontsize=11)
    aspect = 1 / max(float(np.cos(np.deg2rad(places[:, 1].mean()))), 0.1) if np.abs(places[:, 1]).max() <= 90 else 1.0
    axes.set_aspect(aspect)
    axes.set_axis_off()
    content = io.BytesIO()
    drawn.savefig(content, format="png", dpi=150)
    return content.getvalue()


def _once(made: Map) -> tuple[Indices, Indices]:
    """Returns the numbers of both areas of each pair."""
    once = made.graph.rows < made.graph.indices
    return made.graph.rows[once], made.graph.indices[once]
