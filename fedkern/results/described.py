"""Shows a description of columns: a Table 1 and other tables as texts, and figures."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from . import plots
from .plain import Record
from .plots import COLOURS, MUTED, Figure, canvas, caption, tidy

QUANTILES = {"q25": 0.25, "median": 0.5, "q75": 0.75}
BESIDE = 8  # groups, or clients, beside all rows
VALUES = 2  # of a column whose quartiles say nothing
RISKS = 6  # times in a risk table
FEW = 30  # intervals of a curve, whose ends are marked
Cells = list[list[str]]  # the first row is the head


def table_one(content: Record) -> Cells:
    """Returns a Table 1 of `describe` of summary.json: all rows, and each group, or each client where none is."""
    group = content["group"]
    rows = [row for row in content["rows"] if row["by"] in ("", group) and (not group or not row["client"])]
    whole = {"", *(row["level"] for row in rows if row["column"] == group)}  # groups that join others for a column are not shown
    rows = [row for row in rows if row["group"] in whole]
    beside = list(dict.fromkeys((row["client"], row["group"]) for row in rows))[: BESIDE + 1]
    by = {(row["column"], row["level"], row["client"], row["group"]): row for row in rows}
    levels = {column: list(dict.fromkeys(row["level"] for row in rows if row["column"] == column)) for column, *_ in by}
    lines: Cells = [["", *("all" if key == ("", "") else "".join(key) for key in beside)]]

    def add(words: str, column: str, level: str, show: Callable[[Record], str]) -> None:
        found = [by.get((column, level, *key)) for key in beside]
        cells = ["" if row is None else show(row) for row in found]
        lines.extend([[words, *cells]] if any(cells) else [])

    first = next(iter(levels), "")
    add("rows", first, "", lambda row: f"{row['n'] + (row['missing'] or 0):,}")
    for column, names in levels.items():
        rows_of_column = [row for row in rows if row["column"] == column]
        # Of a column of many numbers its bins are a histogram's.
        few = any(row["level"] and row["from"] is row["to"] is None for row in rows_of_column)
        if not few or len(names) - 1 != VALUES:
            add(f"{column}, mean (sd)", column, "", _mean)
            add(f"{column}, median [quartiles]", column, "", _quartiles)
        for name in names[1:] if few else ():
            add(f"{column} = {name}, n (%)", column, name, _share)
        if any((row := by.get((column, "", *key))) is not None and row["missing"] for key in beside):
            add(f"{column}, missing", column, "", lambda row: "few" if row["missing"] is None else f"{row['missing']:,}")
    return lines


def _share(row: Record) -> str:
    """Returns rows and their share, with its limits where counts have noise."""
    percent = {key: row[key] and 100 * row[key] for key in row if key.startswith("share")}
    return f"{row['count']:,} ({100 * (row['share'] or 0):.1f}){_limits(percent, 'share', '.1f')}"


def _mean(row: Record) -> str:
    """Returns mean and sd, with the limits of the mean where it is one of counts."""
    return "" if row["mean"] is None else "{} ({})".format(*(_short(row[name]) for name in ("mean", "sd"))) + _limits(row, "mean")


def _limits(row: Record, name: str, digits: str = ".4g") -> str:
    """Returns the limits of an estimate in words; nothing without any, and where it is exact."""
    low, high = row.get(f"{name}_q05"), row.get(f"{name}_q95")
    return "" if low is None or low == high else f" [{low:{digits}} to {high:{digits}}]"


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _quartiles(row: Record) -> str:
    """Returns the median with quartiles, or the bins in which they lie; nothing where these say nothing."""
    names = ("median", "q25", "q75")
    # Of both ends the second one is not in the bin; other words name one end, or one value.
    parts = [re.sub("from (.*) below ", r"\1 to <", row.get(f"{name}_in") or "") for name in names]
    parts = [part.replace("below ", "<").replace("from ", ">= ") for part in parts]
    shown = [part if row[name] is None else _short(row[name]) for name, part in zip(names, parts)]
    return "{} [{}, {}]".format(*shown) if "any" not in shown and (len(set(shown)) > 1 or row["median"] is not None) else ""


def cross(content: Record) -> dict[str, Cells]:
    """Returns the cross tables of all clients' rows by their names."""
    tables: dict[str, dict[str, dict[str, str]]] = {}
    for row in content["rows"]:
        if not row["client"] and row["level"] and row["by"] not in ("", content["group"]):
            table = tables.setdefault(f"{row['column']} by {row['by']}", {})
            table.setdefault(row["level"], {})[row["group"]] = f"{row['count']:,}"
    heads = {name: list(dict.fromkeys(level for cells in rows.values() for level in cells)) for name, rows in tables.items()}
    return {
        name: [["", *heads[name]], *([level, *(cells.get(head, "") for head in heads[name])] for level, cells in rows.items())]
        for name, rows in tables.items()
    }


