"""Computes marginal effects: derivatives and differences of the mean of the response, on average over rows and random effects.

Given xi, the predictor of a row over new groups and clients is normal: its mean is that without effects, its variance
V = z' T T' z + s' T_c T_c' s. With m the mean of the family, E m(eta) is an integral in one dimension; for a covariate that may
have random slopes, d/dx E m(eta) = beta E m'(eta) + (dV / dx) E m''(eta) / 2. A client sends the sums over its rows at each draw,
and the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import Vector
from ...kernels._jets import variables
from ...kernels.families import FAMILIES
from .conditional import MOST, effect_variance, pieces, predictor
from .layout import Layout
from .quadrature import even
from .rows import Rows


@dataclass(frozen=True)
class Slope:
    """Asks for the derivative in a column of X; `units`: 1 / the column's scale, for a unit of the column in the file."""

    column: int
    units: float = 1.0


@dataclass(frozen=True)
class Contrast:
    """Asks for the mean with columns of X at `high`, less the mean with them at `low`."""

    columns: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class Moved:
    """Asks for the mean with rows `high` (n, p) in the place of X, less the mean with `low` (n, p), over `width` (n,)."""

    low: Vector
    high: Vector
    width: Vector


def sums(rows: Rows, draws: Vector, effects: Sequence[Slope | Contrast | Moved]) -> Vector:
    """Returns (S, K) sums over the rows of each effect, at draws (S, P)."""
    totals = np.zeros((len(draws), len(effects)))
    for part in pieces(len(rows), MOST // max(len(draws), 1)):  # rows by draws at once would not fit into memory
        some = rows.take(np.arange(part.start, part.stop), np.array([0, part.stop - part.start]))
        for k, effect in enumerate(effects):
            if isinstance(effect, Slope):
                totals[:, k] += _slope(some, draws, effect).sum(axis=1)
            elif isinstance(effect, Moved):
                high, low = (_mean(in_place(some, X[part]), draws) for X in (effect.high, effect.low))
                totals[:, k] += ((high - low) / effect.width[part]).sum(axis=1)
            else:
                high, low = (
                    _mean(in_place(some, with_columns(some.X, effect.columns, values)), draws)
                    for values in (effect.high, effect.low)
                )
                totals[:, k] += (high - low).sum(axis=1)
    return totals


def with_columns(X: Vector, columns: Sequence[int], values: Sequence[float]) -> Vector:
    """Returns (n, p) rows with other values of some columns."""
    X = X.copy()
    X[:, list(columns)] = values
    return X


def in_place(rows: Rows, X: Vector) -> Rows:
    """Returns the rows with other columns."""
    return Rows(rows.layout, X, rows.y, rows.starts, rows.trials, rows.offset)


def predictor_over_effects(rows: Rows, draws: Vector) -> tuple[Vector, Vector]:
    """Returns (S, n) mean and variance of eta over random effects."""
    eta = predictor(rows, draws)
    variance = np.zeros_like(eta)
    for level in rows.layout.levels:
        variance += effect_variance(rows.columns(rows.layout.terms(level)), rows.layout.factor(draws, level))
    return eta, variance


def _mean(rows: Rows, draws: Vector) -> Vector:
    """(S, n) E[y | xi] over random effects; of a binomial response of one trial."""
    eta, variance = predictor_over_effects(rows, draws)
    return _expected(rows, draws, eta, variance, 0)


def _expected(rows: Rows, draws: Vector, eta: Vector, variance: Vector, order: int) -> Vector:
    """(S, n) E[y], or a derivative in eta, where eta is normal."""
    record, scale = FAMILIES[rows.layout.family], rows.layout.scale(draws)[..., np.newaxis]
    if record.curved:
        return average_mean(rows.layout, eta, variance, order, scale)
    return np.asarray(record.expected(average_mean(rows.layout, eta, variance, order), scale))


def _slope(rows: Rows, draws: Vector, effect: Slope) -> Vector:
    eta, variance = predictor_over_effects(rows, draws)
    derivative = draws[:, effect.column, np.newaxis] * _expected(rows, draws, eta, variance, 1)
    change = of_variance(rows, draws, effect)
    if change.any():
        derivative = derivative + change * _expected(rows, draws, eta, variance, 2)
    return np.asarray(derivative * effect.units)


def of_variance(rows: Rows, draws: Vector, effect: Slope) -> Vector:
    """Returns (S, n) half the derivative of the variance of eta in a column; 0 of one without random slopes."""
    layout, name = rows.layout, rows.layout.coefficients[effect.column]
    change = np.zeros((len(draws), len(rows)))
    for level in layout.levels:
        terms = layout.terms(level)
        if name in terms:
            T = layout.factor(draws, level)
            change += np.einsum("sk,sik,ni->sn", T[:, terms.index(name)], T, rows.columns(terms))
    return change


def average_mean(layout: Layout, eta: Vector, variance: Vector, order: int, scale: Vector | None = None) -> Vector:
    """Returns the expectation of the family's mean, or of its first or second derivative in eta, over eta ~ N(eta, variance).

    With the `scale` (m, 1) of a family whose share depends on its mean, that of the response.
    """
    record = FAMILIES[layout.family]
    if record.measured:
        return eta if order == 0 else np.full_like(eta, 2.0 - order)
    if record.link == "log" and scale is None:
        return record.mean(eta + 0.5 * variance)  # all derivatives are this too
    expectation, sd = np.zeros_like(eta), np.sqrt(variance)
    for t_k, w_k in zip(*over_effects(sd), strict=True):
        if scale is not None:
            shifted = record.expected(np.exp(variables(record.kept(eta + sd * t_k))[0]), scale)
            expectation += w_k * (shifted.value, shifted.first[0], shifted.second[0, 0])[order]
            continue
        p = record.mean(eta + sd * t_k)
        factor = p
        if order > 0 and record.chances:  # p' and p'' by log p
            slope, observed = (f(1.0, eta + sd * t_k, 1.0, None) for f in (record.slope, record.observed))
            factor = p * (slope if order == 1 else slope**2 - observed)
        elif order > 0:
            factor = p * (1 - p) * (1.0 if order == 1 else 1 - 2 * p)
        expectation += w_k * factor
    return expectation


def over_effects(sd: Vector) -> tuple[Vector, Vector]:
    """Returns nodes and weights of a rule for predictors of these standard deviations: one node where all are 0."""
    most = float(sd.max(initial=0.0))
    return even(most) if most > 0 else (np.zeros(1), np.ones(1))
