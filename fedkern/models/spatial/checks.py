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
from scipy.special import ndtri

from ...arrays import Array, Indices, Matrix
from ..likelihood import HALF_LOG_TAU
from .site import Observed

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
    trials = None if rows.trials is None else rows.trials[alone]
    y, area = rows.y[alone], rows.area[alone]
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


def moran(values: Array, pairs: Indices) -> Moran | None:
    """Returns Moran's I over pairs (k, 2) of neighbours, each once; None for fewer than four areas or no pair.

    It is None, too, where all areas are neighbours of all others: I is then -1 / (n - 1), whatever the values are.

    Values that are NaN are left out. Source: Cliff and Ord (1981), Spatial Processes, section 1.5 (normality).
    """
    known = np.isfinite(values)
    pairs = pairs[known[pairs].all(axis=1)]
    n = int(known.sum())
    if n < 4 or not len(pairs):
        return None
    z = np.where(known, values, 0.0) - values[known].mean()
    square = float((z[known] ** 2).sum())
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


# --------------------
# Draws each area's theta given all else: a normal prior times the likelihood of its rows, which is not normal.
#
# A draw inverts the distribution function on nodes over all of its mass, whose ends are sought by the density; between two nodes
# the density is taken for linear. Source: docs/spec/sigma.md, section 13.

DRAW_NODES = 41
DRAW_NEWTON = 8  # steps to the mode
ENDS = 5  # steps to each end
NEGLIGIBLE = 16.0  # log density below the mode's, where nodes end
LEAST, MOST = 1e-12, 1 - 1e-12  # uniforms


class Tilted:
    """Draws from the conditionals of some areas at m draws of all else.

    Parameters
    ----------
    site : whose rows
    areas : (a,) of them, rising
    fixed, scale, log_sd : (m, n), (m, 1), (m, 1) of the site at these draws
    """

    def __init__(self, site: Observed, areas: Indices, fixed: Matrix, scale: Matrix, log_sd: Matrix) -> None:
        rows = np.flatnonzero(np.isin(site.rows.area, areas))
        rows = rows[np.argsort(site.rows.area[rows], kind="stable")]
        their_areas, starts = np.unique(site.rows.area[rows], return_index=True)
        seen = site.rows
        self.site, self.scale, self.log_sd, self.starts = site, scale, log_sd, starts
        self.at = np.searchsorted(areas, their_areas)  # areas with rows among the given
        self.of = np.searchsorted(their_areas, seen.area[rows])
        self.y, self.fixed = seen.y[rows], fixed[:, rows]
        self.trials = None if seen.trials is None else seen.trials[rows]
        self.last = None if seen.last is None else seen.last[rows]

    def drawn(self, mean: Matrix, v: Matrix, w: Matrix, h: Matrix, uniforms: Matrix) -> Matrix:
        """Returns draws (m, a) if theta has N(mean, v) without its rows, (m, a) each.

        w and h are the place of a normal approximation of the likelihood, exp(h theta - w theta^2 / 2): the search begins there.
        """
        u = np.clip(uniforms, LEAST, MOST)
        out = mean + np.sqrt(v) * ndtri(u)
        if len(self.at):
            mean, v, w, h, u = (numbers[:, self.at] for numbers in (mean, v, w, h, u))
            out[:, self.at] = self._inverted(mean, v, (mean / v + h) / (1 / v + w), u)
        return np.asarray(out)

    def _inverted(self, mean: Matrix, v: Matrix, near: Matrix, u: Matrix) -> Matrix:
        like, scale = self.site.likelihood, self.scale

        def eta(theta: Matrix) -> Matrix:
            return np.asarray(self.fixed + scale * theta[..., self.of])

        def summed(values: Matrix) -> Matrix:
            if len(self.starts) == len(self.y):
                return np.asarray(values)
            return np.asarray(np.add.reduceat(values, self.starts, axis=-1))

        def slope(theta: Matrix, shift: float) -> Matrix:
            return scale * summed(like.slope(self.y, eta(theta) + shift, self.log_sd, self.trials, self.last))

        def density(theta: Matrix) -> Matrix:
            value = summed(like.value(self.y, eta(theta), self.log_sd, self.trials, self.last))
            return np.asarray(value - 0.5 * (theta - mean) ** 2 / v)

        mode = near
        for _ in range(DRAW_NEWTON):
            here = slope(mode, 0.0)
            information = 1 / v + np.maximum(scale * (here - slope(mode, STEP)) / STEP, 0.0)
            step, sd = (here - (mode - mean) / v) / information, 1 / np.sqrt(information)
            mode = mode + np.clip(step, -MOST_MOVED * np.sqrt(v), MOST_MOVED * np.sqrt(v))
        highest, ends = density(mode), []
        for side in (-1, 1):
            near, far, distance = np.zeros_like(mode), np.full_like(mode, np.inf), 1.02 * np.sqrt(2 * NEGLIGIBLE) * sd
            for _ in range(ENDS):  # where all is negligible that is beyond; a normal density has its end at the first
                beyond = highest - density(mode + side * distance) >= NEGLIGIBLE
                near, far = np.where(beyond, near, distance), np.where(beyond, distance, far)
                distance = np.where(np.isfinite(far), (near + far) / 2, 2 * near)
            ends.append(mode + side * np.where(np.isfinite(far), far, distance))
        first, width = ends[0], (ends[1] - ends[0]) / (DRAW_NODES - 1)
        nodes = first + width * np.arange(DRAW_NODES)[:, np.newaxis, np.newaxis]
        logs = density(nodes)
        f = np.exp(logs - logs.max(axis=0))
        beyond = np.concatenate([np.zeros_like(f[:1]), f, np.zeros_like(f[:1])])
        # of fourth order: a trapezium would make the draws' variance too large by a sixth of the squared distance of nodes
        mass = np.maximum(13 * (f[:-1] + f[1:]) - beyond[:-3] - beyond[3:], 0.0) / 24
        total = np.cumsum(mass, axis=0)
        left = u * total[-1]
        cell = np.minimum((total < left).sum(axis=0), DRAW_NODES - 2)[np.newaxis]
        low, high, cell_mass, above = (np.take_along_axis(a, cell + k, 0)[0] for a, k in ((f, 0), (f, 1), (mass, 0), (total, 0)))
        share = np.clip((left - above + cell_mass) / np.maximum(cell_mass, np.finfo(float).tiny), 0.0, 1.0)
        # share = (low t + (high - low) t^2 / 2) / ((low + high) / 2), in the form that does not cancel
        within = share * (low + high) / (low + np.sqrt(low**2 + share * (high**2 - low**2)) + np.finfo(float).tiny)
        return np.asarray(first + width * (cell[0] + within))
