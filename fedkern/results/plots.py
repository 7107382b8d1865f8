"""Draws figures of a run with matplotlib's objects: no global state, no window, and no import before a figure is asked for."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal
from warnings import catch_warnings, filterwarnings

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..printing import printable
from .plain import Record, real

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:
    Axes = Figure = object  # others import the types from here

INK, MUTED, GRID, BLUE, ORANGE = "#1f2933", "#7b8794", "#e4e7eb", "#2364aa", "#c8553d"
COLOURS = (BLUE, ORANGE, "#4c9f70", "#8e5ea2", "#e08a1e", MUTED)  # of lines beside each other
ON_LIGHT = "#111827"  # letters on a light cell, whatever the page's colours are
PAGE = {INK: "ink", MUTED: "muted", GRID: "line", BLUE: "blue", ORANGE: "orange", "#000000": "ink"}  # light and dark in style.css
WORDS = {"accuracy": "Test accuracy", "log_likelihood": "Mean test log-likelihood", "rmse": "Test root mean square error"}
MOST_ROWS, MOST_PANELS = 60, 12
Part = tuple[NDArray[np.float64], ...]  # of an area: a closed line (k, 2) around it, and one around each hole
FINEST = 1 / 1500  # of a map's width: corners nearer to each other than that are one


def learning_curves(lines: Sequence[Record]) -> Figure | None:
    """Draws one panel for each test metric, over communication rounds.

    Parameters
    ----------
    lines : those of metrics.jsonl: "round", and "metrics" by name

    Returns
    -------
    the figure; None if no line has a metric
    """
    lines = [line for line in lines if line.get("metrics")]
    names = [name for name in WORDS if any(name in line["metrics"] for line in lines)]
    if not names:
        return None
    figure = canvas(7.2, 2.7)
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names):
        points = [(line["round"], line["metrics"][name]) for line in lines if name in line["metrics"]]
        x, y = zip(*points)
        few = len(points) <= 30
        marker = "o" if few else None
        axes.plot(x, y, color=BLUE, linewidth=1.6, marker=marker, markersize=3.2, clip_on=False, zorder=3)
        axes.annotate(
            f"{y[-1]:.4g}",
            (x[-1], y[-1]),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=BLUE,
            fontsize=8.5,
            fontweight="bold",
        )
        axes.set_title(WORDS[name], loc="left", color=INK, fontsize=10, fontweight="bold")
        axes.set_xlabel("communication rounds")
        axes.xaxis.get_major_locator().set_params(integer=True)
        tidy(axes, "y")
    return figure


def forest(
    parameters: Mapping[str, Mapping[str, float]], open_ones: Mapping[str, Mapping[str, float]] = MappingProxyType({})
) -> Figure | None:
    """Draws posterior means with 90 % intervals, on the standardised scale if there is one, since there they can be compared.

    Parameters
    ----------
    parameters : as in summary.json; if they are more than 60 coefficients, those with the largest absolute means are drawn
    open_ones : likewise, of the same rows without privacy: drawn below, where they have the same name

    Returns
    -------
    the figure; None without coefficients
    """
    shown, beside = (
        {
            re.sub(r"^theta(_std)?\[(.*)\]$|^(intercept)_std$", r"\2\3", name): values
            for name, values in those.items()
            if math.isfinite(real(values["mean"]))
        }
        for those in (parameters, open_ones)
    )
    if not shown:
        return None
    largest = sorted(shown, key=lambda name: -abs(shown[name]["mean"]))[:MOST_ROWS]
    names = [name for name in shown if name in largest]
    height = 0.4 if beside else 0.19
    figure = canvas(7.2, 0.75 + height * len(names))
    axes = figure.subplots()
    for row, name in enumerate(names):
        value = shown[name]
        if other := beside.get(name):
            axes.plot([other["q05"], other["q95"]], [row + 0.3] * 2, color=ORANGE, linewidth=2.2, alpha=0.45, zorder=2)
            axes.plot([other["mean"]], [row + 0.3], "D", color=ORANGE, markersize=4, zorder=3)
        sure = value["q05"] > 0 or value["q95"] < 0
        colour = BLUE if sure else MUTED
        ends = [value["q05"], value["q95"]]
        axes.plot(ends, [row, row], color=colour, linewidth=2.2, solid_capstyle="round", alpha=0.45, zorder=2)
        axes.plot([value["mean"]], [row], "o", color=colour, markersize=4, zorder=3)
    axes.axvline(0, color=INK, linewidth=0.8, zorder=1)
    axes.set_yticks(range(len(names)), list(map(caption, names)))
    axes.set_ylim(len(names) - 0.4, -0.6)
    standardised = any(name.startswith(("theta_std[", "intercept_std")) for name in parameters)
    scale = ", standardised scale" if standardised else ""
    axes.set_xlabel(f"posterior mean and 90 % interval{scale}")
    tidy(axes, "x")
    axes.tick_params(axis="y", length=0, labelsize=8)
    return figure


def sites(alone: Mapping[str, Mapping[str, Mapping[str, float]]], pooled: Mapping[str, Mapping[str, float]]) -> Figure | None:
    """Draws a panel for each coefficient: clients alone, a line each, and all together in another colour, with 95 % intervals.

    Parameters
    ----------
    alone : client -> name, as `pooled` has it -> "mode" and "sd"
    pooled : as in summary.json; if they are more than 12 coefficients, those with the largest absolute means are drawn

    Returns
    -------
    the figure; None without any
    """
    those = [name for name in pooled if any(name in of_client for of_client in alone.values())]
    largest = sorted(those, key=lambda name: -abs(pooled[name]["mean"]))[:MOST_PANELS]
    if not largest:
        return None

    def own(client: str, name: str) -> tuple[float, float, float]:
        mode, sd = (alone[client][name][key] for key in ("mode", "sd"))
        return mode - 1.96 * sd, mode, mode + 1.96 * sd

    drawn, panels = _by_client([name for name in those if name in largest], [*alone], own, pooled)
    for axes in panels:
        axes.axvline(0, color=INK, linewidth=0.8, zorder=1)
    return drawn


def without(left: Mapping[str, Any], pooled: Mapping[str, Mapping[str, float]]) -> Figure | None:
    """Draws a panel for each parameter: the result without each client, a line each, and that of all in another colour.

    Intervals have 95 %; the mean of all is a line through the panel.

    Parameters
    ----------
    left : client -> "known", and then "parameters": name -> "mean", "q025", "q975", "shift"
    pooled : as in summary.json; if they are more than 12 parameters, those are drawn that some client's absence shifts most

    Returns
    -------
    the figure; None where no client's absence is known
    """
    known = {client: of_client["parameters"] for client, of_client in left.items() if of_client["known"]}
    those = [name for name in pooled if any(name in of_client for of_client in known.values())]
    shift = {
        name: max(abs(real(of_client[name]["shift"])) for of_client in known.values() if name in of_client) for name in those
    }
    furthest = sorted(those, key=lambda name: -shift[name])[:MOST_PANELS]
    if not furthest:
        return None

    def own(client: str, name: str) -> tuple[float, float, float] | None:
        row = known.get(client, {}).get(name)
        return None if row is None else (real(row["q025"]), real(row["mean"]), real(row["q975"]))

    names = [name for name in those if name in furthest]
    drawn, panels = _by_client(names, [*left], own, pooled, "without {}", "all")
    for axes, name in zip(panels, names):
        low, high = axes.get_xlim()
        if low < 0 < high:
            axes.axvline(0, color=INK, linewidth=0.8, zorder=1)
        axes.axvline(pooled[name]["mean"], color=BLUE, linewidth=0.8, linestyle="--", zorder=1)
    return drawn


def _by_client(
    names: Sequence[str],
    clients: Sequence[str],
    interval_of: Callable[[str, str], tuple[float, float, float] | None],
    pooled: Mapping[str, Mapping[str, float]],
    words: str = "{}",
    everybody: str = "together",
) -> tuple[Figure, list[Axes]]:
    """Draws a panel for each name, a line for each client (client, name -> low, middle, high), and one for all."""
    across = min(3, len(names))
    down, n = -(-len(names) // across), len(clients)
    drawn = canvas(7.2, down * (0.8 + 0.17 * (n + 1)))
    panels = drawn.subplots(down, across, squeeze=False).ravel()
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    labels = [*(caption(words.format(client)) for client in clients), everybody]
    for i, (axes, name) in enumerate(zip(panels, names)):
        for row, client in enumerate(clients):
            if (interval := interval_of(client, name)) is None:
                where: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center"}
                axes.text(0.02, row, "not known", **where, fontsize=7.5, color=MUTED)
                continue
            low, middle, high = interval
            axes.plot([low, high], [row, row], color=MUTED, linewidth=1.6, zorder=2)
            axes.plot([middle], [row], "o", color=MUTED, markersize=3.2, zorder=3)
        axes.plot([pooled[name]["q025"], pooled[name]["q975"]], [n, n], color=BLUE, linewidth=2.2, zorder=2)
        axes.plot([pooled[name]["mean"]], [n], "D", color=BLUE, markersize=4, zorder=3)
        texts = labels if i % across == 0 else [""] * (n + 1)
        axes.set_yticks(range(n + 1), texts)
        axes.set_ylim(n + 0.6, -0.6)
        axes.set_title(caption(name), loc="left", color=INK, fontsize=9)
        tidy(axes, "x")
        axes.tick_params(axis="y", length=0, labelsize=8)
    return drawn, [*panels[: len(names)]]


def reliability(bins: Sequence[Mapping[str, float]]) -> Figure | None:
    """Draws observed frequencies against predicted probabilities, with the number of rows of each bin.

    Parameters
    ----------
    bins : "rows", "probability" and "frequency" of each

    Returns
    -------
    the figure; None without bins
    """
    if not bins:
        return None
    drawn = canvas(7.2, 3.2)
    axes = drawn.subplots()
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle="--", zorder=1)
    x, y, n = (([b[key] for b in bins]) for key in ("probability", "frequency", "rows"))
    axes.plot(x, y, color=BLUE, linewidth=1.2, alpha=0.6, zorder=2)
    axes.scatter(x, y, s=[14 + 200 * count / max(n) for count in n], color=BLUE, edgecolor="white", linewidth=0.8, zorder=3)
    for predicted, height, count in zip(x, y, n):
        above: dict[str, Any] = {"xytext": (0, 11), "textcoords": "offset points", "ha": "center"}
        axes.annotate(f"{count:,.0f}", (predicted, height), **above, fontsize=7.5, color=INK)
    axes.set(xlim=(-0.04, 1.04), ylim=(-0.06, 1.16), xlabel="predicted probability", ylabel="observed frequency")
    tidy(axes, "y")
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.yaxis.label.set(color=MUTED, fontsize=8.5)
    return drawn


def curves(lines: Mapping[str, Sequence[Record]], along: str, words: str) -> Figure:
    """Draws a mean with its 95 % interval along a column: a line with a band where it holds numbers, else a point for each value.

    Parameters
    ----------
    lines : its name -> rows, each with `along`, "mean", "q025" and "q975"; those of levels have "level", too
    words : of the mean
    """
    drawn = canvas(7.2, 3.2)
    axes = drawn.subplots()
    first = [row[along] for rows in lines.values() for row in rows]
    numeric = all(isinstance(value, int | float) for value in first)
    places = {value: k for k, value in enumerate(dict.fromkeys(first))}
    for k, (name, rows) in enumerate(lines.items()):
        colour, step = COLOURS[k % len(COLOURS)], 0.3 * (k - (len(lines) - 1) / 2) / len(lines)
        x = [real(row[along]) if numeric else places[row[along]] + step for row in rows]
        low, middle, high = ([real(row[key]) for row in rows] for key in ("q025", "mean", "q975"))
        if numeric and len(x) > 1:
            axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0, zorder=1)
            axes.plot(x, middle, color=colour, linewidth=1.6, label=caption(name), zorder=2)
            continue
        axes.vlines(x, low, high, color=colour, linewidth=2.2, alpha=0.45, zorder=2)
        axes.plot(x, middle, "o", color=colour, markersize=4, label=caption(name), zorder=3)
    if not numeric:
        axes.set_xticks([*places.values()], [caption(str(value)) for value in places])
    axes.set(xlabel=caption(along), ylabel=words)
    axes.yaxis.label.set(color=MUTED, fontsize=8.5)
    if len(lines) > 1:
        _legend(axes)
    tidy(axes, "y")
    return drawn


def _legend(axes: Axes) -> None:
    """Names what is drawn, above it."""
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, fontsize=8, labelcolor=INK)


def shares(pairs: Mapping[str, tuple[float, float]], model: str, along: str) -> Figure:
    """Draws shares of rows as bars, with what a model makes of each as a mark: name -> both; `along`: what the names are."""
    drawn = canvas(7.2, 2.6)
    axes, places = drawn.subplots(), range(len(pairs))
    axes.bar(places, [real(seen) for seen, _ in pairs.values()], color=BLUE, alpha=0.45, width=0.8, label="seen", zorder=2)
    axes.plot(places, [real(made) for _, made in pairs.values()], "D", color=ORANGE, markersize=4.5, label=model, zorder=3)
    axes.set_xticks([*places], list(map(caption, pairs)))
    axes.set_ylabel("share of rows", color=MUTED, fontsize=8.5)
    axes.set_xlabel(along)
    _legend(axes)
    tidy(axes, "y")
    return drawn


def traces(named: Mapping[str, NDArray[np.float64]]) -> Figure | None:
    """Draws the states (c, t) of chains, a panel for each parameter and a line for each chain."""
    if not named:
        return None
    drawn = canvas(7.2, 0.5 + 1.2 * len(named))
    for axes, (name, draws) in zip(drawn.subplots(len(named), 1, squeeze=False)[:, 0], named.items()):
        for k, chain in enumerate(draws):
            axes.plot(chain, color=COLOURS[k % len(COLOURS)], linewidth=0.6, alpha=0.8)
        axes.set_title(caption(name), loc="left", color=INK, fontsize=9)
        tidy(axes, "y")
    axes.set_xlabel("draw")
    return drawn


def caption(name: str) -> str:
    """Returns a name as a figure shows it: a dollar sign begins no formula, and an underscore hides it from no legend."""
    text = printable(name).replace("$", r"\$")
    return f" {text}" if name.startswith("_") else text


def svg(figure: Figure) -> str:
    """Returns the figure as SVG for the inside of an HTML page, without header, metadata, outside addresses or style sheet.

    The rules of Matplotlib's style sheet are in the page's.
    """
    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context({"svg.hashsalt": "fedkern"}), catch_warnings():  # the same figure gives the same text
        filterwarnings("ignore", r"Glyph \d+", UserWarning)  # of a script that the font lacks
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(text, format="svg", transparent=True, metadata=nothing)
    body = text.getvalue()
    body = re.sub(r"<metadata>.*?</metadata>", "", body[body.index("<svg") :], flags=re.DOTALL)
    body = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r' xmlns(:xlink)?="[^"]*"', "", body).replace("xlink:href", "href")
    body = re.sub(r"(fill|stroke): (#\w{6})\b", lambda match: f"{match[1]}: {_of_page(match[2])}", body)
    body = body.replace("stroke: #ffffff", "stroke: var(--card)")
    widest = f'<svg style="max-width:{1.6 * 72 * figure.get_figwidth():.0f}px"'  # else letters of a narrow figure would be huge
    return re.sub(r'<svg width="[^"]*" height="[^"]*"', widest, body, count=1)


def _of_page(colour: str) -> str:
    """Returns a colour as the page names it, so that it follows light and dark; others unchanged."""
    return f"var(--{PAGE[colour]})" if colour in PAGE else colour


def canvas(width: float, height: float) -> Figure:
    """Makes an empty figure, in inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise JobError(f"figures need matplotlib ({error}): pip install 'fedkern[results]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def tidy(axes: Axes, grid: Literal["x", "y"]) -> None:
    """Removes the frame and leaves a light grid along one direction."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(MUTED)
    axes.grid(axis=grid, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=8, length=3, color=MUTED)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.label.set(color=MUTED, fontsize=8.5)


def areas_drawn(axes: Axes, shapes: Sequence[Sequence[Part]], values: Sequence[float]) -> Any:
    """Draws areas as polygons, coloured by their values, and returns them for a colour bar. `shapes`: of each area, its parts, in
    degrees; `values`: one of each area."""
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path

    corners = np.concatenate([ring for parts in shapes for part in parts for ring in part])
    low, high = corners.min(axis=0), corners.max(axis=0)
    step = float((high - low).max()) * FINEST
    paths = []
    for parts in shapes:
        rings = [_coarse(ring, step) for part in parts for ring in part]
        codes = [[Path.MOVETO, *[Path.LINETO] * (len(ring) - 2), Path.CLOSEPOLY] for ring in rings]
        paths.append(Path(np.concatenate(rings), np.concatenate(codes)))
    linewidth = 0.4 if len(shapes) < 300 else 0.1
    drawn = PathCollection(paths, edgecolor="white", linewidth=linewidth)
    drawn.set_array(np.array(values))
    axes.add_collection(drawn)
    margin = 0.02 * float((high - low).max())
    axes.set_xlim(low[0] - margin, high[0] + margin)
    axes.set_ylim(low[1] - margin, high[1] + margin)
    axes.set_aspect(1 / max(float(np.cos(np.deg2rad((low[1] + high[1]) / 2))), 0.1), adjustable="box")
    return drawn


def _coarse(ring: NDArray[np.float64], step: float) -> NDArray[np.float64]:
    """Drops corners that no eye can tell from the one before."""
    kept = [0]
    for k in range(1, len(ring) - 1):
        if float(np.abs(ring[k] - ring[kept[-1]]).max()) >= step:
            kept.append(k)
    return ring[[*kept, len(ring) - 1]]
