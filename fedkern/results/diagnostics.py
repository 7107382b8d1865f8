"""Computes the convergence of chains as ArviZ does: rank-normalised split R-hat and bulk effective sample size.

The formulas are those of arviz-stats, to which a test holds them: to import it would take longer than a small job, as it brings
SciPy's distributions and xarray.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array

LEAST = 4  # draws of each chain below which ArviZ computes nothing
MARKED = 1.05  # R-hat above which a number bears a mark wherever people read it


def rhat_ess(draws: Array) -> tuple[Array, Array]:
    """Computes rank-normalised split R-hat (the larger of bulk and folded) and bulk ESS (Vehtari et al., 2021).

    Parameters
    ----------
    draws : (c, t, ...) c chains of t draws

    Returns
    -------
    rhat, ess : (...); NaN where a chain is constant or holds a number that is not finite, with fewer than 4 draws
    """
    flat, usable, shape = _usable(draws, "rhat_ess")
    rhat, ess = np.full(flat.shape[2], np.nan), np.full(flat.shape[2], np.nan)
    if len(usable):
        rhat[usable], ess[usable] = _both(np.ascontiguousarray(flat[..., usable]))
    return rhat.reshape(shape), ess.reshape(shape)


def mean_error(draws: Array) -> Array:
    """Computes the (...) Monte-Carlo standard errors of the means of draws (c, t, ...); NaN and errors as in `rhat_ess`."""
    flat, usable, shape = _usable(draws, "mean_error")
    error = np.full(flat.shape[2], np.nan)
    if len(usable):
        chosen = flat[..., usable]
        error[usable] = chosen.std(axis=(0, 1), ddof=1) / np.sqrt(_ess(_halves(chosen)))
    return error.reshape(shape)


def _usable(draws: Array, what: str) -> tuple[Array, NDArray[np.intp], list[int]]:
    """Returns draws (c, t, P), the columns of which something can be computed, and the shape that P stands for."""
    draws = np.asarray(draws, dtype=np.float64)
    if draws.ndim < 2:
        raise ValueError(f"diagnostics.{what}: draws need shape (chains, draws, ...), got {draws.shape}")
    c, t, *shape = draws.shape
    flat = draws.reshape(c, t, math.prod(shape))
    if c == 0 or t < LEAST:
        return flat, np.empty(0, np.intp), shape
    varies = (flat.min(axis=1) < flat.max(axis=1)).all(axis=0)  # false where there is a NaN
    return flat, np.flatnonzero(varies & np.isfinite(flat).all(axis=(0, 1))), shape


def normal_scores(values: Array) -> Array:
    """Returns the normal scores of the ranks of each column of (n, P) values; equal values share a rank, NaN spoils a column."""
    from scipy.special import ndtri

    scores: Array = ndtri((_ranks(values) - 0.375) / (len(values) + 0.25))
    return scores


def _ranks(values: Array) -> Array:
    """Returns the ranks from 1 of the values of each column (n, P); equal values get the mean of theirs, a NaN makes all NaN."""
    ranks, n = np.full(values.shape, np.nan), len(values)
    for column, into in zip(np.ascontiguousarray(values.T), ranks.T):  # side by side in memory they are sorted faster
        order = np.argsort(column)
        in_order = column[order]
        if n and not np.isnan(in_order[-1]):  # NaN comes last
            firsts = np.flatnonzero(np.append(True, in_order[1:] != in_order[:-1]))
            ends = np.append(firsts[1:], n)
            into[order] = np.repeat((firsts + ends + 1) / 2, ends - firsts)
    return ranks


def _both(draws: Array) -> tuple[Array, Array]:
    """Computes R-hat and ESS of (c, t, P) draws, by the ranks over all chains."""

    def normal(values: Array) -> Array:
        """Returns the normal scores of the ranks over all chains."""
        return normal_scores(values.reshape(-1, values.shape[-1])).reshape(values.shape)

    halves = _halves(draws)
    bulk, tail = normal(halves), normal(np.abs(halves - np.median(halves, axis=(0, 1))))
    return np.maximum(_rhat(bulk), _rhat(tail)), _ess(bulk)


def _rhat(draws: Array) -> Array:
    """Computes R-hat of (c, t, P) draws: the root of the variance of all draws over that within chains; NaN of constants."""
    t = draws.shape[1]
    within, between = draws.var(axis=1, ddof=1).mean(axis=0), t * draws.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        rhat: Array = np.sqrt((between / within + t - 1) / t)
    return rhat


def _ess(draws: Array) -> Array:
    """Computes the effective sample size of the mean of (c, t, P) draws, t >= 2: c t over the autocorrelation time."""
    return np.array([_ess_of_one(draws[..., column]) for column in range(draws.shape[2])])


def _ess_of_one(draws: Array) -> float:
    """Computes ESS of (c, t) draws, c >= 2: autocorrelations of all chains, cut off and made monotone as in Geyer (1992)."""
    from scipy.fft import next_fast_len

    t, n = draws.shape[1], draws.size
    if np.ptp(draws) < np.finfo(float).resolution:
        return n
    # Autocovariances by a transform of at least twice the length, so that the chain's end does not meet its beginning.
    length = next_fast_len(2 * t, real=True)
    transformed = np.fft.rfft(draws - draws.mean(axis=1, keepdims=True), n=length, axis=1)
    covariance = np.mean(np.fft.irfft(transformed * np.conjugate(transformed), n=length, axis=1)[:, :t] / t, axis=0)
    within = covariance[0] * t / (t - 1)
    spread = within * (t - 1) / t + draws.mean(axis=1).var(ddof=1)
    correlation = 1 - (within - covariance) / spread
    correlation[0] = 1.0
    if np.isnan(correlation).any():
        return math.nan
    # Sums of neighbours (lags 2k and 2k + 1) are positive in theory: they count until one is not, or few lags are left.
    pairs = correlation[: t // 2 * 2].reshape(-1, 2)
    sums, last = pairs.sum(axis=1), 0
    while 2 * last < t - 4 and sums[last] > 0:
        last += 1
    # They do not grow in theory either. Of the last pair only the even lag counts.
    least = np.minimum.accumulate(sums[:last])
    counted = np.where((sums[:last] > least)[:, np.newaxis], least[:, np.newaxis] / 2, pairs[:last])
    even = pairs[last, 0] if pairs[last, 0] > 0 or sums[last] >= 0 else 0.0
    time = -1 + 2 * counted.ravel().sum() + even
    return float(n / max(time, 1 / np.log10(n)))


def _halves(draws: Array) -> Array:
    """Returns each chain's first and second half as two chains."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]])
