"""Computes bases of splines and polynomials, by given knots, bounds and constants.

Source: docs/how-to/formula.md, "What a name means".
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FAR = 3.0  # of a bound from the agreed centre, in agreed standard deviations


def quantiles(many: int, center: float, scale: float, ends: tuple[float, float] | None) -> tuple[float, ...]:
    """Returns inner knots: quantiles of a normal distribution with this centre and scale, or evenly spaced between given ends."""
    at = np.arange(1, many + 1) / (many + 1)
    from scipy.special import ndtri  # a job without splines loads none of SciPy for them

    knots = center + scale * ndtri(at) if ends is None else ends[0] + (ends[1] - ends[0]) * at
    return tuple(knots.tolist())


def b_spline(x: Array, knots: tuple[float, ...], ends: tuple[float, float], degree: int, *, whole: bool) -> Array:
    """Returns (n, k) a B-spline basis; beyond the ends the outer polynomials go on.

    Its columns add up to 1; unless it is `whole` the first is left out.
    """
    from scipy.interpolate import BSpline

    low, high = ends
    t = np.array([low] * (degree + 1) + [*knots] + [high] * (degree + 1))
    basis = BSpline(t, np.eye(len(t) - degree - 1), degree, extrapolate=True)
    columns: Array = np.asarray(basis(x), np.float64)
    return columns if whole else columns[:, 1:]


def natural(x: Array, knots: tuple[float, ...], ends: tuple[float, float], *, anchored: bool) -> Array:
    """Returns (n, k) the basis of a natural cubic spline, linear beyond its ends.

    It has one column fewer than there are knots and ends. Values at knots and ends add up to 0 in each column, or with
    `anchored` all columns are 0 at the lower end.
    """
    from scipy.interpolate import CubicSpline

    at = np.array([ends[0], *knots, ends[1]])
    cardinal = CubicSpline(at, np.eye(len(at)), bc_type="natural")
    inside = np.clip(x, *ends)
    values = np.asarray(cardinal(inside) + (x - inside)[:, np.newaxis] * cardinal(inside, 1), np.float64)
    if anchored:
        values[:, 0] -= 1.0  # the cardinal basis is (1, 0, .., 0) there
    return values @ _without_mean(len(at))


def _without_mean(k: int) -> Array:
    """Returns (k, k - 1) orthonormal columns that add up to 0.

    They are LAPACK's Householder reflection of a column of ones, without its first column.
    """
    v = np.ones(k)
    v[0] += math.sqrt(k)
    q = np.eye(k) - 2 * np.outer(v, v) / (v @ v)
    return q[:, 1:]


def polynomial(x: Array, degree: int, center: float, scale: float) -> Array:
    """Returns (n, degree) Hermite's polynomials of the standardised column, of mean square 1 where it is normal."""
    z, polynomials = (x - center) / scale, [np.ones_like(x)]
    for k in range(degree):
        polynomials.append(z * polynomials[-1] - (k * polynomials[-2] if k else 0.0))
    return np.column_stack([one / math.sqrt(math.factorial(k)) for k, one in enumerate(polynomials)][1:])
