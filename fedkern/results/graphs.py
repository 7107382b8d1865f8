"""Draws the sparse models: inclusion probabilities as a heat map, chosen edges as a graph, effects with their sites."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .diagnostics import MARKED
from .gaussian import comparable
from .plots import BLUE, GRID, INK, MUTED, ON_LIGHT, ORANGE, Figure, canvas, caption, tidy
from .selection import Edge, known
from .verdict import LEGEND, MARK, marked

SITE_COLOURS = ("#e08a1e", "#4c9f70", "#8e5ea2", "#c8553d", "#3aa6b9", "#a0763a", "#d06c9b", "#6b7a3f", "#5b6fb5")
MOST_LABELS = 60  # nodes that a heat map names
MOST_NODES = 40  # that a graph draws: more would be a ball of wool
MOST_EFFECTS = 30
MOST_FORESTS, MOST_SITES = 6, 60  # panels of a forest of sites, and its rows
DOUBT = (0.88, 0.54, 0.12, 0.35)  # colour over what has not converged


def heat_map(pip: ArrayLike, nodes: Sequence[str], title: str = "", *, rhat: ArrayLike | None = None) -> Figure:
    """Draws PIPs (p, p): a row is the node whose equation it is, a column the node that the edge comes from; the diagonal is
    empty.

    Cells whose `rhat` (p, p) is above 1.05 are shaded, and their numbers marked.
    """
    values = np.array(pip, dtype=np.float64)
    p = len(nodes)
    np.fill_diagonal(values, np.nan)
    size = min(2.2 + 0.42 * p, 9.0)
    drawing = canvas(size + 0.9, size)
    axes = drawing.subplots()
    # The colours first, then a shade over the cells in doubt, then numbers where these can be read.
    image = axes.imshow(values, vmin=0, vmax=1, cmap="Blues", interpolation="nearest")
    unsure = np.zeros((p, p), dtype=bool) if rhat is None else np.asarray(rhat, dtype=np.float64) > MARKED
    if unsure.any():
        axes.imshow(np.where(unsure[..., None], DOUBT, 0.0), interpolation="nearest")
    if p <= MOST_LABELS:
        small = 8 if p <= 25 else 5
        axes.set_xticks(range(p), list(map(caption, nodes)), rotation=90, fontsize=small)
        axes.set_yticks(range(p), list(map(caption, nodes)), fontsize=small)
    else:
        axes.set_xticks([])
        axes.set_yticks([])
    if p <= 15:
        for i, j in zip(*np.nonzero(~np.isnan(values))):
            shade = "white" if values[i, j] > 0.5 else ON_LIGHT
            text = f"{values[i, j]:.2f}" + MARK * bool(unsure[i, j])
            axes.text(j, i, text, ha="center", va="center", fontsize=6.5, color=shade)
    axes.tick_params(length=0, labelcolor=INK)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("from", color=MUTED, fontsize=8)
    if unsure.any():
        drawing.supxlabel(f"shaded: {LEGEND.removeprefix(MARK).strip()}", x=0.01, ha="left", fontsize=7, color=MUTED)
    axes.set_ylabel("to", color=MUTED, fontsize=8)
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK)
    bar = drawing.colorbar(image, ax=axes, shrink=0.7, aspect=30, pad=0.02)
    bar.ax.spines["outline"].set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8)
    bar.set_label("posterior inclusion probability", fontsize=8, color=MUTED)
    return drawing


def network(edges: Sequence[Edge], nodes: Sequence[str], title: str = "", *, directed: bool = True) -> Figure:
    """Draws chosen edges on a circle: blue for positive, orange for negative effects, wider for larger ones, dotted if in doubt.

    Parameters
    ----------
    edges : from `selection.graph`; an undirected one occurs once
    nodes : all, in the order of the circle; of more than 40 only those with an edge are drawn
    directed : arrows rather than lines
    """
    from matplotlib.patches import FancyArrowPatch

    touched = {name for edge in edges for name in (edge.to, edge.source)}
    shown = [name for name in nodes if len(nodes) <= MOST_NODES or name in touched]
    drawing = canvas(6.4, 6.6)
    axes = drawing.subplots()
    # The first node is at the top, and the others follow clockwise.
    angle = np.pi / 2 - 2 * np.pi * np.arange(len(shown)) / max(len(shown), 1)
    place = {name: (float(np.cos(a)), float(np.sin(a))) for name, a in zip(shown, angle)}
    mutual = {(edge.source, edge.to) for edge in edges}
    largest = max((abs(edge.mean) for edge in edges), default=1.0) or 1.0
    dot = 90.0 if len(shown) <= MOST_NODES else 25.0
    many = len(shown) > 24
    fontsize = 6 if many else 9
    arrow = "-|>" if directed else "-"
    for edge in edges:
        # Two edges of one pair bend apart, so that both are seen.
        bend = 0.14 if directed and (edge.to, edge.source) in mutual else 0.0
        colour = BLUE if edge.mean > 0 else ORANGE
        dotted = ":" if edge.is_doubtful else "-"
        patch = FancyArrowPatch(
            place[edge.source],
            place[edge.to],
            arrowstyle=arrow,
            mutation_scale=13,
            connectionstyle=f"arc3,rad={bend}",
            shrinkA=7,
            shrinkB=7,
            linewidth=0.8 + 2.6 * abs(edge.mean) / largest,
            color=colour,
            alpha=0.85,
            linestyle=dotted,
            zorder=2,
        )
        axes.add_patch(patch)
    for name, a in zip(shown, angle):
        x, y = place[name]
        colour = INK if name in touched else GRID
        axes.scatter([x], [y], s=dot, color=colour, zorder=3)
        turn = np.degrees(a) % 360
        side, upright = ("right", turn - 180) if 90 < turn < 270 else ("left", turn)
        aligned: dict[str, Any] = {"ha": side, "va": "center"}
        if many:
            aligned |= {"rotation": upright, "rotation_mode": "anchor"}
        elif abs(x) < 0.2:
            end = "bottom" if y > 0 else "top"
            aligned = {"ha": "center", "va": end}
        axes.text(1.09 * x, 1.09 * y, caption(name), fontsize=fontsize, color=INK, **aligned)
    if any(edge.is_doubtful for edge in edges):
        axes.text(-1.5, -1.4, f"dotted: {LEGEND.removeprefix(MARK).strip()}", fontsize=7, color=MUTED)
    if not edges:
        axes.text(0, 0, "no edge", ha="center", va="center", color=MUTED)
    axes.set_xlim(-1.55, 1.55)
    axes.set_ylim(-1.45, 1.45)
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold", color=INK)
    return drawing


def effects(
    parameters: Mapping[str, Mapping[str, float]], title: str = "", unsure: Collection[str] = frozenset()
) -> Figure | None:
    """Draws each coefficient's global value, site average and, where they are known, sites: standardised means, 90 % intervals.

    Parameters
    ----------
    parameters : of summary.json; if they are more than 30 coefficients, those with the largest averages are drawn
    unsure : coefficients that bear a mark: their R-hat is above 1.05

    Returns
    -------
    the figure; None without coefficients
    """
    numbers = comparable(parameters)
    kinds = ("theta_std[", "theta[", "average_std[", "average[")
    named: dict[str, dict[str, Mapping[str, float]]] = {}
    for name, value in numbers.items():
        kind = next((k for k in kinds if name.startswith(k)), None)
        if kind:
            label, _, site = name[len(kind) :].rpartition("]")
            if kind.startswith("average"):
                site = site or "@average"
            named.setdefault(label, {})[site] = value
    named = {label: values for label, values in named.items() if "" in values}
    if not named:
        return None
    size = {label: abs(values.get("@average", values[""])["mean"]) for label, values in named.items()}
    largest = sorted(named, key=lambda label: -size[label])[:MOST_EFFECTS]
    rows = [label for label in named if label in largest]
    sites = list(dict.fromkeys(site for values in named.values() for site in values if site not in ("", "@average")))
    lines = {"": ("global value", BLUE, 3.0), "@average": ("site average", INK, 2.0)}
    lines |= {site: (caption(site[1:]), SITE_COLOURS[k % len(SITE_COLOURS)], 1.3) for k, site in enumerate(sites)}
    step = 0.8 / len(lines)
    drawing = canvas(7.6, 1.0 + len(rows) * (0.16 + 0.11 * len(lines)))
    axes = drawing.subplots()
    for row, label in enumerate(rows):
        for k, (key, (_, colour, width)) in enumerate(lines.items()):
            if key not in named[label]:
                continue
            value = named[label][key]
            y = row - 0.4 + (k + 0.5) * step
            axes.plot([value["q05"], value["q95"]], [y, y], color=colour, linewidth=width, alpha=0.55, solid_capstyle="round")
            axes.plot([value["mean"]], [y], "o", color=colour, markersize=2.0 + 0.7 * width, zorder=3)
        pip = named[label][""].get("pip")
        if pip is not None:
            axes.annotate(f"{pip:.2f}", (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=8.5, color=BLUE)
    handles = [axes.plot([], [], "o-", label=text, color=c, linewidth=w, markersize=4)[0] for text, c, w in lines.values()]
    axes.axvline(0, color=INK, linewidth=0.8, zorder=1)
    for row in range(len(rows) - 1):
        axes.axhline(row + 0.5, color=GRID, linewidth=0.6, zorder=0)
    axes.set_yticks(range(len(rows)), [caption(marked(label, unsure)) for label in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    legend = f"\n{LEGEND}" if any(label in unsure for label in rows) else ""
    axes.set_xlabel(f"posterior mean and 90 % interval, standardised scale; at the right: PIP{legend}")
    tidy(axes, "x")
    axes.tick_params(axis="y", length=0, labelsize=9)
    axes.legend(handles=handles, frameon=False, fontsize=8, ncols=min(len(lines), 4), loc="lower left", bbox_to_anchor=(0, 1.0))
    if title:
        drawing.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold", color=INK)
    return drawing


def sites(parameters: Mapping[str, Mapping[str, float]]) -> Figure | None:
    """Draws a forest of every coefficient: standardised means and 90 % intervals of each site, and below them of the average.

    Parameters
    ----------
    parameters : of summary.json; if they are more than 6 coefficients, those whose sites are furthest apart are drawn, of 60
        sites

    Returns
    -------
    the figure; None where no site's coefficients are known
    """
    kind = re.compile(r"(theta|average)(?:_std)?\[(.*)\](?:@(.*))?", re.DOTALL)
    named: dict[str, dict[str, Mapping[str, float]]] = {}
    for name, value in comparable(parameters).items():
        match = kind.fullmatch(name)
        if match and (match[3] or match[1] == "average"):
            named.setdefault(match[2], {})[match[3] or ""] = value
    apart = {label: float(np.ptp([v["mean"] for site, v in of.items() if site] or [0.0])) for label, of in named.items()}
    shown = [label for label in named if apart[label] > 0 and label in sorted(apart, key=lambda x: -apart[x])[:MOST_FORESTS]]
    rows = list(dict.fromkeys(site for label in shown for site in named[label] if site))[:MOST_SITES]
    if not rows:
        return None
    across = min(len(shown), 3)
    down = -(-len(shown) // across)
    drawing = canvas(7.4, down * (0.8 + 0.17 * len(rows)))
    panels = drawing.subplots(down, across, squeeze=False, sharey=True).ravel()
    for axes, label in zip(panels, shown):
        for y, site in enumerate([*rows, ""]):
            if site not in named[label]:
                continue
            value = named[label][site]
            marker, colour = ("o", MUTED) if site else ("D", INK)
            if site and (value["q05"] > 0 or value["q95"] < 0):
                colour = BLUE
            axes.plot([value["q05"], value["q95"]], [y, y], color=colour, linewidth=2.2, alpha=0.5, solid_capstyle="round")
            axes.plot([value["mean"]], [y], marker, color=colour, markersize=4, zorder=3)
        axes.axvline(0, color=INK, linewidth=0.8, zorder=1)
        axes.set_title(caption(label), loc="left", fontsize=9.5, fontweight="bold", color=INK)
        tidy(axes, "x")
    for axes in panels[len(shown) :]:
        axes.set_visible(False)
    panels[0].set_yticks(range(len(rows) + 1), [*map(caption, rows), "average"], fontsize=8)
    panels[0].set_ylim(len(rows) + 0.6, -0.6)
    return drawing


def undirected(
    weights: ArrayLike, chosen: ArrayLike, nodes: Sequence[str], pip: ArrayLike, rhat: ArrayLike | None = None
) -> list[Edge]:
    """Returns the pairs (i < j) that are chosen in a symmetric (p, p) matrix, as edges with the weights' signs and sizes.

    Of `rhat`, [to, from], a pair has the larger of its two.
    """
    weight, inside, probability = (np.asarray(x) for x in (weights, chosen, pip))
    judged = np.full(weight.shape, np.nan) if rhat is None else np.asarray(rhat, dtype=np.float64)
    worse = np.fmax(judged, judged.T)
    pairs: np.ndarray = np.argwhere(np.triu(inside, 1))
    return [
        Edge(nodes[i], nodes[j], float(weight[i, j]), float(probability[i, j]), rhat=known(worse[i, j]))
        for i, j in pairs.tolist()
    ]
