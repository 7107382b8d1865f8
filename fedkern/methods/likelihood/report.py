"""Writes the report's sections on a job: coefficients, effects, the weight of priors and clients, and whether the model fits."""

from __future__ import annotations

import math

from ...results import guard, loo, plots, shown
from ...results.page import details, figure, number, numbers_of, paragraph, section, table
from ...results.plain import Record, real
from ...results.report import RunFiles, Tile, calibration, coefficients, guessing, measured
from . import changes
from .patient import describe_values

# Names of parameters that are no coefficients begin so.
EFFECTS = (
    "group_",
    "client_",
    "sigma",
    "nu",
    "dispersion",
    "shape",
    "precision",
    "structural_zeros",
    "threshold[",
    "log_hazard",
    "walk_sd",
)


def sections(run: RunFiles) -> list[str]:
    """Returns the sections of a finished run; "" where a section has nothing to show."""
    first = coefficients(run, begin=("theta", "intercept", *shown.slopes_begin(run.summary)))
    if "own" in run.summary:  # whose parameters have the names that their package gives them
        first = coefficients(run, "Parameters")
    pieces = [first, _marginal(run), _effects(run), _priors(run), _sites(run), _without(run)]
    return [*pieces, _hazards(run), _model(run), loo.piece(run.summary), guessing(run), calibration(run)]


@guard.figure("the page's tiles", [])
def tiles(run: RunFiles) -> list[Tile]:
    """Returns the names and figures at the top of the page."""
    top = measured(run)
    if "k_hat" in run.summary:
        top += [("k-hat", number(real(run.summary["k_hat"]))), ("Effective draws", number(round(real(run.summary["ess"]))))]
    if "log_evidence" in run.summary:
        top.append(("Log evidence", number(real(run.summary["log_evidence"]["value"]))))
    return top


@guard.figure("the page's section marginal", "")
def _marginal(run: RunFiles) -> str:
    content = run.summary.get("marginal", {})
    if not content:
        return ""
    levels = any("level" in row for row in content["effects"].values())
    what = "probability of each level" if levels else "mean of the response"
    text = (
        f"Average marginal effects on the {what}, over the clients' {number(content['rows'])} rows and over the effects of new "
        f"groups and clients. Of a number ({changes.SLOPE}) it is the average derivative: the slope, at each row's own value, "
        f"of the {what}, per unit. Where a unit is large beside the column's spread (a share in [0, 1]), nothing can "
        "change by that much: multiply it by a step of a size that occurs, such as 0.1. Of 0 and 1, and of levels, it is the "
        "difference between one value and another for all rows."
    )
    rows = [[name, row["change"], *(number(real(row[key])) for key in changes.SHOWN)] for name, row in content["effects"].items()]
    return section("Marginal effects", paragraph(text, ""), table(["name", "change", "mean", "sd", "2.5 %", "97.5 %"], rows))


@guard.figure("the page's section effects", "")
def _effects(run: RunFiles) -> str:
    rows = [
        [name, *numbers_of({key: real(row[key]) for key in ("mean", "sd", "q025", "q975")})]
        for name, row in run.summary.get("parameters", {}).items()
        if name.startswith(EFFECTS)
    ]
    if not rows:
        return ""
    text = "How much groups and clients differ, and how responses vary. The effects themselves stay with their holders."
    if any(row[0].startswith("threshold[") for row in rows):
        text = f"Between which levels each threshold stands, on the scale of the linear predictor. {text}"
    return section("Variation", paragraph(text, ""), table(["name", "mean", "sd", "2.5 %", "97.5 %"], rows))


@guard.figure("the page's section priors", "")
def _priors(run: RunFiles) -> str:
    by_name = run.summary.get("sensitivity", {})
    if not by_name:
        return ""
    text = (
        "How far each posterior moves with a small power of the prior, and of the likelihood (power-scaling); from 0.05 on it is "
        "sensitive to it."
    )
    rows = [[name, number(real(row["prior"])), number(real(row["likelihood"])), row["mark"]] for name, row in by_name.items()]
    return section("Sensitivity to the prior", paragraph(text, ""), table(["name", "prior", "likelihood", ""], rows))


@guard.figure("the page's section sites", "")
def _sites(run: RunFiles) -> str:
    by_client = run.summary.get("sites", {})
    text = (
        "What each client's rows say alone, with the job's prior (mode and 95 % of a normal posterior), and below them what all "
        f"say together. At most {plots.MOST_PANELS} coefficients, those with the largest absolute means."
    )
    return figure("Sites", plots.sites(by_client, shown.beside_each_other(run.summary)), text) if by_client else ""


@guard.figure("the page's section without", "")
def _without(run: RunFiles) -> str:
    by_client = run.summary.get("without", {})
    if not by_client:
        return ""
    rows = []
    for client, site in by_client.items():
        if not site["known"]:
            rows.append([client, f"not known: {site['why']}", "", "", "", ""])
            continue
        for name, row in site["parameters"].items():
            rows.append([client, name, *(number(real(row[key])) for key in ("mean", "q025", "q975", "shift"))])
    text = (
        "The result as if a client had not been there, by weights of the draws; shifts are in standard deviations. "
        "Where few clients are left, intervals of the intercept and of clients' effects may be a tenth too narrow: run the job "
        "without that client."
    )
    numbers_of_it = table(["without", "name", "mean", "2.5 %", "97.5 %", "shift"], rows)
    drawn = plots.without(by_client, {**run.summary.get("parameters", {}), **shown.contrasts_of(run.summary)})
    if drawn is None:
        return section("Without a client", paragraph(text, ""), numbers_of_it)
    about = (
        f"{text} Means and 95 % intervals; below them what all say together, whose mean is the dashed line. At most "
        f"{plots.MOST_PANELS} parameters, those that some client's absence shifts most."
    )
    return figure("Without a client", drawn, about, details("All numbers", numbers_of_it))


