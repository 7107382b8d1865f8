"""Fits each site alone and combines the fits, as one would without a hierarchical model.

The variance between sites is Paule and Mandel's (1982), the interval Hartung and Knapp's (2001), never narrower than with the
sites' own standard errors (Roever, Knapp and Friede, 2015).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from ..arrays import Array

NEAR = 0.05  # sds of a column that a site lacks, for each sd of one that it has
STEPS = 200  # of Newton's method: a dozen do


@dataclass(frozen=True)
class Combined:
    """Holds a random-effects meta-analysis of P coefficients; NaN where no site has an estimate."""

    # mean, se: (P,) of the average over the population of sites
    mean: Array
    se: Array
    tau_sq: Array  # (P,) variance between sites, by Paule and Mandel's equation, 0 where it has no solution
    # q, i_sq: (P,) Cochran's Q, and the share of variation that is not chance, max(0, 1 - (m - 1) / Q)
    q: Array
    i_sq: Array
    sites: NDArray[np.int64]  # (P,) number of sites with an estimate

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """Returns the ends (P,) of the average's interval: Student's t, degrees one less than sites (one site: normal)."""
        tail = 0.5 + level / 2
        student = scipy.special.stdtrit(np.maximum(self.sites - 1.0, 1.0), tail)
        quantile = np.where(self.sites > 1, student, scipy.special.ndtri(tail))
        return self.mean - quantile * self.se, self.mean + quantile * self.se

    @property
    def p_values(self) -> Array:
        """The (P,) two-sided p-values of an average of 0, by the same distributions as the interval; NaN where no site has an
        estimate."""
        ratio = np.abs(self.mean) / self.se
        student = scipy.special.stdtr(np.maximum(self.sites - 1.0, 1.0), -ratio)
        p_values: Array = 2 * np.where(self.sites > 1, student, scipy.special.ndtr(-ratio))
        return p_values


def combine(estimates: ArrayLike, errors: ArrayLike) -> Combined:
    """Computes the random-effects average, by Paule and Mandel, with Hartung and Knapp's standard error.

    tau^2 is the value at which the weighted squares about the average, weights 1 / (se^2 + tau^2), equal the number of sites less
    one. `estimates`, `errors`: (m, P) of m sites, with standard errors > 0; NaN where a site has none. Raises ValueError:
    different shapes, or a standard error that is not > 0.
    """
    b, se = np.asarray(estimates, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if b.ndim != 2 or b.shape != se.shape:
        raise ValueError(f"meta.combine: estimates and errors need one shape (sites, P), got {b.shape} and {se.shape}")
    known = np.isfinite(b) & np.isfinite(se)
    if not (se[known] > 0).all():
        raise ValueError(f"meta.combine: standard errors must be > 0, got {se[known].min()}")
    m = known.sum(axis=0)
    weight = np.zeros(b.shape)
    weight[known] = se[known] ** -2.0
    values = np.where(known, b, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = weight.sum(axis=0)
        fixed = (weight * values).sum(axis=0) / total
        q = (weight * (values - fixed) ** 2).sum(axis=0)
        tau_sq = np.where(m > 0, 0.0, np.nan)
        for _ in range(STEPS):  # the squares fall and are convex in tau^2, so that Newton's steps never pass the solution
            random, mean, squares = _average(values, weight, tau_sq)
            slope = (random**2 * (values - mean) ** 2).sum(axis=0)
            step = np.where((m > 1) & (squares > m - 1) & (slope > 0), (squares - (m - 1)) / slope, 0.0)
            tau_sq = tau_sq + step
            if not (step > 1e-14 * tau_sq).any():
                break
        random, mean, squares = _average(values, weight, tau_sq)
        error = np.sqrt(np.where(m > 1, np.maximum(1.0, squares / (m - 1)), 1.0) / random.sum(axis=0))
        i_sq = np.where(q > 0, np.maximum(0.0, 1 - (m - 1) / q), 0.0)
    mean, error, q, i_sq = (np.where(m > 0, x, np.nan) for x in (mean, error, q, i_sq))
    return Combined(mean, error, tau_sq, q, i_sq, m)


def biased(psi: ArrayLike, measured: ArrayLike) -> NDArray[np.bool_]:
    """Finds slopes that a site's least squares gets wrong because it has not measured another column that goes with them.

    A regression without column a moves the slope of b by a's slope times that of b in the regression of a on the measured
    columns.

    Parameters
    ----------
    psi : (w, w) covariance of the columns, positive definite
    measured : (w,) which of them the site has

    Returns
    -------
    (w,) columns that it has, and that tell more than `NEAR` standard deviations of one that it lacks
    """
    known, covariance = np.asarray(measured, dtype=bool), np.asarray(psi, dtype=np.float64)
    sds = np.sqrt(np.diag(covariance))
    correlation, out = covariance / np.outer(sds, sds), np.zeros(len(sds), dtype=bool)
    if known.any() and not known.all():
        slopes = np.linalg.solve(correlation[np.ix_(known, known)], correlation[np.ix_(known, ~known)])
        out[known] = np.abs(slopes).max(axis=1) > NEAR
    return out


def _average(values: Array, weight: Array, tau_sq: Array) -> tuple[Array, Array, Array]:
    """Returns weights (m, P) of the random effects, the average, and the weighted squares about it (P,).

    A site without an estimate has weight 0.
    """
    random = np.where(weight > 0, 1 / (1 / weight + tau_sq), 0.0)
    mean: Array = (random * values).sum(axis=0) / random.sum(axis=0)
    squares: Array = (random * (values - mean) ** 2).sum(axis=0)
    return random, mean, squares


def least_squares(x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """Fits one site by ordinary least squares with an intercept.

    Parameters
    ----------
    x, y : (n, P) and (n,); rows with NaN are left out, columns that are constant or all NaN have no estimate

    Returns
    -------
    slopes and standard errors (P,), NaN without an estimate: for all where rows do not exceed coefficients
    """
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    b, se = np.full(x.shape[1], np.nan), np.full(x.shape[1], np.nan)
    measured = np.flatnonzero(~np.isnan(x).all(axis=0))
    rows = ~np.isnan(x[:, measured]).any(axis=1) & ~np.isnan(y)
    varies = measured[np.ptp(x[np.ix_(rows, measured)], axis=0) > 0] if rows.any() else measured[:0]
    n, p = int(rows.sum()), len(varies)
    if p == 0 or n <= p + 1:
        return b, se
    centred = x[np.ix_(rows, varies)] - x[np.ix_(rows, varies)].mean(axis=0)
    response = y[rows] - y[rows].mean()
    factor, r = np.linalg.qr(centred)
    scale = np.abs(np.diag(r))
    if scale.min() < 1e-10 * scale.max():  # collinear: no single answer
        return b, se
    inverse = np.linalg.inv(r)
    slopes = inverse @ (factor.T @ response)
    variance = float(np.sum((response - centred @ slopes) ** 2)) / (n - p - 1)
    b[varies], se[varies] = slopes, np.sqrt(variance * np.sum(inverse**2, axis=1))
    return b, se
