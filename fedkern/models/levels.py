"""Models a response that is one of several levels: one client of a multinomial model, and the priors of both families.

Ordered levels have thresholds, the numbers of `Layout.own` behind the coefficients: the first, and logarithms of the gaps to the
others. Levels without an order have a block of coefficients each but the first, called "mild:age": of mild against the first.

Source: docs/spec/likelihood.md, section 10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.special import expit, ndtr

from ..arrays import Indices, Vector
from ..kernels import multinomial as kernels
from ..kernels.families import QUANTILES
from .encoding import INTERCEPT, Encoding
from .expfam import unpacked
from .mixed.conditional import MOST, pieces
from .mixed.layout import Layout, Named, Prior, Shape
from .mixed.marginal import Contrast, Moved, Slope, in_place, over_effects, predictor_over_effects, with_columns
from .mixed.marginal import of_variance as changes_of_variance
from .mixed.rows import Rows as EffectRows

GAP_SD = 1.5  # of the logarithm of a gap between thresholds
HALF = 0.5  # of a row, which stands for a level that nobody has


@dataclass(frozen=True)
class Rows:
    """Holds the rows of a client of a multinomial model; it is the field of no message.

    Attributes
    ----------
    layout : of the points: blocks of coefficients alone
    X : (n, p) columns of the coefficients
    y : (n,) numbers of the rows' levels
    levels : K, the number of levels
    n_threads : of the kernels
    """

    layout: Layout
    X: Vector
    y: Vector
    levels: int
    n_threads: int = 1

    def __len__(self) -> int:
        return len(self.X)

    @property
    def size(self) -> int:
        """P, the length of a point."""
        return self.layout.size

    together = False

    @property
    def units(self) -> Indices:
        """(n + 1,) where each row begins."""
        return np.arange(len(self) + 1)

    def of_units(self, part: slice) -> Rows:
        """Returns some rows that follow each other."""
        return replace(self, X=self.X[part], y=self.y[part])

    def of_rows(self, index: Indices, *, whole: bool) -> Rows:
        """Returns some rows; `whole` is of rows of which fewer may be looked for."""
        return replace(self, X=self.X[index], y=self.y[index])

    def values(self, points: Vector, nodes: int) -> Vector:
        """Returns (S,) log-likelihoods of the points (S, P); nothing is integrated out, so that `nodes` are not looked at."""
        return kernels.values(points, self.X, self.y, levels=self.levels, n_threads=self.n_threads)

    def curvature(self, points: Vector, nodes: int) -> tuple[Vector, Vector, Vector]:
        """Returns (c,) log-likelihoods at points (c, P), gradients (c, P) and minus Hessians (c, P, P)."""
        value, gradient, lower = kernels.curvature(points, self.X, self.y, levels=self.levels, n_threads=self.n_threads)
        return value, gradient, unpacked(lower, self.size)

    def rule(self, points: Vector, nodes: int) -> Vector:
        """Returns (S,) zeros: there is no quadrature."""
        return np.zeros(len(points))

    def weighed(self, point: Vector) -> Vector:
        """Returns (K - 1, n) the rows' weights in the curvature of each level's own block."""
        chances = np.exp(self.log_chances(point[np.newaxis]))[0, 1:]
        return np.asarray(chances * (1 - chances))

    def log_chances(self, points: Vector, part: slice = slice(None)) -> Vector:
        """Returns (S, K, n) logarithms of the chances of all levels, of some rows."""
        return log_chances(points, self.X[part], self.levels)

    def density(self, points: Vector, part: slice) -> Vector:
        """Returns (S, n) log p(y), of some rows."""
        log = self.log_chances(points, part)
        level = self.y[part].astype(np.int64)[np.newaxis, np.newaxis]
        return np.take_along_axis(log, np.broadcast_to(level, (len(points), 1, level.shape[2])), axis=1)[:, 0]


def log_chances(points: Vector, X: Vector, levels: int) -> Vector:
    """Returns (S, K, n) logarithms of the chances of all levels, at points (S, (K - 1) p)."""
    blocks = points.reshape(len(points), levels - 1, X.shape[1])
    eta = np.concatenate([np.zeros((len(points), 1, len(X))), blocks @ X.T], axis=1)
    eta -= eta.max(axis=1, keepdims=True)
    return np.asarray(eta - np.log(np.exp(eta).sum(axis=1, keepdims=True)), np.float64)


def block_names(levels: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the coefficients of all levels but the first."""
    return tuple(f"{level}:{name}" for level in levels[1:] for name in names)