def correlations(content: Record) -> Cells:
    """Returns the correlations of all clients' rows as a triangle; nothing without any."""
    pairs = {(row["first"], row["second"]): f"{row['r']:.2f}" for row in content["correlations"] if not row["client"]}
    firsts, seconds = (list(dict.fromkeys(pair[k] for pair in pairs)) for k in (0, 1))
    return (
        [["", *firsts], *([second, *(pairs.get((first, second), "") for first in firsts)] for second in seconds)] if pairs else []
    )


def log_rank(content: Record) -> str:
    """Returns the log-rank test in words; "" without."""
    test = content["log_rank"]
    return f"log-rank: chi-squared {test['chi2']:.2f} of {test['df']} df, p = {test['p']:.2g}" if test else ""


def histograms(content: Record) -> Figure | None:
    """Draws the rows in each bin of each column of numbers, by its width; None where there is none."""
    bins: dict[str, list[Record]] = {}
    for row in content["rows"]:
        if not row["client"] and not row["by"] and (row["from"] is not None or row["to"] is not None):
            bins.setdefault(row["column"], []).append(row)
    names = list(bins)[: plots.MOST_PANELS]
    if not names:
        return None
    across = min(3, len(names))
    down = -(-len(names) // across)
    figure = canvas(7.2, 1.9 * down)
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for axes, name in zip(panels, names):
        inner = [row["to"] - row["from"] for row in bins[name] if None not in (row["from"], row["to"])]
        width = max(inner, default=1.0)  # of bins without an end, too
        for row in bins[name]:
            begin = row["to"] - width if row["from"] is None else row["from"]
            end = begin + width if row["to"] is None else row["to"]
            axes.bar(begin, row["count"] / (end - begin), end - begin, align="edge", color=COLOURS[0], alpha=0.55, linewidth=0)
        axes.set_title(caption(name), loc="left", fontsize=9)
        axes.set_yticks([])
        tidy(axes, "y")
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    return figure


def survival(content: Record) -> Figure | None:
    """Draws Kaplan-Meier curves with their limits, and below them the rows at risk; None where there are none."""
    lines: dict[str, list[Record]] = {}
    for row in content["survival"]:
        if not row["client"]:
            lines.setdefault(row["group"], []).append(row)
    if not lines:
        return None
    table = 0.3 + 0.2 * len(lines)
    figure = canvas(7.2, 3.2 + table)
    axes, risks = figure.subplots(2, 1, sharex=True, height_ratios=[3.2, table])
    for k, (name, rows) in enumerate(lines.items()):
        colour, times = COLOURS[k % len(COLOURS)], [0.0, *(row["time"] for row in rows)]
        lower, curve, upper = ([1.0, *(row[key] for row in rows)] for key in ("lower", "survival", "upper"))
        # Between the ends of intervals nothing is told: lines.
        axes.plot(
            times,
            curve,
            "o-" if len(rows) < FEW else "-",
            color=colour,
            linewidth=1.6,
            markersize=4,
            label=caption(name or "all rows"),
        )
        axes.fill_between(times, lower, upper, color=colour, alpha=0.15, linewidth=0)
        for i in np.unique(np.searchsorted(times[:-1], np.linspace(0, times[-1], RISKS), side="right") - 1):
            risks.text(times[i], -k, f"{rows[i]['at_risk']:,}", ha="center", va="center", fontsize=8, color=colour)
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("probability to be without event", color=MUTED, fontsize=8.5)
    if len(lines) > 1:
        axes.legend(frameon=False, fontsize=8)
    tidy(axes, "y")
    risks.set_ylim(0.6 - len(lines), 0.6)
    risks.set_yticks([-k for k in range(len(lines))], [caption(name or "at risk") for name in lines])
    risks.set_xlabel("time, and rows at risk")
    tidy(risks, "x")
    risks.grid(visible=False)
    return figure
