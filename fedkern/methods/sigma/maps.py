"""Draws maps for print: one figure each, of the areas whose tables lie in a folder, as PNG and SVG.

Rates diverge about the threshold (1, or the level of all clients) on a logarithmic scale; probabilities of a high level have
the classes that journals use. Each map carries its description: its quantity, the number of areas of each class, model, rounds,
verdict, and day.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...arrays import Array
from ...data.polygons import read
from ...results.plots import INK, MUTED, ORANGE, Axes, Figure, Part, areas_drawn, canvas
from ...results.report import RunFiles
from ...results.verdict import HEADS
from .areas import NEAR

SIZE = 8.0  # inches
DPI = 200
BELOW_TITLE = 0.95  # of the figure's height
CLASSES = (0.0, 0.05, 0.2, 0.8, 0.95, 1.0)  # of the probability of a high level
COLOURS = ("#2166ac", "#92c5de", "#f0f0f0", "#f4a582", "#b2182b")
NOTHING = "#d9d9d9"  # of an area without a number
STEPS = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)  # ends of a scale, over its middle


@dataclass(frozen=True)
class Map:
    """Holds one figure: file name, title, words of its colours, (n,) values, kind of scale, and the middle of the scale."""

    name: str
    title: str
    words: str
    values: Array
    scale: str
    middle: float = 1.0


def files(run: RunFiles) -> dict[str, bytes]:
    """Returns maps/NAME.png and maps/NAME.svg; none where the folder has no polygons."""
    rows = [{**row, "client": client} for client, areas in run.areas.items() for row in areas]
    shapes = [run.shapes.get(row["client"], {}).get(row["area"], ()) for row in rows]
    if not rows or not all(shapes):
        return {}
    out: dict[str, bytes] = {}
    for drawing in _maps(rows, _threshold(run)):
        drawn = _figure(drawing, rows, shapes, _about(run))
        if _said(run).get("converged") is False:
            words = "not converged: not for use"
            drawn.text(0.01, BELOW_TITLE, words, color=ORANGE, fontsize=12, fontweight="bold", ha="left", va="top")
        for kind in ("png", "svg"):
            content = io.BytesIO()
            metadata = {"Date": None} if kind == "svg" else {"Software": None}
            drawn.savefig(content, format=kind, dpi=DPI, metadata=metadata)
            out[f"maps/{drawing.name}.{kind}"] = content.getvalue()
    return out


def homes_of(folder: Path) -> list[Path]:
    """Returns the folders that have areas: a client's own, or those of the clients in a run's folder."""
    alone = (folder / "areas.csv").exists()
    return [folder] if alone else sorted(path.parent for path in folder.glob("client-*/areas.csv"))


def areas_of(folder: Path) -> tuple[dict[str, list[dict[str, str]]], dict[str, Mapping[str, Sequence[Part]]]]:
    """Returns client -> rows of its areas.csv, of those that may be read, and client -> area -> its borders."""
    tables = {client_of(home): (home, _rows(home / "areas.csv")) for home in homes_of(folder)}
    areas = {client: rows for client, (_, rows) in tables.items() if rows is not None}
    return areas, {client: _borders(tables[client][0] / "areas.geojson") for client in areas}


def client_of(home: Path) -> str:
    """Returns the name of the client whose folder this is."""
    return home.resolve().name.removeprefix("client-")


def _rows(path: Path) -> list[dict[str, str]] | None:
    """Reads a table of a client's folder; None where another user owns it."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except PermissionError:
        return None


def _borders(path: Path) -> Mapping[str, Sequence[Part]]:
    """Returns area -> its borders; none where the job had no polygons."""
    return read(path, "area").parts if os.path.exists(path) else {}


def _threshold(run: RunFiles) -> float:
    """Returns the threshold's value."""
    if run.own:
        return float(run.said.get("threshold", 1.0))
    return float(run.summary.get("sigma", {}).get("threshold", {}).get("value", 1.0))


def _maps(rows: Sequence[Mapping[str, str]], middle: float) -> Iterator[Map]:
    """Yields the maps of these areas."""
    level = next(word for word in ("rate", "probability", "mean") if f"{word}_mean" in rows[0])
    above = next(name for name in rows[0] if name.startswith(f"p_{level}_above_"))
    limit = above.rpartition("_above_")[2]

    def column(name: str) -> Array:
        return np.array([float(row.get(name) or "nan") for row in rows])

    relative = level == "rate" and limit in ("1", "overall")
    words = f"{level}; the middle is that of all clients together, {middle:.3g}" if relative and limit == "overall" else level
    low, high = column(f"{level}_q025"), column(f"{level}_q975")
    high_level = f"P({level} > {limit})"
    scale = "about" if relative else "plain"
    yield Map(level, f"Posterior mean of the {level}", words, column(f"{level}_mean"), scale, middle)
    than = f"that of all clients together, {middle:.3g}" if limit == "overall" else limit
    yield Map(f"high-{level}", f"Probability that the {level} is above {than}", high_level, column(above), "classes")
    if level == "rate":
        yield Map("width", "Upper over lower end of the rate's 95 % interval", "ratio of the ends", high / low, "plain")
    else:
        yield Map("width", f"Width of the {level}'s 95 % interval", "width", high - low, "plain")
    if level == "rate":
        effect = "rate ratio"
    elif level == "probability":
        effect = "odds ratio"
    else:
        effect = "difference"
    scale = "about 0" if level == "mean" else "about"
    yield Map("spatial", "What the map adds to intercept and covariates", effect, column("spatial_mean"), scale)