def shares_of(counts: Vector) -> Vector:
    """Returns (K,) shares of all rows; half a row stands for a level that nobody has."""
    held = np.maximum(counts, HALF)
    return np.asarray(held / held.sum(), np.float64)


def _distance(share: Vector, link: str) -> Vector:
    """F^-1, of the link's distribution function F."""
    return np.asarray(QUANTILES[link](share))


def level_of(shares: Vector, link: str) -> float:
    """Returns the mean of the thresholds' pooled levels."""
    return float(_distance(np.cumsum(shares)[:-1], link).mean())


def prior_of_thresholds(levels: Sequence[str], shares: Vector, link: str, centre: float, sd: float) -> tuple[Shape, ...]:
    """Returns the thresholds with their priors: mean c ~ N(centre, sd^2), logarithms of gaps ~ N(0, 1.5^2).

    The way to the mode begins at the pooled shares.
    """
    named = threshold_names(levels)
    centres = _distance(np.cumsum(shares)[:-1], link)
    prior = Named.of("normal", mean=centre, sd=sd)
    first = Shape(named[0], named[0], np.asarray, prior, start=float(centres[0]), reach=20 * min(sd, 2.5))
    gaps = np.log(np.diff(centres))
    return (
        first,
        *(
            Shape(f"log gap to {name}", f"gap to {name}", np.exp, Named.of("normal", sd=GAP_SD), start=start)
            for name, start in zip(named[1:], gaps.tolist())
        ),
    )


