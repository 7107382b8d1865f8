"""The report's sections on a spatial model with a trained prior: the global unknowns, and the areas of clients whose folders are
here. Areas never leave their client: the page shows those that lie in the run's folder, which in a job over machines is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...results.page import figure, number, section, table
from ...results.plots import BLUE, GRID, INK, MUTED, ORANGE, Figure, canvas, tidy

Areas = Mapping[str, Sequence[Mapping[str, str]]]  # client -> rows of its areas.csv

LISTED = 12  # areas in the table of the highest ones
WORDS = {"rate": "rate", "probability": "probability", "mean": "mean"}


def sections(summary: Mapping[str, Any], lines: Sequence[Mapping[str, Any]], areas: Areas) -> list[str]:
    """Sections of a finished run.

    Parameters
    ----------
    summary : summary.json of a job of method "sigma"
    lines : of metrics.jsonl
    areas : client -> rows of its areas.csv, where it lies in this folder
    """
    rows = [{**row, "client": client} for client, own in areas.items() for row in own]
    found = _columns(rows)
    return [
        _parameters(summary),
        _chains(summary),
        _progress(lines),
        _map(rows, found),
        _smoothing(rows, found),
        _highest(rows, found),
    ]


def tiles(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(words, value) of what stands at the top of the page."""
    about, shown = summary["sigma"], []
    for name in ("phi", "lengthscale", "sigma_theta"):
        if name in summary.get("parameters", {}):
            shown.append((name, number(summary["parameters"][name]["mean"])))
    return [*shown, ("Areas", number(about["areas"]))]


def _columns(rows: Sequence[Mapping[str, str]]) -> tuple[str, str]:
    """Name of the level ("rate", "probability" or "mean") and of the column with the probability that it is high."""
    if not rows:
        return "", ""
    above = next(name for name in rows[0] if name.startswith("p_"))
    return next(word for word in WORDS if f"{word}_mean" in rows[0] and word in above), above


def _words(above: str) -> str:
    """ "p_rate_above_1" as people write it."""
    name, _, threshold = above.removeprefix("p_").partition("_above_")
    return f"P({name} > {threshold})"


def _parameters(summary: Mapping[str, Any]) -> str:
    shown = {name: v for name, v in summary.get("parameters", {}).items() if "_std" not in name}
    keys = ["mean", "sd", "q05", "q95"] + (["rhat", "ess"] if any("rhat" in v for v in shown.values()) else [])
    rows = [[name, *(number(v[key]) for key in keys)] for name, v in shown.items()]
    head = {"q05": "5 %", "q95": "95 %", "rhat": "R-hat", "ess": "ESS"}
    about = summary["sigma"]
    text = (
        f"<p class=muted>{about['kind'].capitalize()} model of {about['areas']} areas with a trained {about['prior']['kind']} "
        f"prior: {about['latents']['global']} global and {about['latents']['local']} local latent variables stand for the map. "
        "The areas' posteriors stay with their clients.</p>"
    )
    return section("At the server", table(["name", *(head.get(key, key) for key in keys)], rows) + text)


def _chains(summary: Mapping[str, Any]) -> str:
    chains = summary["sigma"].get("chains")
    if not chains:
        return ""
    rows = [[str(c + 1), number(a), number(h)] for c, (a, h) in enumerate(zip(chains["acceptance"], chains["step_size"]))]
    text = f"<p class=muted>{chains['divergences']} divergences after {chains['warmup']} rounds of warm-up.</p>"
    return section("Chains", table(["chain", "acceptance", "step"], rows) + text)


