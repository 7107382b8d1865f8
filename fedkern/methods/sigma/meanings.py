"""Explains the numbers of a map in plain words, for a reader of the report's page who does not know the model.

Source: docs/methods/sigma.md, "The table of areas"; docs/spec/sigma.md, sections 1 and 9.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...results.plain import Record
from ...results.report import RunFiles

PHI = (
    "how alike neighbours are, from 0 (an area says nothing of its neighbours) to 1 (a smooth map: what the map adds to an area "
    "is expected at the mean of its neighbours)"
)
HYPER = {
    "car": f"{PHI}. Values far below 0.9 still mean little likeness: half-way is not at 0.5",
    "leroux": PHI,
    "bym2": "the share of what the map adds that is spatial, from 0 (noise, each area for itself) to 1 (a smooth map)",
    "gp": "the distance, in the unit of the coordinates, within which places are alike; at three times as far little is left",
}
EXCEEDED = (
    "the probability, given all clients' data, that the area's {level} is above {limit}. From 0.95 on the data "
    "leave little doubt that it is, from 0.8 on it probably is; below 0.2 it probably is not, below 0.05 hardly; in between they "
    "do not tell"
)
INTERVALS = (
    "all are of 95 %. Beside what was seen stands the exact interval of that area alone, without any model; beside a {level} the "
    "interval in which it lies with a probability of 95 %, given the data, the model and its priors"
)


def of(run: RunFiles, level: str, above: str, exposures: str) -> dict[str, str]:
    """Returns word -> meaning, for the numbers of this page.

    Parameters
    ----------
    level, above : columns of areas, or empty without any
    """
    meanings = dict(_unknowns(run))
    if level:
        limit = above.rpartition("_above_")[2]
        meanings[level] = _level(level, exposures)
        meanings[f"P({level} > {limit})"] = EXCEEDED.format(level=level, limit=_limit(level, limit))
        meanings["Intervals"] = INTERVALS.format(level=level)
    return {word: f"{meaning}." for word, meaning in meanings.items()}


def _limit(level: str, limit: str) -> str:
    """Names the limit in words."""
    return f"the {level} of all clients together" if limit == "overall" else limit


def _level(level: str, exposures: str) -> str:
    """Explains the level."""
    if level == "rate":
        few = "expected cases" if exposures == "expected" else "cases"
        what = f"what observed / {exposures} would be without chance, as the model has it: an area with few {few} leans on "
        what += "its neighbours and covariates"
        if exposures == "exposure":
            return f"{what}. It is cases for one unit of the exposure"
        return f"{what}. 1 is as many cases as expected, 1.2 a fifth more, 0.8 a fifth less"
    what = f"what the {level} would be without chance, as the model has it"
    return f"{what}: an area of which little is known leans on its neighbours and covariates"


def _unknowns(run: RunFiles) -> Iterator[tuple[str, str]]:
    """Yields the hyperparameters, with their posteriors."""
    about, parameters = run.summary.get("sigma", {}), run.summary.get("parameters", {})
    kind = str(about.get("prior", {}).get("kind", ""))
    if run.own:
        kind, parameters = str(run.said.get("prior", "")), run.said.get("parameters", {})
    for name in ("phi", "rho", "lengthscale"):
        if name in parameters:
            prior = "bym2" if name == "rho" else kind
            yield name, f"{_posterior(parameters[name])}: {HYPER[prior]}"
    if "sigma_theta" in parameters:
        row = parameters["sigma_theta"]
        yield "sigma_theta", f"{_posterior(row)}: {_scale(run, kind, float(row['mean']))}"


def _scale(run: RunFiles, kind: str, mean: float) -> str:
    """Explains the size of differences between areas."""
    family = str(run.job.get("model", {}).get("family", "poisson"))
    what = {"gaussian": "mean", "binomial": "odds", "bernoulli": "odds"}.get(family, "rate")
    log = "" if what == "mean" else "the logarithm of "
    text = f"how much areas differ beyond what intercept and covariates say, on {log}the {what}; 0 is a map without differences"
    if kind not in ("car", "bym2", "gp") or mean > 20:
        return text
    by = mean / 2 if kind == "car" else mean  # of an area with four neighbours; of any
    whom = "four neighbours lead one to expect for the area between them" if kind == "car" else "these say"
    within = f"{by:.3g}" if what == "mean" else f"a factor of {math.exp(by):.3g}"
    return f"{text}. Two times in three an area's {what} is within {within} of what {whom}"


def _posterior(row: Record) -> str:
    """Formats a mean with its 95 % interval."""
    ends = f" ({float(row['q025']):.3g} to {float(row['q975']):.3g})" if "q025" in row else ""
    return f"{float(row['mean']):.3g}{ends}"


def ratios(about: Record) -> list[tuple[str, Record]]:
    """Returns the ratios of summary.json, each with its name: of a level against another, of a number for a unit and for an
    sd."""
    of_levels = [*about.get("a level", {}).items()]
    return of_levels + [(f"{name}, {unit}", row) for unit in ("a unit", "an sd") for name, row in about.get(unit, {}).items()]
