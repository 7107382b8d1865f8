"""Checks how well a fit agrees with each area of a client: its density without it, residuals, and whether neighbours' residuals
agree.

An area's own effect follows its own rows, so that a density given the effect says little of how well they are foreseen. So
theta_i is integrated out, given all else that a draw holds: theta_i ~ N(mean, v) without the area's rows, by Gauss-Hermite nodes
about the mode (Vehtari, Mononen, Tolvanen, Sivula and Winther, 2016; Li, Qiu, Zhang and Feng, 2016). Source:
docs/spec/sigma.md, section 9.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..likelihood import HALF_LOG_TAU
from .site import Observed

Array = NDArray[np.float64]
Index = NDArray[np.int64]

NODES = 15
NEWTON = 12  # steps to the mode; the log-likelihoods are concave in eta
STEP = 1e-4  # of eta, for curvatures
CLOSE = 1e-4  # steps, in sds, that are the last: nodes lie about the mode, and need no more
MOST_MOVED = 3.0  # of theta in a Newton step, in sds


def log_density(site: Observed, xi: Array, mean: Array, v: Array | None) -> Array:
    """Returns log p(rows of area i | xi, theta_i ~ N(mean, v)) (m, d) at m draws; 0 for areas without rows.

    No v: theta is the mean.
    """
    like, rows, log_sd = site.likelihood, site.rows, site.log_sd(xi)
    fixed, scale = site.fixed(xi), site.scale(xi)

    def value(theta: Array) -> Array:
        return site.by_area(like.value(rows.y, fixed + scale * theta[:, rows.area], log_sd, rows.trials, rows.last))

    def slope(theta: Array, shift: float) -> Array:
        eta = fixed + scale * theta[:, rows.area] + shift
        return scale * site.by_area(like.slope(rows.y, eta, log_sd, rows.trials, rows.last))

    if v is None:
        return value(mean)
    # The mode first, by Newton steps from the prior's mean: the quadrature is about it.
    mode = mean.copy()
    for _ in range(NEWTON):
        down, up = slope(mode, -STEP), slope(mode, STEP)
        information = 1 / v + np.maximum(scale * (down - up) / (2 * STEP), 0.0)
        step = ((down + up) / 2 - (mode - mean) / v) / information
        mode = mode + np.clip(step, -MOST_MOVED * np.sqrt(v), MOST_MOVED * np.sqrt(v))
        if not (np.abs(step) > CLOSE * np.sqrt(v)).any():
            break
    # Gauss-Hermite quadrature about the mode, of its width.
    width = np.sqrt(2 / information)
    nodes, weights = np.polynomial.hermite.hermgauss(NODES)
    total = np.full(mean.shape, -np.inf)
    for node, weight in zip(nodes, weights):
        theta = mode + width * node
        total = np.logaddexp(total, np.log(weight) + node**2 + value(theta) - 0.5 * (theta - mean) ** 2 / v)
    density = total + np.log(width) - 0.5 * np.log(v) - HALF_LOG_TAU
    return np.where(site.counts > 0, density, 0.0)


def pit(site: Observed, xi: Array, theta: Array, weights: Array) -> Array:
    """Returns P(Y < y) + P(Y = y) / 2 (d,) of areas with one row, over draws (m, d) with these weights.

    It is NaN for the other areas, and if the count is an interval or has noise.
    """
    rows, like = site.rows, site.likelihood
    alone = np.flatnonzero((site.counts[rows.area] == 1) & rows.known)
    y, area, trials = rows.y[alone], rows.area[alone], None if rows.trials is None else rows.trials[alone]
    eta, log_sd = site.fixed(xi)[:, alone] + site.scale(xi) * theta[:, area], site.log_sd(xi)
    like = like if rows.sd is None else replace(like, scale=rows.sd[alone])
    below = like.cdf(y, eta, log_sd, trials)
    if like.record.binary or like.record.counted:
        below = (below + np.where(y > 0, like.cdf(np.maximum(y - 1, 0), eta, log_sd, trials), 0.0)) / 2
    values = np.full(site.n_areas, np.nan)
    values[area] = (weights[:, area] * below).sum(axis=0)
    return values


def pearson(site: Observed, xi: Array, theta: Array) -> Array:
    """Returns (observed - fitted) / sd (d,) of the rows of an area, at the posterior means of the fitted values.

    It is NaN without rows, or if a count is an interval or has noise.
    """
    rows, like = site.rows, site.likelihood
    expected, variance = like.fitted(site.fixed(xi) + site.scale(xi) * theta[:, rows.area], site.log_sd(xi), rows.trials)
    left, spread = site.by_area(np.stack([rows.y - expected, variance]))
    spread[np.unique(rows.area[~rows.known])] = 0.0
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(spread > 0, left / np.sqrt(spread), np.nan))


@dataclass(frozen=True)
class Moran:
    """Holds Moran's I of values on a map, with its mean and sd for independent normal numbers."""

    index: float
    expected: float
    sd: float

    @property
    def z(self) -> float:
        """The number of sds by which the index is off."""
        return (self.index - self.expected) / self.sd


def moran(values: Array, pairs: Index) -> Moran | None:
    """Returns Moran's I over pairs (k, 2) of neighbours, each once; None for fewer than four areas or no pair.

    It is None, too, where all areas are neighbours of all others: I is then -1 / (n - 1), whatever the values are.

    Values that are NaN are left out. Source: Cliff and Ord (1981), Spatial Processes, section 1.5 (normality).
    """
    there = np.isfinite(values)
    pairs = pairs[there[pairs].all(axis=1)]
    n = int(there.sum())
    if n < 4 or not len(pairs):
        return None
    z = np.where(there, values, 0.0) - values[there].mean()
    square = float((z[there] ** 2).sum())
    if square == 0:
        return None
    s0 = 2.0 * len(pairs)
    degrees = np.bincount(pairs.ravel(), minlength=len(values)).astype(float)
    s1, s2 = 2 * s0, float((4 * degrees**2).sum())
    index = n / s0 * 2 * float((z[pairs[:, 0]] * z[pairs[:, 1]]).sum()) / square
    expected = -1 / (n - 1)
    variance = (n**2 * s1 - n * s2 + 3 * s0**2) / ((n**2 - 1) * s0**2) - expected**2
    if variance <= 1e-9 * expected**2:
        return None
    return Moran(index, expected, float(np.sqrt(variance)))
