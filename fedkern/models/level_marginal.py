"""Computes marginal effects on levels: the change of each level's probability with a covariate, averaged over rows.

Ordered levels have P(y <= k) = E F(c_k - eta) over the effects of new groups and clients, so that eta is normal given xi (see
`mixed.marginal`); with V its variance the derivative of E F(c_k - eta) in x is - beta E F' + (dV / dx) E F'' / 2. Levels without
an order have no effects: d P_k / dx = P_k (beta_k - sum_l P_l beta_l). A client sends sums over its rows.

Source: docs/spec/likelihood.md, section 10.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from . import levels
from .mixed.conditional import MOST, pieces
from .mixed.marginal import Contrast, Moved, Slope, in_place, over_effects, predictor_over_effects, with_columns
from .mixed.marginal import of_variance as changes_of_variance
from .mixed.rows import Rows

Vector = NDArray[np.float64]


def sums(rows: Rows | levels.Rows, draws: Vector, effects: Sequence[Slope | Contrast | Moved], n_levels: int) -> Vector:
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
                high, low = (_chances(rows, part, one[part], draws, n_levels) for one in (effect.high, effect.low))
                change = (high - low) / effect.width[part]
            else:
                both = (with_columns(X, effect.columns, values) for values in (effect.high, effect.low))
                high, low = (_chances(rows, part, one, draws, n_levels) for one in both)
                change = high - low
            totals[:, e] += change.sum(axis=2)
    return totals.reshape(len(draws), -1)


def _chances(rows: Rows | levels.Rows, part: slice, X: Vector, draws: Vector, n_levels: int) -> Vector:
    """(S, K, n) probabilities of all levels with other columns, over random effects."""
    if isinstance(rows, levels.Rows):
        return np.asarray(np.exp(levels.log_chances(draws, X, n_levels)))
    some = in_place(_taken(rows, part), X)
    eta, variance = predictor_over_effects(some, draws)
    below = _cumulative(some, draws, eta, variance, n_levels, 0)
    none = np.zeros_like(eta)[:, np.newaxis]
    return np.diff(np.concatenate([none, below, none + 1], axis=1), axis=1)


def _slope(rows: Rows | levels.Rows, part: slice, draws: Vector, effect: Slope, n_levels: int) -> Vector:
    """(S, K, n) derivatives in a column."""
    if isinstance(rows, levels.Rows):
        chances = np.exp(levels.log_chances(draws, rows.X[part], n_levels))
        own = draws.reshape(len(draws), n_levels - 1, -1)[:, :, effect.column]
        beta = np.concatenate([np.zeros((len(draws), 1)), own], axis=1)[:, :, np.newaxis]
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


def _taken(rows: Rows, part: slice) -> Rows:
    return rows.take(np.arange(part.start, part.stop), np.array([0, part.stop - part.start]))


def _cumulative(rows: Rows, draws: Vector, eta: Vector, variance: Vector, n_levels: int, order: int) -> Vector:
    """(S, K - 1, n) E F(c - eta), or its first or second derivative in eta, over eta ~ N(eta, variance)."""
    cuts = levels.thresholds(draws, n_levels)[:, :, np.newaxis]
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
    return np.asarray(-slope if order == 1 else -u * slope if probit else slope * (1 - 2 * p))