def threshold_names(levels: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the thresholds, which say between which levels each stands."""
    return tuple(f"threshold[{low}|{high}]" for low, high in pairwise(levels))


def thresholds(points: Vector, levels: int) -> Vector:
    """Returns (S, K - 1) thresholds of points that end with the first one and logarithms of gaps."""
    steps = points[:, points.shape[1] - (levels - 1) :].copy()
    steps[:, 1:] = np.exp(steps[:, 1:])
    return np.asarray(np.cumsum(steps, axis=1))


def centres(encoding: Encoding) -> Vector:
    """Returns (p,) centre / scale of each coefficient's column; 0 of one with one value.

    A threshold of standardised columns is below that of the data's by b'(centre / scale), for c - x'b is one number.
    """
    ratios = np.zeros(encoding.size)
    place = int(encoding.intercept)
    for column in encoding.columns:
        if column.levels is None and not column.flat:
            center, scale = column.constants
            ratios[place] = center / scale
        place += 1 if column.levels is None else len(column.levels)
    return ratios


def prior_of_blocks(
    layout: Layout, names: Sequence[str], shares: Vector, centre: float | None, prior_sd: float, intercept_sd: float
) -> Prior:
    """Returns the prior of a multinomial model.

    Coefficients ~ N(0, prior_sd^2), intercepts ~ N(the logarithm of the level's pooled share over that of the first,
    intercept_sd^2), or about `centre`.
    """
    is_intercept = np.tile(np.array([name == INTERCEPT for name in names]), len(shares) - 1)
    level_intercepts = np.log(shares[1:] / shares[0]) if centre is None else np.full(len(shares) - 1, centre)
    intercepts = np.repeat(level_intercepts, len(names))
    return Prior(layout, np.where(is_intercept, intercepts, 0.0), np.where(is_intercept, intercept_sd, prior_sd))


# --------------------
# Computes marginal effects on levels: the change of each level's probability with a covariate, averaged over rows.
#
# Ordered levels have P(y <= k) = E F(c_k - eta) over the effects of new groups and clients, so that eta is normal given xi (see
# `mixed.marginal`); with V its variance the derivative of E F(c_k - eta) in x is - beta E F' + (dV / dx) E F'' / 2. Levels
# without an order have no effects: d P_k / dx = P_k (beta_k - sum_l P_l beta_l). A client sends sums over its rows.
#
# Source: docs/spec/likelihood.md, section 10.


def effect_sums(rows: EffectRows | Rows, draws: Vector, effects: Sequence[Slope | Contrast | Moved], n_levels: int) -> Vector:
    """Returns (S, E K) sums over the rows of each effect on each level's probability, by draws (S, P).

    The levels of an effect stand together.
    """
    totals = np.zeros((len(draws), len(effects), n_levels))
    for part in pieces(len(rows), max(1, MOST // max(len(draws) * n_levels, 1))):
        X = rows.X[part]
        for e, effect in enumerate(effects):
            if isinstance(effect, Slope):
                change = _slope(rows, part, draws, effect, n_levels)
            elif isinstance(effect, Moved):
                high, low = (_chances(rows, part, setting[part], draws, n_levels) for setting in (effect.high, effect.low))
                change = (high - low) / effect.width[part]
            else:
                both = (with_columns(X, effect.columns, values) for values in (effect.high, effect.low))
                high, low = (_chances(rows, part, setting, draws, n_levels) for setting in both)
                change = high - low
            totals[:, e] += change.sum(axis=2)
    return totals.reshape(len(draws), -1)


def _chances(rows: EffectRows | Rows, part: slice, X: Vector, draws: Vector, n_levels: int) -> Vector:
    """(S, K, n) probabilities of all levels with other columns, over random effects."""
    if isinstance(rows, Rows):
        return np.asarray(np.exp(log_chances(draws, X, n_levels)))
    some = in_place(_taken(rows, part), X)
    eta, variance = predictor_over_effects(some, draws)
    below = _cumulative(some, draws, eta, variance, n_levels, 0)
    none = np.zeros_like(eta)[:, np.newaxis]
    return np.diff(np.concatenate([none, below, none + 1], axis=1), axis=1)


def _slope(rows: EffectRows | Rows, part: slice, draws: Vector, effect: Slope, n_levels: int) -> Vector:
    """(S, K, n) derivatives in a column."""
    if isinstance(rows, Rows):
        chances = np.exp(log_chances(draws, rows.X[part], n_levels))
        coefficients = draws.reshape(len(draws), n_levels - 1, -1)[:, :, effect.column]
        beta = np.concatenate([np.zeros((len(draws), 1)), coefficients], axis=1)[:, :, np.newaxis]
        return np.asarray(effect.units * chances * (beta - (chances * beta).sum(axis=1, keepdims=True)))
    some = _taken(rows, part)
    eta, variance = predictor_over_effects(some, draws)
    beta = draws[:, effect.column, np.newaxis, np.newaxis]
    below = beta * _cumulative(some, draws, eta, variance, n_levels, 1)
    change = changes_of_variance(some, draws, effect)
    if change.any():
        below = below + change[:, np.newaxis] * _cumulative(some, draws, eta, variance, n_levels, 2)
    none = np.zeros_like(eta)[:, np.newaxis]
    return np.asarray(effect.units * np.diff(np.concatenate([none, below, none], axis=1), axis=1))


def _taken(rows: EffectRows, part: slice) -> EffectRows:
    return rows.take(np.arange(part.start, part.stop), np.array([0, part.stop - part.start]))


def _cumulative(rows: EffectRows, draws: Vector, eta: Vector, variance: Vector, n_levels: int, order: int) -> Vector:
    """(S, K - 1, n) E F(c - eta), or its first or second derivative in eta, over eta ~ N(eta, variance)."""
    cuts = thresholds(draws, n_levels)[:, :, np.newaxis]
    probit, sd, average = rows.layout.family.endswith("probit"), np.sqrt(variance), np.zeros((*cuts.shape[:2], eta.shape[1]))
    for t_k, w_k in zip(*over_effects(sd), strict=True):
        u = cuts - (eta + sd * t_k)[:, np.newaxis]
        average += w_k * _derivative(u, order, probit=probit)
    return average


def _derivative(u: Vector, order: int, *, probit: bool) -> Vector:
    """F(c - eta), or its first or second derivative in eta, at u = c - eta."""
    p: Vector = ndtr(u) if probit else expit(u)
    if order == 0:
        return p
    slope = np.exp(-0.5 * u**2) / np.sqrt(2 * np.pi) if probit else p * (1 - p)
    if order == 1:
        return np.asarray(-slope)
    return np.asarray(-u * slope) if probit else np.asarray(slope * (1 - 2 * p))
