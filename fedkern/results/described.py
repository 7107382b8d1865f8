"""Shows a description of columns: a Table 1 as texts, and its figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from . import plots
from .plain import Record
from .plots import COLOURS, MUTED, Figure, canvas, caption, tidy

SHOWN = 8  # columns of a Table 1, panels of a row
RISKS = 6  # times in a risk table


def table_one(content: Record) -> list[list[str]]:
    """Returns the rows of a Table 1, the first of which is its head: all rows, and each group, or each client where none is.

    Parameters
    ----------
    content : `describe` of summary.json
    """
    rows = [row for row in content["rows"] if not content["group"] or not row["client"]]
    beside = list(dict.fromkeys((row["client"], row["group"]) for row in rows))[: SHOWN + 1]
    by = {(row["column"], row["level"], row["client"], row["group"]): row for row in rows}
    head = ["", *("all" if key == ("", "") else "".join(key) for key in beside)]
    lines: dict[str, list[str]] = {}
    levels: dict[str, list[str]] = {}
    for row in rows:
        levels.setdefault(row["column"], [])
        if row["level"] and row["level"] not in levels[row["column"]]:
            levels[row["column"]].append(row["level"])

    def cells(column: str, level: str, show: Any) -> list[str]:
        return ["" if (row := by.get((column, level, *key))) is None else show(row) for key in beside]

    total = {key: max((row["n"] + (row["missing"] or 0) for row in rows if (row["client"], row["group"]) == key), default=0) for key in beside}
    lines["rows"] = [f"{total[key]:,}" for key in beside]
    for column, names in levels.items():
        if any(by.get((column, "", *key), {}).get("mean") is not None for key in beside):
            lines[f"{column}, mean (sd)"] = cells(column, "", _mean)
            lines[f"{column}, median [quartiles]"] = cells(column, "", _quartiles)
        elif not names:
            lines[f"{column}, median [quartiles]"] = cells(column, "", _quartiles)
        for name in names:
            lines[f"{column} = {name}, n (%)"] = cells(column, name, _count)
        if any(by.get((column, "", *key), {}).get("missing") for key in beside):
            lines[f"{column}, missing"] = cells(column, "", lambda row: "few" if row["missing"] is None else f"{row['missing']:,}")
    return [head, *([name, *row] for name, row in lines.items())]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _mean(row: Record) -> str:
    return "" if row["mean"] is None else f"{_number(row['mean'])} ({_number(row['sd'])})"


def _quartiles(row: Record) -> str:
    return "" if row["median"] is None else f"{_number(row['median'])} [{_number(row['q25'])}, {_number(row['q75'])}]"


def _count(row: Record) -> str:
    return f"{row['count']:,}" + ("" if row["share"] is None else f" ({100 * row['share']:.1f})")


def histograms(content: Record) -> Figure | None:
    """Draws the rows in each bin of each column of numbers, by its width; None where there is none."""
    names = list(dict.fromkeys(row["column"] for row in content["histograms"]))[: plots.MOST_PANELS]
    if not names:
        return None
    across = min(3, len(names))
    down = -(-len(names) // across)
    figure = canvas(7.2, 1.9 * down)
    panels = figure.subplots(down, across, squeeze=False).ravel()
    for axes, name in zip(panels, names):
        bins = [row for row in content["histograms"] if row["column"] == name and not row["client"]]
        inner = [row for row in bins if row["from"] is not None and row["to"] is not None]
        width = max((row["to"] - row["from"] for row in inner), default=1.0)
        ends = [(_end(row, "from", "to", -width), _end(row, "to", "from", width), row["count"]) for row in bins]
        for begin, end, count in ends:
            axes.bar(begin, count / (end - begin), end - begin, align="edge", color=COLOURS[0], alpha=0.55, linewidth=0)
        axes.set_title(caption(name), loc="left", fontsize=9)
        axes.set_yticks([])
        tidy(axes, "y")
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    return figure


def _end(row: Record, own: str, other: str, width: float) -> float:
    """Returns an end of a bin; one without a limit is as wide as the widest other."""
    if row[own] is not None:
        return float(row[own])
    return float(row[other] if row[other] is not None else 0.0) + width


def survival(content: Record) -> Figure | None:
    """Draws Kaplan-Meier curves with 95 % limits, and below them the rows at risk; None where there are none."""
    lines: dict[str, list[Record]] = {}
    for row in content["survival"]:
        if not row["client"]:
            lines.setdefault(row["group"], []).append(row)
    if not lines:
        return None
    figure = canvas(7.2, 3.2 + 0.22 * len(lines))
    axes, risks = figure.subplots(2, 1, sharex=True, height_ratios=[3, 0.25 + 0.22 * len(lines)])
    for k, (name, rows) in enumerate(lines.items()):
        colour = COLOURS[k % len(COLOURS)]
        times = [0.0, *(row["time"] for row in rows)]
        curve = [1.0, *(row["survival"] for row in rows)]
        axes.step(times, curve, where="post", color=colour, linewidth=1.6, label=caption(name or "all rows"))
        limits = ([1.0, *(row[key] for row in rows)] for key in ("lower", "upper"))
        axes.fill_between(times, *limits, step="post", color=colour, alpha=0.15, linewidth=0)
        starts = [0.0, *(row["time"] for row in rows[:-1])]
        for at in np.unique(np.linspace(0, len(rows) - 1, min(RISKS, len(rows))).astype(int)):
            risks.text(starts[at], -k, f"{rows[at]['at_risk']:,}", ha="center", va="center", fontsize=8, color=colour)
    axes.set_ylim(0, 1.02)
    axes.set_ylabel("without event", color=MUTED, fontsize=8.5)
    if len(lines) > 1:
        axes.legend(frameon=False, fontsize=8)
    tidy(axes, "y")
    risks.set_ylim(0.6 - len(lines), 0.6)
    risks.set_yticks([-k for k in range(len(lines))], [caption(name or "at risk") for name in lines])
    risks.set_xlabel("time, and rows at risk then")
    tidy(risks, "y")
    risks.grid(visible=False)
    return figure


def correlations(content: Record) -> list[list[str]]:
    """Returns the correlations of all clients' rows as a triangle, the first row of which is its head."""
    pairs = {(row["first"], row["second"]): row["r"] for row in content["correlations"] if not row["client"]}
    firsts, seconds = (list(dict.fromkeys(pair[k] for pair in pairs)) for k in (0, 1))
    rows = [[second, *(f"{pairs[first, second]:.2f}" if (first, second) in pairs else "" for first in firsts)] for second in seconds]
    return [["", *firsts], *rows] if pairs else []


def cross(content: Record) -> dict[str, list[list[str]]]:
    """Returns the cross tables of all clients' rows by their names."""
    tables: dict[str, dict[str, dict[str, int]]] = {}
    for row in content["cross"]:
        if not row["client"]:
            one = tables.setdefault(f"{row['first']} and {row['second']}", {})
            one.setdefault(row["first_level"], {})[row["second_level"]] = row["count"]
    out = {}
    for name, rows in tables.items():
        columns = list(next(iter(rows.values())))
        out[name] = [["", *columns], *([level, *(f"{cells[column]:,}" for column in columns)] for level, cells in rows.items())]
    return out


def log_rank(content: Record) -> str:
    """Returns the log-rank test in words; "" without."""
    test: Mapping[str, Any] | None = content.get("log_rank")
    return "" if not test else f"log-rank: chi-squared {test['chi2']:.2f} of {test['df']} df, p = {test['p']:.2g}"

