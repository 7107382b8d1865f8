"""Defines the glm kernels in plain NumPy: every example's vector is written down, clipped and summed. float64 and slow."""

import numpy as np
from scipy.special import expit

from ..families import numbered
from . import rng

STL, TOTAL, ANALYTIC_ELBO = range(3)
ANALYTIC, WEIGHT_MC, ACTIVATION_MC = range(3)
PROBIT, QUADRATURE = range(2)
NOISE_DRAW = 2**32 - 1  # the draw counter of a step's noise: no sample has it
LARGEST_COEFFICIENT = 1e100  # of a row of a clipped sum: beyond it squares of small numbers, which are 0, would matter


def in_domain(y, family):
    """Returns the response as float64; NaN where the family has no such value."""
    y = y.astype(np.float64)
    return np.where(numbered(family).domain.has(y), y, np.nan)


def log_likelihood(a, y, family, scale):
    """Returns log p(y | a) and its derivative with respect to a; NaN with y."""
    record = numbered(family)
    return record.value(y, a, scale, None) + 0 * y, record.slope(y, a, scale, None)


def expected_log_likelihood(m, s, y, family, scale):
    """Returns E log p(y | a) and the expectations of its first two derivatives, a ~ N(m, s^2)."""
    return numbered(family).expectation(m, s, y, scale)


def spread(X, log_sigma):
    """Returns the standard deviation of x'theta, for a mean-field or a full-rank posterior."""
    scaled = X * np.exp(log_sigma) if log_sigma.ndim == 1 else X @ np.tril(log_sigma)
    return np.linalg.norm(scaled, axis=1)


def normals(n, key, client, step, draw):
    out = np.empty(n)
    rng.normal(key, client, step, draw, 0, out, 1)
    return out


def column(values, n, default):
    return np.full(n, default) if values is None else values.astype(np.float64)


def loglik_grad(X, y, theta, offset, weights, family, scale, grad, n_threads):
    n = len(X)
    X = X.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        value, slope = log_likelihood(X @ theta + column(offset, n, 0.0), in_domain(y, family), family, scale)
        w = column(weights, n, 1.0)
        grad[:] = (w * slope) @ X
        return float(w @ value)


def log_normaliser(shift, precision):
    """Returns the logarithm of the constant that makes exp(h'theta - theta'P theta/2), P diagonal, a density; 0 if none does."""
    if not (precision > 0).all():
        return 0.0
    return float((np.log(precision / (2 * np.pi)) / 2 - shift**2 / (2 * precision)).sum())


def elbo_grad(
    X, y, mu, log_sigma, prior_shift, prior_precision, offset, weights, family, scale, estimator, draws, key, client, step,
    grad_mu, grad_log_sigma, n_threads,
):  # fmt: skip
    h, P, sigma = prior_shift, prior_precision, np.exp(log_sigma)
    constant = log_normaliser(h, P)
    if estimator == ANALYTIC_ELBO:
        value, r, k = (np.empty(len(X)) for _ in range(3))
        expectations(X, y, mu, log_sigma, offset, weights, family, scale, value, r, k, 1)
        X = X.astype(np.float64)
        grad_mu[:] = r @ X + h - P * mu
        grad_log_sigma[:] = sigma**2 * (k @ X**2) + 1 - P * sigma**2
        kl = h @ mu - P @ (sigma**2 + mu**2) / 2 + (log_sigma + 0.5 * np.log(2 * np.pi * np.e)).sum() + constant
        return float(value.sum() + kl)
    grad_mu[:] = 0
    grad_log_sigma[:] = 0
    elbo = 0.0
    gradient = np.empty(len(mu))
    for s in range(draws):
        e = normals(len(mu), key, client, step, s)
        theta = mu + sigma * e
        elbo += loglik_grad(X, y, theta, offset, weights, family, scale, gradient, 1)
        elbo += h @ theta - P @ theta**2 / 2 + constant + (e**2 / 2 + log_sigma + 0.5 * np.log(2 * np.pi)).sum()
        path_term = e / sigma if estimator == STL else 0
        u = gradient + h - P * theta + path_term
        grad_mu += u / draws
        grad_log_sigma += u * e * sigma / draws
    if estimator == TOTAL:
        grad_log_sigma += 1
    return float(elbo / draws)


def elbo_grad_full(
    X, y, mu, log_sigma, prior_shift, prior_precision, offset, weights, normaliser, family, scale, estimator, draws, key, client,
    step, grad_mu, grad_log_sigma, n_threads,
):  # fmt: skip
    h, P, L, d, constant = prior_shift, prior_precision, np.tril(log_sigma), len(mu), normaliser
    log_det = np.log(np.diag(L)).sum()
    if estimator == ANALYTIC_ELBO:
        value, r, k = (np.empty(len(X)) for _ in range(3))
        expectations(X, y, mu, log_sigma, offset, weights, family, scale, value, r, k, 1)
        X = X.astype(np.float64)
        grad_mu[:] = r @ X + h - P @ mu
        grad_log_sigma[:] = np.tril((X.T * k) @ X @ L - P @ L) + np.diag(1 / np.diag(L))
        kl = h @ mu - (np.sum(P * (L @ L.T)) + mu @ P @ mu) / 2 + log_det + d * 0.5 * np.log(2 * np.pi * np.e) + constant
        return float(value.sum() + kl)
    grad_mu[:] = 0
    grad_log_sigma[:] = 0
    elbo = 0.0
    gradient = np.empty(d)
    for s in range(draws):
        e = normals(d, key, client, step, s)
        theta = mu + L @ e
        elbo += loglik_grad(X, y, theta, offset, weights, family, scale, gradient, 1)
        elbo += h @ theta - theta @ P @ theta / 2 + constant + e @ e / 2 + log_det + d * 0.5 * np.log(2 * np.pi)
        path_term = np.linalg.solve(L.T, e) if estimator == STL else 0
        u = gradient + h - P @ theta + path_term
        grad_mu += u / draws
        grad_log_sigma += np.tril(np.outer(u, e)) / draws
    if estimator == TOTAL:
        grad_log_sigma += np.diag(1 / np.diag(L))
    return float(elbo / draws)


