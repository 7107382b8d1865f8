"""Gaussian processes for Numba. Public: `covariance`, that of two locations, and `pivoted`, a low-rank factor."""

import numpy as np

from fedkern._core.rng import streams

from .._jit import loop, loop_ieee, scalar, scalar_ieee
from ..rng import stream_key
from .table import fill_normals

__all__ = ["covariance", "gp_covariance", "gp_factor", "gp_sample", "pivoted"]

RBF, MATERN12, MATERN32, MATERN52 = range(4)
NEAR = 1e-6  # pivots that count as equal
DRAWS = streams()["prior_draws"]


@scalar_ieee
def covariance(a, b, lengthscale, kind):
    """k(|a - b| / lengthscale)."""
    if not lengthscale > 0.0:
        return np.nan
    squares = 0.0
    for d in range(a.size):
        squares += (a[d] - b[d]) ** 2
    if kind == RBF:
        return np.exp(-0.5 * squares / (lengthscale * lengthscale))
    distance = np.sqrt(squares) / lengthscale
    if kind == MATERN12:
        return np.exp(-distance)
    s = np.sqrt(3.0 if kind == MATERN32 else 5.0) * distance
    return (1.0 + s + (0.0 if kind == MATERN32 else s * s / 3.0)) * np.exp(-s)


@scalar
def fill(x, lengthscale, kind, jitter, out):
    for i in range(len(x)):
        for j in range(i + 1):
            out[i, j] = out[j, i] = covariance(x[i], x[j], lengthscale, kind)
        out[i, i] += jitter


@loop
def covariances(x, lengthscale, kind, jitter, out):
    for t in range(lengthscale.size):
        fill(x, lengthscale[t], kind, jitter, out[t])


@loop_ieee
def pivoted(x, lengthscale, kind, tolerance, F):
    """Fills F (n, rank); the trace of what is missing."""
    n, rank = F.shape
    left = np.ones(n) if lengthscale > 0.0 else np.full(n, np.nan)
    F[...] = 0.0
    for r in range(min(rank, n)):
        if not left.sum() > n * tolerance:
            break
        pivot, least = 0, (1.0 - NEAR) * left.max()
        while left[pivot] < least:
            pivot += 1
        root = np.sqrt(left[pivot])
        for i in range(n):
            total = covariance(x[i], x[pivot], lengthscale, kind)
            for s in range(r):
                total -= F[i, s] * F[pivot, s]
            F[i, r] = total / root
        for i in range(n):
            left[i] = max(left[i] - F[i, r] ** 2, 0.0)
        left[pivot] = 0.0
    return left.sum()


@loop
def factor_rows(x, lengthscale, kind, tolerance, factors, residual):
    for t in range(lengthscale.size):
        residual[t] = pivoted(x, lengthscale[t], kind, tolerance, factors[t])


@loop
def cholesky(A):
    """In place, the lower triangle; whether it succeeded."""
    for j in range(len(A)):
        for i in range(j, len(A)):
            total = A[i, j]
            for k in range(j):
                total -= A[i, k] * A[j, k]
            if i == j:
                if not total > 0.0:
                    return False
                A[j, j] = np.sqrt(total)
            else:
                A[i, j] = total / A[j, j]
    return True


@loop
def sample_rows(x, lengthscale, kind, jitter, key, client, step, theta):
    m, n = theta.shape
    L, e = np.empty((n, n)), np.empty(n)
    for b in range(m):
        fill(x, lengthscale[b], kind, jitter, L)
        if not cholesky(L):
            return b
        fill_normals(b * n, n, key, client, step, e)
        for i in range(n):
            total = 0.0
            for k in range(i + 1):
                total += L[i, k] * e[k]
            theta[b, i] = total
    return -1


def gp_covariance(x, lengthscale, kind, jitter, covariance, n_threads):
    found = np.empty(covariance.shape)
    covariances(np.array(x, order="C"), np.array(lengthscale), kind, jitter, found)
    covariance[...] = found


def gp_factor(x, lengthscale, kind, tolerance, factors, residual, n_threads):
    found, left = np.empty(factors.shape), np.empty(residual.shape)
    factor_rows(np.array(x, order="C"), np.array(lengthscale), kind, tolerance, found, left)
    factors[...], residual[...] = found, left


def gp_sample(x, lengthscale, kind, jitter, seed, chain, client, step, theta, n_threads):
    found = np.empty(theta.shape)
    key = np.uint64(stream_key(seed, DRAWS, chain))
    failed = sample_rows(np.array(x, order="C"), np.array(lengthscale), kind, jitter, key, client, step, found)
    theta[...] = found
    return failed
