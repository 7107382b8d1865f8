"""Gaussian processes with whole matrices. docs/spec/sigma.md, section 3."""

import numpy as np

from .. import rng
from .table import numbers

RBF, MATERN12, MATERN32, MATERN52 = range(4)
NEAR = 1e-6  # pivots that count as equal
LEAST, MOST = 1e-150, 1e150  # beyond, squares of lengthscales would be 0 or infinite
FAR = 1000.0  # exp(-1000) is 0; farther, a Matern factor of infinity would meet that 0


def covariance(x, lengthscale, kind):
    if not 0 < lengthscale <= MOST:
        return np.full((len(x), len(x)), np.nan)
    lengthscale = max(lengthscale, LEAST)
    with np.errstate(over="ignore"):
        squares = ((x[:, None] - x[None]) ** 2).sum(axis=2)
        if kind == RBF:
            return np.exp(-0.5 * squares / lengthscale**2)
    a = np.minimum(np.sqrt(squares) * (np.sqrt((1, 3, 5)[kind - 1]) / lengthscale), FAR)
    return (1.0, 1 + a, 1 + a + a * a / 3)[kind - 1] * np.exp(-a)


def covariances(x, lengthscale, kind, jitter):
    for scale in lengthscale:
        yield covariance(x, scale, kind) + jitter * np.eye(len(x))


def gp_covariance(x, lengthscale, kind, jitter, covariance, n_threads):
    for t, matrix in enumerate(covariances(x, lengthscale, kind, jitter)):
        covariance[t] = matrix


def pivoted(K, rank, tolerance):
    """Returns a factor, and the trace of the missing part."""
    n = len(K)
    F, left = np.zeros((n, rank)), np.diag(K).copy()
    for r in range(min(rank, n)):
        if not left.sum() > n * tolerance:
            break
        pivot = int(np.argmax(left >= (1 - NEAR) * left.max()))
        F[:, r] = (K[:, pivot] - F @ F[pivot]) / np.sqrt(left[pivot])
        left = np.maximum(left - F[:, r] ** 2, 0)
        left[pivot] = 0
    return F, left.sum()


def gp_factor(x, lengthscale, kind, tolerance, factors, residual, n_threads):
    for t, scale in enumerate(lengthscale):
        factors[t], residual[t] = pivoted(covariance(x, scale, kind), factors.shape[2], tolerance)


def gp_sample(x, lengthscale, kind, jitter, seed, chain, client, step, theta, n_threads):
    m, n = theta.shape
    e = numbers(rng.normal, m * n, "prior_draws", seed, chain, client, step).reshape(m, n)
    for b, scale in enumerate(lengthscale):
        try:
            theta[b] = np.linalg.cholesky(covariance(x, scale, kind) + jitter * np.eye(n)) @ e[b]
        except np.linalg.LinAlgError:
            return b
    return -1
