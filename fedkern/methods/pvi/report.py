"""Makes the report's sections of a partitioned job: coefficients, predictions of test rows, and learning curves."""

from __future__ import annotations

from ...results import guard, plots
from ...results import shown as among
from ...results.page import details, figure, number, paragraph, section, table
from ...results.report import RunFiles, Tile, against_guessing, cost_of_privacy, learning, measured, numbers


def sections(run: RunFiles) -> list[str]:
    """Returns the sections of a finished run."""
    return [_coefficients(run), _guessing(run), _calibration(run), learning(run)]


@guard.figure("the page's tiles", [])
def tiles(run: RunFiles) -> list[Tile]:
    """Returns the tiles at the top of the page."""
    return measured(run)


@guard.figure("the page's section coefficients", "")
def _coefficients(run: RunFiles) -> str:
    """Draws the coefficients, with a table of all numbers."""
    parameters = run.summary.get("parameters", {})
    if not parameters:
        return ""
    coefficients = among.beside_each_other(run.summary)
    n = len(coefficients)
    note = f"The {plots.MOST_ROWS} of {n} with the largest absolute means. " if n > plots.MOST_ROWS else ""
    shown = numbers(run)
    if not shown:  # without a posterior.nc
        rows = [[name, *(number(v[k]) for k in ("mean", "sd", "q05", "q95"))] for name, v in parameters.items()]
        shown = [details("All numbers", table(["name", "mean", "sd", "5 %", "95 %"], rows))]
    pooled = among.beside_each_other(run.pooled) if run.pooled else {}
    orange = f" Orange: all rows pooled, without privacy. {cost_of_privacy(run.summary, run.pooled)}" if pooled else ""
    return figure("Coefficients", plots.forest(coefficients, pooled), f"{note}Grey intervals hold zero.{orange}", *shown)


@guard.figure("the page's section guessing", "")
def _guessing(run: RunFiles) -> str:
    """Compares the test rows' score with that of guessing."""
    metrics, guess = run.summary.get("metrics", {}), run.summary.get("test", {}).get("guess")
    said = against_guessing(metrics["log_likelihood"], guess) if "log_likelihood" in metrics else ""
    return section("Test rows", paragraph(said, "note")) if said else ""


@guard.figure("the page's section calibration", "")
def _calibration(run: RunFiles) -> str:
    """Draws predicted probabilities of test rows against frequencies."""
    bins = run.summary.get("test", {}).get("reliability", [])
    rows = sum(b["rows"] for b in bins)
    text = f"{rows:,} test rows in tenths of the predicted probability. On the line prediction and frequency agree."
    return figure("Calibration", plots.reliability(bins), text)
