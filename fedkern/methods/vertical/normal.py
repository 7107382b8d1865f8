"""Tests whether a party's posterior is normal, as q is: in logistic models, from the slopes that clients are sent.

The mean of a row's slopes y - p over the last half of the rounds tells its label and its probability. The others' part of the
predictor is then the offset under which the party's q has that probability. With it a party knows its likelihood, given the
others, and the width of its posterior along the line of each coefficient (`fit_lines`). Few rows or events in a column make it
wider than q.

Near q = N(m, C) the mean of all unknowns, given that unknown j lies t of its standard deviations from m_j, is m + t C_j / sd_j.
Along that line log p + t^2 / 2 is flat where p is q. A monotone spline through a few of its values gives a density of t by
quadrature, as the approximation of Tierney and Kadane (1986) does; the width of the others, given j, is taken for constant.

Source: docs/spec/vertical.md, section 3; docs/concepts/convergence.md, "Where the posterior is no normal one".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ...arrays import Array
from ...finding import Finding
from ...models.mixed.quadrature import even
from ...results.verdict import Check
from .model import VerticalModel

AT = (-4.5, -3.0, -2.0, -1.0, 1.0, 2.0, 3.0, 4.5)  # standard deviations of q; beside them, once for all unknowns, q's mean
GRID = np.linspace(-12.0, 12.0, 4801)
WIDER = 1.12  # a width beyond it, or below its inverse, is not q's: a tenth, and the approximation's error beside it
FARTHEST = 40.0  # of an offset
HALVINGS = 50


@dataclass(frozen=True)
class Lines:
    """Holds widths and quantiles of some unknowns, in q's standard deviations from q's means."""

    names: tuple[str, ...]  # of the m unknowns that were asked about
    sd: Array  # (m,) the posterior's standard deviation
    quantiles: Array  # (m, 3) its 5, 50 and 95 %

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
        `centre`: name -> q's mean and standard deviation."""
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


def is_asked(model: VerticalModel) -> bool:
    """Returns whether slopes tell labels, and q is as wide as a normal posterior can be.

    That holds in open linear logistic jobs with amortised auxiliary variables whose clients are sent slopes.
    """
    linear = model.kind == "linear" and model.family_of_z == "amortised"
    return model.watched and linear and not model.shared and model.likelihood.record.binary


@dataclass(frozen=True)
class Own:
    """Holds a party's part of the model, and its q, as they are published."""

    H: Array  # (n, d) of the training rows
    # mean, root: (d,), (d, e) of q; root root' is its covariance
    mean: Array
    root: Array
    # prior_mean, prior_sd: of each coefficient
    prior_mean: float
    prior_sd: float
    lines: Array | None = None  # (m, e) rows of such a root for the published numbers, where these are not the coefficients


def measure_lines(record: Own, names: Sequence[str], slopes: Array) -> Lines | None:
    """Computes how wide the posterior of each coefficient is; None where a row was never seen. `slopes`: (n,) means of y - p."""
    if not len(slopes) or not slopes.all() or not record.mean.size:
        return None
    y = slopes > 0
    along = record.H @ record.root
    middle = record.H @ record.mean
    middle = middle + _offset(y - slopes, middle, np.sqrt(np.einsum("ij,ij->i", along, along)))
    sign = np.where(y, -1.0, 1.0)

    def log_density(theta: Array, eta: Array) -> float:
        prior = ((theta - record.prior_mean) ** 2).sum() / (2 * record.prior_sd**2)
        return float(-np.logaddexp(0.0, sign * eta).sum() - prior)

    densities = [log_density(record.mean, middle)]
    for row in record.root if record.lines is None else record.lines:
        sd = max(float(np.linalg.norm(row)), 1e-300)
        step, moved = record.root @ row / sd, along @ row / sd
        densities += [log_density(record.mean + t * step, middle + t * moved) for t in AT]
    return fit_lines(names, np.array(densities))


def _offset(p: Array, mean: Array, sd: Array) -> Array:
    """Finds (n,) offsets by bisection, with which a normal predictor of this mean and sd has the probability p."""
    nodes, weights = even(float(sd.max(initial=0.0)))
    z, low, high = mean[:, None] + sd[:, None] * nodes, np.full(len(p), -FARTHEST), np.full(len(p), FARTHEST)
    low, high = low - mean, high - mean
    for _ in range(HALVINGS):
        nodes = (low + high) / 2
        less = expit(z + nodes[:, None]) @ weights < p
        low, high = np.where(less, nodes, low), np.where(less, high, nodes)
    return np.asarray((low + high) / 2)


def checks(along: Lines | None, content: dict[str, dict[str, float]]) -> list[Check]:
    """Returns the check of unknowns whose posterior is wider than q; nothing where q is as wide."""
    if along is None or not len(along.off):
        return []
    name, by = along.names[along.worst], float(along.sd[along.worst])
    low, high = content[name]["q05"], content[name]["q95"]
    found = Finding.of("no-normal-posterior", name=name, by=by, low=low, high=high, lines=len(along.off))
    return [Check(found, False, name)]
