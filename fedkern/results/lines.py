"""Computes how wide the posterior of one unknown is where it is not normal, by its log-density at points of a line.

Near q = N(m, C) the mean of all unknowns, given that unknown j lies t of its standard deviations from m_j, is m + t C_j / sd_j.
Along that line log p + t^2 / 2 is flat where p is q. A monotone spline through a few of its values gives a density of t by
quadrature, as the approximation of Tierney and Kadane (1986) does; the width of the others, given j, is taken for constant.
Source: docs/concepts/convergence.md, "Where the posterior is no normal one".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

AT = (-4.5, -3.0, -2.0, -1.0, 1.0, 2.0, 3.0, 4.5)  # standard deviations of q; beside them, once for all unknowns, q's mean
GRID = np.linspace(-12.0, 12.0, 4801)
WIDER = 1.12  # a width beyond it, or below its inverse, is not q's: a tenth, and the approximation's error beside it


@dataclass(frozen=True)
class Lines:
    """Holds widths and quantiles of some unknowns, in q's standard deviations from q's means.

    Attributes
    ----------
    names : of the m unknowns that were asked about
    sd : (m,) the posterior's standard deviation
    quantiles : (m, 3) its 5, 50 and 95 %
    """

    names: tuple[str, ...]
    sd: Array
    quantiles: Array

    @property
    def worst(self) -> int:
        """The unknown whose width is farthest from q's."""
        return int(np.argmax(np.abs(np.log(self.sd))))

    @property
    def off(self) -> NDArray[np.int64]:
        """The unknowns whose width is not q's."""
        return np.flatnonzero((self.sd > WIDER) | (self.sd < 1 / WIDER))

    def content(self, centre: Mapping[str, tuple[float, float]]) -> dict[str, dict[str, float]]:
        """Returns the entries of summary.json for unknowns whose width is not q's: `sd`, `q05`, `q50` and `q95` by name.

        Parameters
        ----------
        centre : name -> q's mean and standard deviation
        """
        out = {}
        for k in self.off.tolist():
            mean, sd = centre[self.names[k]]
            quantiles_of = dict(zip(("q05", "q50", "q95"), (mean + sd * self.quantiles[k]).tolist()))
            out[self.names[k]] = {"sd": sd * float(self.sd[k]), **quantiles_of}
        return out


def points(mean: Array, covariance: Array, which: Sequence[int]) -> Array:
    """Returns (1 + 8 m, d) points: q's mean, and on the line of each of these unknowns the points `AT`."""
    sd = np.sqrt(np.diag(covariance))
    steps = [covariance[:, j] / sd[j] * t for j in which for t in AT]
    return np.asarray(mean + np.array([np.zeros(len(mean)), *steps]))


def fit_lines(names: Sequence[str], log_density: Array) -> Lines:
    """Computes widths and quantiles from the posterior's log-density (1 + 8 m,) at `points`, known up to a constant."""
    half = len(AT) // 2
    points = np.array([*AT[:half], 0.0, *AT[half:]])
    sd, quantiles = np.empty(len(names)), np.empty((len(names), 3))
    for k, change in enumerate((log_density[1:] - log_density[0]).reshape(len(names), len(AT))):
        beside = _spline(points, np.array([*change[:half], 0.0, *change[half:]]) + points**2 / 2)
        log_weight = beside - GRID**2 / 2
        weight = np.exp(log_weight - log_weight.max())
        weight /= weight.sum()
        mean = float(weight @ GRID)
        sd[k] = np.sqrt(weight @ (GRID - mean) ** 2)
        quantiles[k] = np.interp((0.05, 0.5, 0.95), np.cumsum(weight) - weight / 2, GRID)
    return Lines(tuple(names), sd, quantiles)


def _spline(x: Array, y: Array) -> Array:
    """Returns the monotone cubic spline of Fritsch and Butland (1984) through (x, y) on `GRID`, straight beyond its ends.

    It does not overshoot where a likelihood falls off as fast as the exponential of an exponential.
    """
    h, slope = np.diff(x), np.diff(y) / np.diff(x)
    before, after = 2 * h[1:] + h[:-1], h[1:] + 2 * h[:-1]
    turns = slope[:-1] * slope[1:] <= 0
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.where(turns, 0.0, (before + after) / (before / slope[:-1] + after / slope[1:]))
    d = np.array([slope[0], *inner, slope[-1]])
    inside = np.clip(GRID, x[0], x[-1])
    i = np.clip(np.searchsorted(x, inside, side="right") - 1, 0, len(h) - 1)
    u = (inside - x[i]) / h[i]
    ends = (1 + 2 * u) * (1 - u) ** 2 * y[i] + u**2 * (3 - 2 * u) * y[i + 1]
    between = ends + h[i] * u * (1 - u) * ((1 - u) * d[i] - u * d[i + 1])
    return np.asarray(between + np.minimum(GRID - x[0], 0) * d[0] + np.maximum(GRID - x[-1], 0) * d[-1])