@guard.figure("the page's section hazards", "")
def _hazards(run: RunFiles) -> str:
    """Survival times: whether ratios of hazards change with time, and whether a higher risk is an earlier event."""
    slopes = run.summary.get("proportional_hazards", {})
    if "events" not in run.summary:
        return ""
    if not slopes:
        text = paragraph(f"{number(run.summary['events'])} events.", "")
        return section("Survival", text, *_curves(run), *_concordance(run))
    text = (
        f"{number(run.summary['events'])} events. Whether ratios of hazards are the same at all times: z of each coefficient's "
        "slope in the rank of the time, within clients, and how often one so far from 0 is seen where they are. Times are not "
        "drawn from the model, for that needs baseline hazards, which stay with the clients."
    )
    rows = [[name, number(real(row["z"])), number(real(row["p"]))] for name, row in slopes.items()]
    proportional = section("Proportional hazards", paragraph(text, ""), table(["name", "z", "p"], rows), *_concordance(run))
    curves = _curves(run)
    return proportional + (section("Survival", *curves) if curves else "")


def _concordance(run: RunFiles) -> list[str]:
    if "concordance" not in run.summary:
        of_causes = run.summary.get("of_causes", {}).items()
        rows = [[cause, number(of["events"]), number(real(of.get("concordance", math.nan)))] for cause, of in of_causes]
        return [table(["cause", "events", "concordance"], rows)] if rows else []
    about = (
        f"Concordance {number(real(run.summary['concordance']))}: of two rows of one client, how often the one at higher "
        "risk has the event earlier (0.5: risks say nothing), in the rows that the model was fitted to."
    )
    return [paragraph(about, "")]


def _curves(run: RunFiles) -> list[str]:
    """The probability to be without event, and the restricted mean, where the job asks for them."""
    summary, pieces = run.summary, list[str]()
    ends = ("mean", "sd", "q025", "q975")
    words = describe_values(summary.get("patient", {}), most=1000)
    about = f"of a patient with {words}" if words else "of any patient"
    if rows := summary.get("survival"):
        cells = [[number(real(row[key])) for key in ("time", *ends)] for row in rows]
        text = f"The probability to be without event, {about}, on average over clients or groups."
        pieces += [paragraph(text, ""), table(["time", "mean", "sd", "2.5 %", "97.5 %"], cells)]
    if causes := summary.get("incidence"):
        cells = [[cause, *(number(real(row[key])) for key in ("time", *ends))] for cause, of in causes.items() for row in of]
        text = f"Cumulative incidence: the probability to have had an event of each cause, {about}, on average over clients."
        pieces += [paragraph(text, ""), table(["cause", "time", "mean", "sd", "2.5 %", "97.5 %"], cells)]
    if row := summary.get("restricted_mean"):
        mean, _, low, high = (number(real(row[key])) for key in ends)
        until = number(real(row["until"]))
        pieces.append(paragraph(f"The mean time without event until {until}, {about}: {mean} ({low} to {high}).", ""))
    return pieces


@guard.figure("the page's section model", "")
def _model(run: RunFiles) -> str:
    """Posterior predictive checks, and the calibration of the clients' own rows."""
    content = run.summary.get("predictive", {})
    if not content:
        return ""
    if "shares" in content:
        return _levels(content)
    if "p" not in content:  # of survival times
        rows = [
            [f"{k / 10:.1f} to {(k + 1) / 10:.1f}", number(real(tenth["share"]))] for k, tenth in enumerate(content["tenths"])
        ]
        text = (
            "Where times stand in their predictive distributions: each tenth should have a share of 0.1. A row without event is "
            "spread over what comes after it, as the model says."
        )
        return section("Does the model fit?", paragraph(text, ""), table(["quantile", "share"], rows))
    p = ", ".join(f"{name} {number(real(value))}" for name, value in content["p"].items())
    text = f"How often responses that are drawn from the model have a larger one than was seen (near 0 or 1 it is not): {p}."
    tenths = content["tenths"]
    if tenths and "frequency" in tenths[0]:
        few = "a client's tenths of fewer than 10 rows are counted with the next"
        about = f"{text} Rows in tenths of the predicted probability; {few}."
        return figure("Does the model fit?", plots.reliability(tenths), about)
    rows = [[f"{k / 10:.1f} to {(k + 1) / 10:.1f}", number(real(tenth["share"]))] for k, tenth in enumerate(tenths)]
    about = "Where responses stand in their predictive distributions: each tenth should have a share of 0.1."
    return section("Does the model fit?", paragraph(text, ""), paragraph(about, ""), table(["quantile", "share"], rows))


def _levels(content: Record) -> str:
    """A response of several levels: shares as seen and as the model makes them, and means of columns by level."""
    text = (
        "Shares of the levels as seen, and as the model makes them; p is how often a share that is drawn from the model is "
        "larger (near 0 or 1 the model is not right)."
    )
    rows = [[level, *(number(real(share[key])) for key in ("seen", "model", "p"))] for level, share in content["shares"].items()]
    pieces = [paragraph(text, ""), table(["level", "seen", "model", "p"], rows)]
    if columns := content.get("columns"):
        about = (
            "Whether one coefficient is right for all thresholds (proportional odds): by how many standard deviations of what "
            "the model makes the sum of a column over the rows of a level is larger than that."
        )
        of = [[name, *(number(real(z)) for z in numbers.values())] for name, numbers in columns.items()]
        pieces += [paragraph(about, ""), table(["column", *content["shares"]], of)]
    return section("Does the model fit?", *pieces)
