"""Draws a result by name, with the functions of the report: `Result.plot`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..errors import JobError
from . import described, graphs, plots, questions, shown
from .selection import Edge

Result = Any  # a `Result`, whose module imports this one
MOST_TRACES = 8  # parameters
Drawn = plots.Figure | None


def _forest(result: Result, options: Mapping[str, Any]) -> Drawn:
    """Coefficients, standardised where there is such a scale; of a graph the chosen edges."""
    summary = result.summary
    if "graph" in summary:
        return graphs.network([*map(Edge.of, summary["graph"]["edges"])], summary["graph"]["nodes"])
    if summary["method"] == "sparse":
        return graphs.effects(summary["parameters"], unsure=summary.get("unsettled", ()))
    compared = shown.beside_each_other(summary)
    begin = ("theta", "intercept", *shown.slopes_begin(summary))
    return plots.forest({name: row for name, row in compared.items() if name.startswith(begin)} or compared)


def _sites(result: Result, options: Mapping[str, Any]) -> Drawn:
    """What each client's rows say alone."""
    if result.summary["method"] == "sparse":
        return graphs.sites(result.summary["parameters"])
    return plots.sites(result.summary.get("sites", {}), shown.beside_each_other(result.summary))


def _predictive(result: Result, options: Mapping[str, Any]) -> Drawn:
    """Whether the model makes responses such as were seen."""
    content = result.summary.get("predictive", {})
    if "shares" in content:
        return plots.shares({level: (row["seen"], row["model"]) for level, row in content["shares"].items()}, "model", "level")
    tenths = content.get("tenths", [])
    if not tenths or "frequency" in tenths[0]:
        return plots.reliability(tenths)
    return plots.shares(
        {f"{k / 10:.1f}": (row["share"], 0.1) for k, row in enumerate(tenths)},
        "a right model",
        "tenth of a row's predictive distribution, from",
    )


def _calibration(result: Result, options: Mapping[str, Any]) -> Drawn:
    """Predicted probabilities of test rows against frequencies."""
    return plots.reliability(result.summary.get("test", {}).get("reliability", []))


def _survival(result: Result, options: Mapping[str, Any]) -> Drawn:
    """The probability to be without event."""
    if "describe" in result.summary:
        return described.survival(result.summary["describe"])
    rows = result.summary.get("survival", [])
    return plots.curves({"": rows}, "time", "probability to be without event") if rows else None


def _histograms(result: Result, options: Mapping[str, Any]) -> Drawn:
    """The rows in each bin of columns of numbers."""
    return described.histograms(result.summary["describe"]) if "describe" in result.summary else None


def _trace(result: Result, options: Mapping[str, Any]) -> Drawn:
    """The states of chains."""
    if not result.posterior.sampled:
        raise JobError('plot("trace"): no chains were run: these draws are independent of each other')
    groups = result._groups
    named = {str(row["parameter"]): questions.drawn(groups, str(row["parameter"])) for row in result.rows(levels=False)}
    return plots.traces({name: draws for name, draws in [*named.items()][:MOST_TRACES] if draws is not None})


def _effects(result: Result, options: Mapping[str, Any]) -> Drawn:
    """Means of the response at chosen values: the first of them along the axis, a line for each combination of the others."""
    rows = result._effects(options.get("by", ()), {name: value for name, value in options.items() if name != "by"})
    names = [name for name in rows.columns if name not in ("mean", "sd", "q025", "q975")]
    if not names:
        return None
    lines: dict[str, list[Any]] = {}
    for row in rows:
        lines.setdefault(", ".join(f"{name} {row[name]}" for name in names[1:]), []).append(row)
    words = "probability" if "level" in names else "mean of the response"
    return plots.curves(lines, names[0], words)


KINDS: dict[str, tuple[Callable[[Result, Mapping[str, Any]], Drawn], str]] = {
    "forest": (_forest, "the result has no coefficients"),
    "sites": (_sites, "no client's own result is known: take output.sites = true (likelihood), or sparse"),
    "predictive": (_predictive, "clients were not asked whether the model fits"),
    "calibration": (_calibration, "there are no test rows of a response of 0 and 1: give test="),
    "survival": (
        _survival,
        "the job asks for no curve (output.survival_at, or of describe time=), or rows are too few to tell one",
    ),
    "histograms": (_histograms, "only a description has bins: fedkern.describe"),
    "map": (lambda result, options: result.maps() if result.maps else None, "no areas are here: sigma, and out= on this machine"),
    "trace": (_trace, "there are no draws"),
    "effects": (_effects, 'nothing says at which values: plot("effects", age=[40, 60], by="sex")'),
}


def plot(result: Result, kind: str, options: Mapping[str, Any]) -> Any:
    """Returns the axes of a figure: one, or an array of several."""
    if kind not in KINDS:
        raise JobError(f"plot({kind!r}): there are {', '.join(KINDS)}")
    if options and kind != "effects":
        raise JobError(f"plot({kind!r}) takes no {', '.join(options)}; effects does")
    draw, why = KINDS[kind]
    drawn = draw(result, options)
    if drawn is None:
        raise JobError(f"plot({kind!r}): {why}")
    axes = [panel for panel in drawn.axes if panel.get_visible() and panel.get_label() != "<colorbar>"]
    return axes[0] if len(axes) == 1 else np.array(axes, object)
