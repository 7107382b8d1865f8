"""The report's sections on a partitioned job: learning curves and coefficients."""

from __future__ import annotations

from ...results import plots
from ...results.gaussian import comparable
from ...results.page import figure, number, table
from ...results.report import RunFiles, Tile, learning, measured


def sections(run: RunFiles) -> list[str]:
    """Sections of a finished run."""
    return [learning(run), _coefficients(run)]


def tiles(run: RunFiles) -> list[Tile]:
    """What stands at the top of the page."""
    return measured(run)


def _coefficients(run: RunFiles) -> str:
    parameters = run.summary.get("parameters", {})
    if not parameters:
        return ""
    n = len(comparable(parameters))
    note = f"The {plots.MOST_ROWS} of {n} with the largest absolute means. " if n > plots.MOST_ROWS else ""
    rows = [[name, *(number(v[k]) for k in ("mean", "sd", "q05", "q95"))] for name, v in parameters.items()]
    numbers = table(["name", "mean", "sd", "5 %", "95 %"], rows)
    text = f"{note}Grey intervals hold zero."
    more = f"<details><summary>All numbers</summary>{numbers}</details>"
    return figure("Coefficients", plots.forest(comparable(parameters)), text, more)