def expectations(X, y, mu, log_sigma, offset, weights, family, scale, value, slope, curvature, n_threads):
    n = len(X)
    X = X.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        m, s = X @ mu + column(offset, n, 0.0), spread(X, log_sigma)
        w = column(weights, n, 1.0)
        for out, e in zip((value, slope, curvature), expected_log_likelihood(m, s, in_domain(y, family), family, scale)):
            out[:] = w * e


expectations_full = expectations


def predict(X, mu, log_sigma, offset, family, method, mean, n_threads):
    n = len(X)
    X = X.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        m, s = X @ mu + column(offset, n, 0.0), spread(X, log_sigma)
        link = numbered(family).link
        if link == "log":
            mean[:] = np.exp(m + s**2 / 2)
        elif link == "identity":
            mean[:] = m
        elif method == PROBIT:
            mean[:] = expit(m / np.sqrt(1 + np.pi * s**2 / 8))
        else:
            mean[:] = expected_log_likelihood(m, s, np.ones(n), family, 1.0)[1]
            mean[:] = 1 - mean


predict_full = predict


def example_vectors(X, y, mu, log_sigma, rows, offset, weights, family, scale, estimator, draws, key, client, step):
    """Returns every example's gradient of E log p(y_i | x_i'theta), (b, 2d) full rank (b, d + d(d+1)/2), and the size of the
    largest coefficient of its row; NaN in a faulty row."""
    n, d = X.shape
    rows = np.arange(n) if rows is None else rows
    offset, weights = column(offset, n, 0.0)[rows], column(weights, n, 1.0)[rows]
    X, y = X[rows].astype(np.float64), in_domain(y, family)[rows]
    m, s = X @ mu + offset, spread(X, log_sigma)
    if log_sigma.ndim == 2:
        u = X @ np.tril(log_sigma)
        _, r, k = expected_log_likelihood(m, s, y, family, scale)
        i, j = np.tril_indices(d)
        r, k = weights * r, weights * k
        return np.hstack([r[:, None] * X, k[:, None] * X[:, i] * u[:, j]]), np.maximum(abs(r), abs(k))
    sigma = np.exp(log_sigma)
    if estimator == WEIGHT_MC:
        e = np.array([normals(d, key, client, step, draw) for draw in range(draws)])
        R = np.stack([log_likelihood(X @ (mu + sigma * e_s) + offset, y, family, scale)[1] for e_s in e], axis=1)
        r = weights * R.mean(axis=1)
        return np.hstack([r[:, None] * X, weights[:, None] * (R @ e / draws) * sigma * X]), abs(r)
    if estimator == ANALYTIC:
        _, r, k = expected_log_likelihood(m, s, y, family, scale)
    else:
        z = normals(draws, key, client, step, 0)
        slopes = log_likelihood(m[:, None] + s[:, None] * z, y[:, None], family, scale)[1]
        r, k = slopes.mean(axis=1), np.where(s == 0, 0.0, (slopes @ z / draws) / np.where(s == 0, 1.0, s))
    r, k = weights * r, weights * k
    return np.hstack([r[:, None] * X, k[:, None] * sigma**2 * X**2]), np.maximum(abs(r), abs(k))


def clipped_grad_sum(
    X, y, mu, log_sigma, rows, offset, weights, family, scale, clip, estimator, draws, key, client, step, noise_multiplier, grid,
    total, n_threads,
):  # fmt: skip
    with np.errstate(over="ignore", invalid="ignore"):
        v, coefficients = example_vectors(
            X, y, mu, log_sigma, rows, offset, weights, family, scale, estimator, draws, key, client, step
        )
        squared = (v * v).sum(axis=1)
        chosen = X if rows is None else X[rows]
        kept = np.isfinite(squared) & np.isfinite((chosen.astype(np.float64) ** 2).sum(axis=1))  # too large a row is skipped
        kept &= coefficients <= LARGEST_COEFFICIENT
    v, norm = v[kept], np.sqrt(squared[kept])
    margin = 2e-5 if X.dtype == np.float32 and not grid > 0 else 1e-9
    bound = clip * (1 - margin)  # docs/spec/pvi.md, section 4
    v *= np.divide(bound, norm, out=np.ones_like(norm), where=norm > bound)[:, None]
    if grid > 0:
        total[:] = np.trunc(v / grid).astype(np.int64).sum(axis=0)
    else:
        total[:] = v.sum(axis=0)
        if noise_multiplier > 0:
            total += noise_multiplier * clip * normals(len(total), key, client, step, NOISE_DRAW)
    return int((~kept).sum())


clipped_grad_sum_full = clipped_grad_sum
