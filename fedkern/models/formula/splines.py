"""Bases of splines and polynomials, by knots, bounds and constants that are given.

Source: docs/how-to/formula.md, "What a name means".
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FAR = 3.0  # of a bound from the agreed centre, in agreed standard deviations


def quantiles(many: int, center: float, scale: float, ends: tuple[float, float] | None) -> tuple[float, ...]:
    """Inner knots: of a normal distribution with this centre and scale, or evenly spaced between ends that are given."""
    at = np.arange(1, many + 1) / (many + 1)
    from scipy.special import ndtri  # a job without splines loads none of SciPy for them

    found = center + scale * ndtri(at) if ends is None else ends[0] + (ends[1] - ends[0]) * at
    return tuple(found.tolist())


def b_spline(x: Array, knots: tuple[float, ...], ends: tuple[float, float], degree: int, *, whole: bool) -> Array:
    """(n, k) a B-spline basis; beyond the ends the outer polynomials go on. Not `whole`: without the first column, since all add
    up to 1."""
    from scipy.interpolate import BSpline

    low, high = ends
    t = np.array([low] * (degree + 1) + [*knots] + [high] * (degree + 1))
    basis = BSpline(t, np.eye(len(t) - degree - 1), degree, extrapolate=True)
    found: Array = np.asarray(basis(x), np.float64)
    return found if whole else found[:, 1:]


def natural(x: Array, knots: tuple[float, ...], ends: tuple[float, float]) -> Array:
    """(n, k) a natural cubic spline, linear beyond its ends, whose values at the knots and ends add up to 0: one column fewer
    than these are."""
    from scipy.interpolate import CubicSpline

    at = np.array([ends[0], *knots, ends[1]])
    cardinal = CubicSpline(at, np.eye(len(at)), bc_type="natural")
    inside = np.clip(x, *ends)
    found = np.asarray(cardinal(inside) + (x - inside)[:, np.newaxis] * cardinal(inside, 1), np.float64)
    return found @ _without_mean(len(at))


def _without_mean(k: int) -> Array:
    """(k, k - 1) orthonormal columns that add up to 0: LAPACK's Householder reflection of a column of ones, without its first."""
    v = np.ones(k)
    v[0] += math.sqrt(k)
    q = np.eye(k) - 2 * np.outer(v, v) / (v @ v)
    return q[:, 1:]


def polynomial(x: Array, degree: int, center: float, scale: float) -> Array:
    """(n, degree) Hermite's polynomials of the standardised column, of mean square 1 where it is normal."""
    z, found = (x - center) / scale, [np.ones_like(x)]
    for k in range(degree):
        found.append(z * found[-1] - (k * found[-2] if k else 0.0))
    return np.column_stack([one / math.sqrt(math.factorial(k)) for k, one in enumerate(found)][1:])
