"""Finds, for several methods, a site whose outcome of 0 and 1 seems to be coded the other way round, in the same words.

`heterogeneity.find_reversed` compares sums where all slopes are 0. A partitioned fit has gradient and curvature of each site at q
instead, with rows weighted by the variance that q foresees: where a site has far more events than that, its slopes look as if
they had the other sign. So `where_slopes_are_0` computes from these the sums without weights, as if the linear predictor of a
site's rows, and their columns given it, were normal. Source: docs/concepts/convergence.md, "An outcome the other way round".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from ..arrays import Array
from ..finding import Finding
from . import heterogeneity

REWRITE = "rewrite-outcome"
OF_TWO = "slopes-reversed"

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
WIDEST = 25.0  # variance of a linear predictor: rows that are weighted by a logistic density show no more
STEPS = 60
NEAR = 1e-4


class Reversed(NamedTuple):
    """Says that an outcome may be coded the other way round at a client: a note, and why the result cannot stand, or ""."""

    note: str
    doubt: str


class Sums(NamedTuple):
    """Holds sums of sites where all slopes are 0."""

    chance: float  # of the outcome 1 there, at all sites together
    # g, P: (M, d) and (M, d, d) gradient and minus second derivatives, the intercept's first, each row at that chance
    g: Array
    P: Array


def where_slopes_are_0(mean: Array, g: Array, P: Array, columns: Sequence[int]) -> Sums:
    """Returns the sums of sites where all slopes are 0.

    Parameters
    ----------
    mean : (d,) of q
    g, P : (M, d) and (M, d, d) each site's gradient and X'WX at q, an intercept's first
    columns : the coefficients that are compared, without the intercept; others, as those of sites, are constant at a site
    """
    columns_of, of_sites = np.array(columns, np.int64), list[tuple[float, float, Array, Array, Array]]()
    for slope, curvature in zip(g, P):
        weight = float(curvature[0, 0])
        if weight <= 0:  # no rows, or none that tells of anything
            of_sites.append((0.0, 0.0, *np.zeros((2, len(columns))), np.zeros((len(columns), len(columns)))))
            continue
        toward = curvature @ mean / weight
        middle = curvature[0, columns_of] / weight
        # Of rows weighted by W: mean and variance of the linear predictor, and its covariance with columns.
        level, across = float(toward[0]), toward[columns_of] - middle * toward[0]
        variance = float(mean @ toward) - level**2
        covariance = curvature[np.ix_(columns_of, columns_of)] / weight - np.outer(middle, middle)
        moved, wider, rate, spread = _unweighted(level, max(variance, 0.0))
        if variance > 1e-12:
            middle = middle + across * (moved - level) / variance
            covariance = covariance + np.outer(across, across) * (wider - variance) / variance**2
            across = across * wider / variance
        rows = weight / spread
        count, with_ones = float(slope[0]) + rows * rate, slope[columns_of] + rows * (middle * rate + across * spread)
        of_sites.append((rows, count, with_ones, middle, covariance))
    n, ones = (np.array([of_site[i] for of_site in of_sites]) for i in (0, 1))
    chance = float(np.clip((ones.sum() + 0.5) / (n.sum() + 1), 1e-6, 1 - 1e-6))
    middles, covariances = np.stack([of_site[3] for of_site in of_sites]), np.stack([of_site[4] for of_site in of_sites])
    x = np.column_stack([np.ones(len(n)), middles])
    P0 = np.einsum("ki,kj->kij", x, x)
    P0[:, 1:, 1:] += covariances
    scores = np.column_stack([ones, np.stack([of_site[2] for of_site in of_sites])])
    each = chance * (1 - chance) * n
    return Sums(chance, scores - chance * n[:, None] * x, each[:, None, None] * P0)


def _unweighted(level: float, variance: float) -> tuple[float, float, float, float]:
    """Finds the normal linear predictor that has this mean and variance in rows weighted by p (1 - p). Returns its mean and
    variance, and the means of p and of p (1 - p)."""
    mean, var = level, variance
    for _ in range(STEPS):
        u = mean + np.sqrt(var) * NODES
        p = expit(u)
        w = WEIGHTS * p * (1 - p)
        w = w / w.sum()
        seen = float(w @ u)
        wide = float(w @ (u - seen) ** 2)
        if abs(level - seen) < NEAR and abs(variance - wide) < NEAR * variance:
            break
        mean += float(np.clip(level - seen, -1.0, 1.0))
        var = min(var * float(np.clip(variance / max(wide, 1e-300), 0.5, 2.0)), WIDEST)
    p = expit(mean + np.sqrt(var) * NODES)
    return mean, var, float(WEIGHTS @ p), float(WEIGHTS @ (p * (1 - p)))


def find(sums: Sums, names: Sequence[str], column: str | None) -> Reversed | None:
    """Returns the words on a site whose outcome seems to be coded the other way round; None where none does."""
    found, mirrored = heterogeneity.find_reversed(*sums), heterogeneity.mirrored(*sums)
    if found:
        return describe([names[k] for k in found], column, OF_TWO)
    return describe_rates([names[k] for k in mirrored], column) if mirrored else None


def describe(who: Sequence[str], column: str | None, id: str, of: Mapping[str, str] | None = None) -> Reversed:
    """Says that slopes are minus those of the others; `id` and `of`: the finding, and values that it has beside the column."""
    note = Finding.of(id, clients=who, column=column, remedies=[REWRITE], **(of or {}))
    return Reversed(note, Finding.of("response-reversed", clients=who, column=column))


def describe_rates(who: Sequence[str], column: str | None) -> Reversed:
    """Says that the outcome is about as often 1 as it is 0 elsewhere, which alone is no doubt."""
    return Reversed(Finding.of("outcome-reversed", clients=who, column=column, remedies=[REWRITE]), "")