def exposures(rows: Sequence[Mapping[str, str]]) -> str:
    """Names the exposures of rates: "expected" where they add up to about as many cases as the map has, else "exposure"."""
    seen = [(float(row["rate_mean"]), float(row["exposure"])) for row in rows if row.get("exposure") and row.get("rate_mean")]
    cases, exposure = sum(rate * each for rate, each in seen), sum(each for _, each in seen)
    return "expected" if not seen or exposure / NEAR < cases < exposure * NEAR else "exposure"


def classes() -> tuple[Any, Any]:
    """Returns colours of the probability of a high level, and the bounds of each."""
    from matplotlib.colors import BoundaryNorm, ListedColormap

    return ListedColormap(list(COLOURS)), BoundaryNorm(CLASSES, len(COLOURS))


def _said(run: RunFiles) -> Mapping[str, Any]:
    """Returns the record that has the verdict."""
    return run.said if run.own else run.summary


def _about(run: RunFiles) -> str:
    """Returns model, rounds, verdict and day, in words."""
    model, verdict = run.job.get("model", {}), _said(run)
    family = str(model.get("family", "poisson"))
    words = [f"{family.capitalize()} model with a spatial effect of every area"]
    rounds = run.summary.get("rounds") or verdict.get("rounds")
    words += [f"{rounds:,} rounds"] if isinstance(rounds, int) else []
    words += [HEADS[verdict["converged"]]] if "converged" in verdict else []
    if suppressed := verdict.get("suppressed"):
        words.append(f"{suppressed} counts known by an interval")
    if run.day:
        words.append(run.day)
    return "; ".join(words)


def _figure(layer: Map, rows: Sequence[Mapping[str, str]], shapes: Sequence[Sequence[Part]], about: str) -> Figure:
    """Draws one map."""
    import matplotlib as mpl
    from matplotlib.colors import LogNorm, Normalize

    drawn = canvas(SIZE, SIZE)
    axes = drawn.subplots()
    points = areas_drawn(axes, shapes, layer.values.tolist())
    shown = layer.values[np.isfinite(layer.values)]
    points.set_edgecolor(MUTED)
    colours, norm = mpl.colormaps["viridis"], Normalize(*_ends(shown))
    if layer.scale == "classes":
        colours, norm = classes()
    elif layer.scale == "about":
        far = float(np.exp(np.abs(np.log(shown / layer.middle)).max())) if len(shown) else 2.0
        end = next((step for step in STEPS if step >= far), STEPS[-1])
        colours, norm = mpl.colormaps["RdBu_r"], LogNorm(layer.middle / end, layer.middle * end)
    elif layer.scale == "about 0":
        far = float(np.abs(shown).max()) if len(shown) else 1.0
        colours, norm = mpl.colormaps["RdBu_r"], Normalize(-far, far)
    points.set_cmap(colours.with_extremes(bad=NOTHING))
    points.set_norm(norm)
    axes.set_axis_off()
    # of the figure and not of the axes: a map that is tall and narrow would have it cut off
    drawn.text(0.01, 0.985, layer.title, color=INK, fontsize=13, fontweight="bold", ha="left", va="top")
    if layer.scale == "classes":
        _legend(axes, layer)
    else:
        _bar(drawn, axes, points, layer, norm)
    hidden = int((~np.isfinite(layer.values)).sum())
    counts = f"{len(rows)} areas"
    if hidden:
        counts += f", {hidden} of which are not shown"
    drawn.text(0.01, 0.005, f"{counts}; {about}", color=MUTED, fontsize=7.5, ha="left", va="bottom", wrap=True)
    drawn.set_layout_engine("compressed", rect=(0, 0.04, 1, 0.87))
    return drawn


def _ends(values: Array) -> tuple[float, float]:
    """Returns the smallest and the largest value."""
    return (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)


def _bar(drawn: Figure, axes: Axes, points: Any, layer: Map, norm: Any) -> None:
    """Draws the colour bar."""
    bar = drawn.colorbar(points, ax=axes, shrink=0.6, aspect=24, label=layer.words)
    if layer.scale == "about":
        end = norm.vmax / layer.middle
        ticks = [step for step in STEPS if step <= end * 1.0001][-4:]
        sides = [layer.middle * step for step in sorted({*(1 / step for step in ticks), 1.0, *ticks})]
        bar.set_ticks(sides, labels=[f"{tick:.2g}" for tick in sides])
        bar.ax.minorticks_off()
    bar.ax.spines["outline"].set_visible(False)
    bar.ax.tick_params(labelsize=9, color=MUTED)


def _legend(axes: Axes, layer: Map) -> None:
    """Draws each class with the number of its areas."""
    from matplotlib.patches import Patch

    number = np.histogram(layer.values[np.isfinite(layer.values)], CLASSES)[0]
    lines = [
        Patch(facecolor=colour, edgecolor=MUTED, label=f"{low:g} to {high:g}  ({count:,})")
        for colour, low, high, count in zip(COLOURS, CLASSES, CLASSES[1:], number)
    ][::-1]
    if hidden := int((~np.isfinite(layer.values)).sum()):
        lines.append(Patch(facecolor=NOTHING, edgecolor=MUTED, label=f"not shown  ({hidden:,})"))
    axes.legend(
        handles=lines, title=f"{layer.words} (areas)", loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=9,
        alignment="left",
    )  # fmt: skip
