"""Finds columns whose center and scale in the job file do not fit the rows, so that the prior decides their coefficients.

Priors are of standardised columns. With a scale that is far too large the standardised column hardly varies, its coefficient has
to be large, and the prior does not let it. The clients' curvatures at the mode tell the column's spread: of L, their sum, with
the intercept 0, L_jj / L_00 - (L_0j / L_00)^2 is the variance of column j as the rows weigh. Beside it stands the posterior of
the same rows without the prior of these columns and of the intercept: by how much that moves a coefficient, and how wide it is.
Clients round what they tell to what the posterior needs, so where the prior alone decides, L holds nothing of the column.
"""

from __future__ import annotations

import numpy as np

from ...algorithms.importance.draws import Found
from ...algorithms.importance.newton import Metric
from ...finding import Finding
from ...results import guard
from .model import Model

OFF = 5.0  # times as large as the rows' standard deviation, or so many of these from their mean
MOVED = 0.5  # standard errors of the rows alone


@guard.check("the scales that the job gives", None)
def doubt(found: Found, model: Model) -> str:
    """Returns why the result cannot stand; "" where it can, or where no center and scale are given."""
    given = given_columns(model)
    names, at, intercept = model.compared
    if not given or not intercept:
        return ""
    L, g = found.own_hessian.sum(axis=0)[np.ix_(at, at)], found.own_gradient.sum(axis=0)[at]
    if not (np.isfinite(L).all() and np.isfinite(g).all() and L[0, 0] > 0):
        return ""
    _, slope, prior = model.prior.curvature(found.mode)
    mean = L[0] / L[0, 0]
    sd = np.sqrt(np.maximum(np.diag(L) / L[0, 0] - mean**2, 0.0))
    wide = (sd * OFF < 1) | (np.abs(mean) > OFF * np.maximum(sd, 1 / OFF))
    wide &= np.isin(names, list(given))
    kept = np.ones(len(at), bool)
    kept[wide], kept[0] = False, False
    free = Metric.of(L + prior[np.ix_(at, at)] * np.outer(kept, kept))
    variance = (Metric.of(L + prior[np.ix_(at, at)]).factor ** 2).sum(axis=1)
    of_rows = (free.factor**2).sum(axis=1)
    moved = np.abs(free.factor @ (free.factor.T @ (g + slope[at] * kept))) / np.sqrt(of_rows)
    # The prior tells more than the rows do: what is left of these is of the size of their rounding.
    lost = np.logical_or(not free.positive, of_rows > 2 * variance)
    odd = np.flatnonzero(wide & (lost | (moved > MOVED)))
    if not len(odd):
        return ""
    most = np.where(lost, 1 / np.sqrt(variance * L[0, 0]), sd)
    said = [
        f"{names[j]!r} (the rows' mean is about {center + mean[j] * scale:.2g}, their standard deviation "
        f"{'at most ' * bool(lost[j])}{most[j] * scale:.2g}; given are {center:g} and {scale:g})"
        for j, (center, scale) in ((j, given[names[j]]) for j in odd)
    ]
    return Finding.of("given-scales-do-not-fit", columns=said)


def given_columns(model: Model) -> dict[str, tuple[float, float]]:
    """Returns the numeric columns whose constants the job file gives, or follow from these -> the constants."""
    given, formula = set(model.given_constants), model.encoding.formula
    if formula is not None:
        given = {made.name for made in formula.made if any(given & {*formula.factors[text].variables} for text, *_ in made.of)}
    return {one.name: one.constants for one in model.encoding.columns if one.levels is None and one.name in given}