def _progress(lines: Sequence[Mapping[str, Any]]) -> str:
    names = [name for name in ("elbo", "phi", "lengthscale", "rho", "sigma_theta", "sigma") if _points(lines, name)]
    if not names:
        return ""
    made = canvas(7.2, 2.4)
    for axes, name in zip(made.subplots(1, len(names), squeeze=False)[0], names):
        x, y = zip(*_points(lines, name))
        axes.plot(x, y, color=BLUE, linewidth=1.4)
        if name == "elbo":
            axes.set_ylim(bottom=sorted(y)[len(y) // 10])
        axes.set_title("ELBO" if name == "elbo" else name, loc="left", color=INK, fontsize=9.5, fontweight="bold")
        axes.set_xlabel("rounds")
        tidy(axes, "y")
    return figure(
        "Progress", made, "What the server knew after each stretch of rounds (of chains: the mean of their present states)."
    )


def _points(lines: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    points = [(line["round"], line["metrics"][name]) for line in lines if name in line.get("metrics", {})]
    return points if len(points) > 1 else []


def _map(rows: Sequence[Mapping[str, str]], found: tuple[str, str]) -> str:
    if not rows or not all(row.get("x") and row.get("y") for row in rows):
        return ""
    level, above = found
    made = canvas(7.2, 3.3)
    x, y = ([float(row[axis]) for row in rows] for axis in ("x", "y"))
    for axes, name, words in zip(
        made.subplots(1, 2),
        (f"{level}_mean", above),
        (f"{level}, posterior mean", _words(above)),
    ):
        values = [float(row[name]) for row in rows]
        low, high = (0.0, 1.0) if name == above else (_quantile(values, 0.02), _quantile(values, 0.98))
        size = max(4.0, min(90.0, 26000 / len(rows)))
        points = axes.scatter(
            x, y, c=values, s=size, cmap="RdBu_r" if name == above else "viridis", vmin=low, vmax=high, linewidths=0
        )
        axes.set_title(words, loc="left", color=INK, fontsize=9.5, fontweight="bold")
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_axis_off()
        bar = made.colorbar(points, ax=axes, shrink=0.75, aspect=18)
        bar.outline.set_visible(False)
        bar.ax.tick_params(labelsize=7.5, color=MUTED)
    return figure("Map", made, "Each area at its centre.")


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def _smoothing(rows: Sequence[Mapping[str, str]], found: tuple[str, str]) -> str:
    """Raw against smoothed rates of Poisson counts."""
    level, _ = found
    seen = [row for row in rows if row.get("observed", "") != "" and float(row.get("exposure", 0) or 0) > 0]
    if level != "rate" or not seen:
        return ""
    made = _shrinkage(seen)
    text = (
        "Observed over expected against the posterior mean with its 90 % interval; areas with little exposure are drawn smaller, "
        "and are drawn to their neighbours most."
    )
    return figure("Smoothing", made, text)


def _shrinkage(rows: Sequence[Mapping[str, str]]) -> Figure:
    made = canvas(7.2, 3.4)
    axes = made.subplots()
    exposure = [float(row["exposure"]) for row in rows]
    raw = [float(row["observed"]) / e for row, e in zip(rows, exposure)]
    mean, low, high = ([float(row[f"rate_{what}"]) for row in rows] for what in ("mean", "q05", "q95"))
    largest = max(exposure)
    axes.vlines(raw, low, high, color=GRID if len(rows) > 200 else MUTED, linewidth=0.6, alpha=0.7, zorder=1)
    axes.scatter(raw, mean, s=[5 + 60 * e / largest for e in exposure], color=BLUE, edgecolor="white", linewidth=0.4, zorder=3)
    top = max(_quantile(raw, 0.99), max(mean))
    axes.plot([0, top], [0, top], color=ORANGE, linewidth=1, linestyle="--", zorder=2)
    axes.set(xlim=(-0.03 * top, 1.05 * top), ylim=(0, 1.1 * max(_quantile(high, 0.98), max(mean))))
    axes.set(xlabel="observed / expected", ylabel="rate")
    tidy(axes, "y")
    axes.yaxis.label.set(color=MUTED, fontsize=8.5)
    return made


def _highest(rows: Sequence[Mapping[str, str]], found: tuple[str, str]) -> str:
    if not rows:
        return ""
    level, above = found
    top = sorted(rows, key=lambda row: (-float(row[above]), -float(row[f"{level}_mean"])))[:LISTED]
    head = [
        "client",
        "area",
        "observed",
        *(["expected"] if "exposure" in rows[0] else []),
        level,
        "5 %",
        "95 %",
        _words(above),
    ]
    body = []
    for row in top:
        cells = [row["client"], row["area"], row["observed"], *([number(float(row["exposure"]))] if "exposure" in row else [])]
        body.append(cells + [number(float(row[key])) for key in (f"{level}_mean", f"{level}_q05", f"{level}_q95", above)])
    text = f"<p class=muted>{len(rows)} areas are in this folder; all of them are in client-NAME/areas.csv.</p>"
    return section("Highest areas", table(head, body) + text)
