"""What one would do without a hierarchical model: fit each site alone, and combine the fits (DerSimonian and Laird, 1986)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Combined:
    """A random-effects meta-analysis of P coefficients; NaN where no site has an estimate.

    Attributes
    ----------
    mean, se : (P,) of the average over the population of sites
    tau_sq : (P,) variance between sites, by the method of moments, 0 where negative
    q, i_sq : (P,) Cochran's Q, and the share of variation that is not chance, max(0, 1 - (m - 1) / Q)
    sites : (P,) with an estimate
    """

    mean: Array
    se: Array
    tau_sq: Array
    q: Array
    i_sq: Array
    sites: NDArray[np.int64]

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """Lower and upper ends (P,) of the normal interval of the average."""
        z = float(ndtri(0.5 + level / 2))
        return self.mean - z * self.se, self.mean + z * self.se


def combine(estimates: ArrayLike, errors: ArrayLike) -> Combined:
    """DerSimonian and Laird's random-effects average.

    Parameters
    ----------
    estimates, errors : (m, P) of m sites, with standard errors > 0; NaN where a site has none

    Raises
    ------
    ValueError
        Different shapes, or a standard error that is not > 0.
    """
    b, se = np.asarray(estimates, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if b.ndim != 2 or b.shape != se.shape:
        raise ValueError(f"meta.combine: estimates and errors need one shape (sites, P), got {b.shape} and {se.shape}")
    there = np.isfinite(b) & np.isfinite(se)
    if not (se[there] > 0).all():
        raise ValueError(f"meta.combine: standard errors must be > 0, got {se[there].min()}")
    m = there.sum(axis=0)
    weight = np.zeros(b.shape)
    weight[there] = se[there] ** -2.0
    values = np.where(there, b, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = weight.sum(axis=0)
        fixed = (weight * values).sum(axis=0) / total
        q = (weight * (values - fixed) ** 2).sum(axis=0)
        spread = total - (weight**2).sum(axis=0) / total
        tau_sq = np.where(m > 1, np.maximum(0.0, (q - (m - 1)) / spread), np.where(m == 1, 0.0, np.nan))
        random = np.where(there, 1 / (1 / weight + tau_sq), 0.0)
        both = random.sum(axis=0)
        mean, error = (random * values).sum(axis=0) / both, 1 / np.sqrt(both)
        i_sq = np.where(q > 0, np.maximum(0.0, 1 - (m - 1) / q), 0.0)
    mean, error, q, i_sq = (np.where(m > 0, x, np.nan) for x in (mean, error, q, i_sq))
    return Combined(mean, error, tau_sq, q, i_sq, m)


def least_squares(x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """One site's ordinary least squares with an intercept.

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
