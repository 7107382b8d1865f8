"""Defines the kernels of spatial priors in plain NumPy.

Draws from a table of priors: docs/spec/sigma.md, sections 2, 3 and 9. The table's random numbers are e (one for each number of a
draw, stream `prior_draws`) and u (one for each group, stream `prior_entries`)."""

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from fedkern._core.rng import streams

from . import rng

# Draws from a table of priors. docs/spec/sigma.md, section 3 --------------------

STORED, DENSE, SPARSE = range(3)


def numbers(fill, count, stream, seed, chain, client, step):
    """Returns the first numbers of a stream."""
    out = np.empty(count)
    fill(rng.stream_key(int(seed), streams()[stream], int(chain)), client, step, 0, 0, out, 1)
    return out


def triangle(values, indptr, indices):
    """Returns the dense lower triangle whose columns these are."""
    n = len(indptr) - 1
    L = np.zeros((n, n))
    L[indices, np.repeat(np.arange(n), np.diff(indptr))] = values
    return L


def table_sample(values, scale, indptr, indices, order, kind, rank, group, seed, chain, step, theta, entry, n_threads):
    batch, n = theta.shape
    groups = -(-batch // group)
    u = numbers(rng.uniform, groups, "prior_entries", seed, chain, 0, step)
    entry[...] = np.repeat(np.floor(u * len(values)).astype(np.int64), group)[:batch]
    if kind == STORED:
        theta[...] = scale * values[entry]
        return
    length = rank if kind == DENSE else n
    e = numbers(rng.normal, batch * length, "prior_draws", seed, chain, 0, step).reshape(batch, length)
    for b, t in enumerate(entry):
        if kind == DENSE:
            theta[b] = scale * (values[t].reshape(n, rank) @ e[b])
        else:
            x = np.empty(n)
            x[order] = solve_triangular(triangle(values[t], indptr, indices).T, e[b], check_finite=False)
            theta[b] = scale * x


# Factors of precisions whose last block is dense, with dense matrices. docs/spec/sigma.md, section 13 --------------------


def columns(values, indptr, indices, n):
    """Returns (n, k) the sparse columns."""
    out = np.zeros((n, len(indptr) - 1))
    out[indices, np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))] = values
    return out


def bordered_factor(values, indptr, indices, block, factor, rest, n_threads):
    k = len(indptr) - 1
    A = columns(values, indptr, indices, k + len(block))
    L = np.zeros_like(A)
    for j in range(k):
        column = A[j:, j] - L[j:, :j] @ L[j, :j]
        if not column[0] > 0:
            return j
        L[j:, j] = column / np.sqrt(column[0])
    factor[...] = L[indices, np.repeat(np.arange(k), np.diff(indptr))]
    rest[...] = np.tril(block) + np.tril(block, -1).T - L[k:] @ L[k:].T
    return -1


def bordered_inverse(factor, indptr, indices, block, inverse, n_threads):
    """Computes the inverse by blocks: with X = L_ii^-T L_bi', it has -X S_bb beside S_bb, and L_ii^-T L_ii^-1 + X S_bb X' above
    it."""
    k = len(indptr) - 1
    L = columns(factor, indptr, indices, k + len(block))
    Z = np.zeros((k + len(block), k))
    if k:
        X = solve_triangular(L[:k].T, L[k:].T, check_finite=False)
        Z[:k] = cho_solve((L[:k], True), np.eye(k), check_finite=False) + X @ block @ X.T
        Z[k:] = -(block @ X.T)
    inverse[...] = Z[indices, np.repeat(np.arange(k), np.diff(indptr))]


def bordered_solve(right, factor, indptr, indices, back, solved, n_threads):
    k, n = len(indptr) - 1, right.shape[1]
    L = columns(factor, indptr, indices, n)
    x = right.copy()
    if k and len(right):
        if back:
            x[:, :k] = solve_triangular(L[:k].T, (right[:, :k] - right[:, k:] @ L[k:]).T, check_finite=False).T
        else:
            x[:, :k] = solve_triangular(L[:k], right[:, :k].T, lower=True, check_finite=False).T
            x[:, k:] -= x[:, :k] @ L[k:].T
    solved[...] = x


# Conditional autoregressive priors with dense matrices. docs/spec/sigma.md, sections 3 and 9 --------------------

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
    ties = 1.0 if form == ICAR else phi
    return np.diag(d) - ties * W


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
            ties = 1.0 if form == ICAR else f
            Qx, dQx = d * x - ties * (W @ x), -(W @ x)
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
        if form == ICAR:
            p = np.tile(values, (m, 1))
        elif form == CAR:
            p = 1 - x * values
        else:
            p = (1 - x) + x * values
        coefficients = np.where(p == 0, 0.0, e / np.sqrt(p))
    theta[...] = coefficients @ vectors.T * weights


# Gaussian processes with whole matrices. docs/spec/sigma.md, section 3 --------------------

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
