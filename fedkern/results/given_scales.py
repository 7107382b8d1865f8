"""Finds columns whose center and scale in the job file do not fit the rows, so that the prior decides their coefficients.

Priors are of standardised columns. With a scale that is far too large the standardised column hardly varies, its coefficient has
to be large, and the prior does not let it. The clients' curvatures at the mode tell the column's spread: of L, their sum, with
the intercept 0, L_jj / L_00 - (L_0j / L_00)^2 is the variance of column j as the rows weigh. Beside it stands the posterior of
the same rows without the prior of these columns and of the intercept: by how much that moves a coefficient, and how wide it is.
Clients round what they tell to what the posterior needs, so where the prior alone decides, L holds nothing of the column.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ..algorithms.importance.newton import Metric
from ..arrays import Array
from ..finding import Finding
from ..models.encoding import Encoding

OFF = 5.0  # times as large as the rows' standard deviation, or so many of these from their mean
MOVED = 0.5  # standard errors of the rows alone


def doubt(
    names: Sequence[str],
    given: Mapping[str, tuple[float, float]],
    rows: tuple[Array, Array],
    prior: tuple[Array, Array],
    *,
    exact: bool = False,
) -> str:
    """Returns why a result cannot stand; "" where it can.

    Parameters
    ----------
    names : of the coefficients, the intercept first
    given : column -> its center and scale, of columns with constants of the job file
    rows, prior : gradient (p,) of the log-density, and minus its second derivatives (p, p), at the mode or the mean
    exact : whether the rows' have all digits
    """
    (g, L), (slope, P) = rows, prior
    if not given or not (np.isfinite(L).all() and np.isfinite(g).all() and L[0, 0] > 0):
        return ""
    mean = L[0] / L[0, 0]
    sd = np.sqrt(np.maximum(np.diag(L) / L[0, 0] - mean**2, 0.0))
    wide = (sd * OFF < 1) | (np.abs(mean) > OFF * np.maximum(sd, 1 / OFF))
    wide &= np.isin(names, list(given))
    kept = np.ones(len(names), bool)
    kept[wide], kept[0] = False, False
    free = Metric.of(L + P * np.outer(kept, kept))
    variance = (Metric.of(L + P).factor ** 2).sum(axis=1)
    of_rows = (free.factor**2).sum(axis=1)
    moved = np.abs(free.factor @ (free.factor.T @ (g + slope * kept))) / np.sqrt(of_rows)
    # The prior tells more than the rows do: what is left of these is of the size of their rounding.
    lost = np.logical_or(not free.positive, of_rows > 2 * variance)
    odd = np.flatnonzero(wide & (lost | (moved > MOVED)))
    if not len(odd):
        return ""
    bound = lost & (not exact)
    most = np.where(bound, 1 / np.sqrt(variance * L[0, 0]), sd)
    texts = [
        f"{names[j]!r} (the rows' mean is about {center + mean[j] * scale:.2g}, their standard deviation "
        f"{'at most ' * bool(bound[j])}{most[j] * scale:.2g}; given are {center:g} and {scale:g})"
        for j, (center, scale) in ((j, given[names[j]]) for j in odd.tolist())
    ]
    return Finding.of("given-scales-do-not-fit", columns=texts)


def given_columns(encoding: Encoding, named: Collection[str]) -> dict[str, tuple[float, float]]:
    """Returns the numeric columns whose constants the job file gives (`named`), or follow from these -> the constants."""
    given, formula = {*named}, encoding.formula
    if formula is not None:
        given = {made.name for made in formula.made if any(given & {*formula.factors[text].variables} for text, *_ in made.of)}
    return {column.name: column.constants for column in encoding.columns if column.levels is None and column.name in given}
