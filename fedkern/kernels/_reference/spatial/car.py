"""Conditional autoregressive priors with dense matrices. docs/spec/sigma.md, sections 3 and 9."""

import numpy as np

from .. import rng
from .table import numbers

CAR, LEROUX, ICAR = range(3)


def degrees(indptr):
    """Returns D: 1 for an area without neighbours."""
    return np.maximum(np.diff(indptr), 1).astype(float)


def adjacency(indptr, indices):
    n = len(indptr) - 1
    W = np.zeros((n, n))
    np.add.at(W, (np.repeat(np.arange(n), np.diff(indptr)), indices), 1.0)
    return W


def precision(indptr, indices, phi, form):
    W, d = adjacency(indptr, indices), degrees(indptr)
    if form == LEROUX:
        return np.diag((1 - phi) + phi * d) - phi * W
    return np.diag(d) - (1.0 if form == ICAR else phi) * W


def log_determinant(phi, coefficients, lo, hi, widest):
    """Returns the series in t = log(1 + widest phi / (1 - phi)), and its derivative in phi."""
    low, high = (np.log1p(widest * x / (1 - x)) for x in (lo, hi))
    half = max((high - low) / 2, 1e-3)
    r = widest * phi / (1 - phi)
    x = (np.log1p(r) - (low + high) / 2) / half
    series = np.polynomial.chebyshev.Chebyshev(coefficients)
    return series(x), series.deriv()(x) / half * widest / ((1 - phi) ** 2 * (1 + r))


def car_logdensity(theta, phi, indptr, indices, logdet, form, lo, hi, widest, rank, value, grad_theta, grad_phi, n_threads):
    n = theta.shape[1]
    rank = n if rank < 0 else rank
    W, d = adjacency(indptr, indices), degrees(indptr)
    for b, (x, f) in enumerate(zip(theta, phi)):
        if form != ICAR and not lo <= f <= hi:
            value[b], grad_theta[b], grad_phi[b] = np.nan, np.nan, np.nan
            continue
        determinant, slope = (logdet[0], 0.0) if form == ICAR else log_determinant(f, logdet, lo, hi, widest)
        if form == LEROUX:
            Qx, dQx = (1 - f) * x + f * (d * x - W @ x), d * x - W @ x - x
        else:
            Qx, dQx = d * x - (1.0 if form == ICAR else f) * (W @ x), -(W @ x)
        value[b] = 0.5 * (determinant - rank * np.log(2 * np.pi) - x @ Qx)
        grad_theta[b] = -Qx
        grad_phi[b] = 0.0 if form == ICAR else 0.5 * (slope - x @ dQx)


def car_factor(phi, order, factor_indptr, factor_indices, indptr, indices, form, values, logdet, n_threads):
    n = len(order)
    columns = np.repeat(np.arange(n), np.diff(factor_indptr))
    for t, f in enumerate(phi):
        Q = precision(indptr, indices, f, form)[np.ix_(order, order)]
        L = np.zeros((n, n))
        for j in range(n):
            column = Q[j:, j] - L[j:, :j] @ L[j, :j]
            if not column[0] > 0:
                return t * n + order[j]
            L[j:, j] = column / np.sqrt(column[0])
        values[t] = L[factor_indices, columns]
        logdet[t] = 2 * np.log(np.diag(L)).sum()
    return -1


def car_sample(vectors, values, weights, phi, form, seed, chain, client, step, theta, n_threads):
    m, n = theta.shape
    e = numbers(rng.normal, m * n, "prior_draws", seed, chain, client, step).reshape(m, n)
    x = phi[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        p = np.tile(values, (m, 1)) if form == ICAR else 1 - x * values if form == CAR else (1 - x) + x * values
        coefficients = np.where(p == 0, 0.0, e / np.sqrt(p))
    theta[...] = coefficients @ vectors.T * weights
