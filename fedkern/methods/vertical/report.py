"""Makes the report's sections on vertically split data: predictions with all parties and without one, and the ELBO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...results import guard
from ...results.page import figure, number, paragraph, section, table
from ...results.plain import Record
from ...results.plots import BLUE, canvas, reliability, tidy
from ...results.report import RunFiles, Tile, against_guessing

SCORES = {
    "log_likelihood": "log-likelihood",
    "accuracy": "accuracy",
    "brier": "Brier score",
    "calibration_error": "calibration error",
    "log_likelihood_wrong": "of wrong ones",
    "rmse": "root mean square error",
    "coverage_90": "coverage of 90 % intervals",
}
FILLED = {"conditional": "given the others", "mean": "its mean", "columns": "what the others' columns say"}


def sections(run: RunFiles) -> list[str]:
    """Returns the sections of a finished run."""
    prediction = run.summary.get("prediction", {})
    scores = [_predictions(prediction), _reliability(prediction), _without(prediction)]
    return [_parameters(run.summary), *scores, _bound(run.lines)]


@guard.figure("the page's tiles", [])
def tiles(run: RunFiles) -> list[Tile]:
    """Returns the tiles at the top of the page."""
    scores = run.summary.get("metrics", {})
    shown = [
        (SCORES[name].capitalize(), number(scores[name])) for name in ("log_likelihood", "accuracy", "rmse") if name in scores
    ]
    return [*shown, ("Training rows", number(run.summary["inference"]["rows"]))]


def _rows(scores: Mapping[str, Mapping[str, float]]) -> tuple[list[str], list[list[str]]]:
    """Returns head and rows of a table of scores."""
    keys = [key for key in SCORES if any(key in row for row in scores.values())]
    rows = [[label, *(number(row[key]) if key in row else "" for key in keys)] for label, row in scores.items()]
    return ["", *(SCORES[key] for key in keys)], rows


@guard.figure("the page's section predictions", "")
def _predictions(prediction: Record) -> str:
    """Makes a table of the scores under every rule."""
    if not prediction:
        return ""
    text = (
        f"{prediction['rows']} rows were kept for testing. The rule of this run is {prediction['rule']}: plug-in takes the "
        "predictor's mean, posterior averages over the coefficients' posterior, augmented adds the auxiliary variables' variance."
    )
    chosen = prediction["rules"][prediction["rule"]]["log_likelihood"]
    worse = against_guessing(chosen, prediction.get("guess"))
    notes = [paragraph(worse, "note")] if worse else []
    return section("Predictions", *notes, table(*_rows(prediction["rules"])), paragraph(text))


@guard.figure("the page's section reliability", "")
def _reliability(prediction: Record) -> str:
    """Draws observed frequencies against predicted probabilities."""
    bins = prediction.get("reliability", [])
    text = "Observed frequency against predicted probability, in tenths, with the number of rows. On the line they agree."
    return figure("Reliability", reliability(bins), text)


@guard.figure("the page's section without", "")
def _without(prediction: Record) -> str:
    """Makes a table of the scores without each party."""
    head: list[str] = []
    rows: list[list[str]] = []
    for party, ways in prediction.get("without", {}).items():
        head, lines = _rows({FILLED[way]: scores for way, scores in ways.items()})
        rows += [[party, *row] for row in lines]
    ways = "its mean, by what the others' parts make of it, or by what their columns do"
    text = paragraph(f"What the missing party would add is replaced by {ways}.")
    return section("If a party is missing", table(["missing", "replaced by", *head[1:]], rows), text) if rows else ""


@guard.figure("the page's section bound", "")
def _bound(lines: Sequence[Record]) -> str:
    """Draws the ELBO over the rounds."""
    points = [(line["round"], line["metrics"]["elbo"]) for line in lines if "elbo" in line.get("metrics", {})]
    if len(points) < 2:
        return ""
    drawn = canvas(7.2, 2.6)
    axes = drawn.subplots()
    axes.plot(*zip(*points), color=BLUE, linewidth=1.4)
    low = sorted(value for _, value in points)[len(points) // 20]
    axes.set_ylim(bottom=low)
    axes.set_xlabel("rounds")
    tidy(axes, "y")
    return figure("ELBO", drawn, "Means over the rounds between two lines of metrics.jsonl; each round has one noisy value.")


@guard.figure("the page's section parameters", "")
def _parameters(summary: Record) -> str:
    """Makes a table of the server's parameters."""
    rows = [[name, *(number(v[k]) for k in ("mean", "sd", "q05", "q95"))] for name, v in summary.get("parameters", {}).items()]
    rows += [[name, number(value), "", "", ""] for name, value in summary.get("mode", {}).items()]
    text = paragraph("Each client's coefficients are in its own folder: no message carries them.")
    of_server = table(["name", "mean", "sd", "5 %", "95 %"], rows) if rows else ""
    return section("At the server", of_server, text)
