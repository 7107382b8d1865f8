"""Defines local sweeps: a site's scales, coefficients and error variance given theta and tau. sparse.md, sections 2, 3 and 8.

A regression of a Markov random field is written by its definition: the column of its response is deleted. Its coefficients keep
their numbers in the row of all columns, which name their random numbers.
"""

import numpy as np
from scipy.linalg import solve_triangular

from fedkern._core.rng import streams

from .. import rng
from . import scales

AUTO, GRAM, DATA = range(3)
LEAST_FOR_DATA, DATA_ROWS, MOST_DATA_SCALE = 33, 0.6, 1e4
OF_LAMBDA, OF_COEFFICIENTS, OF_SIGMA = range(3)


class Failed(Exception):
    """Reports a draw that is not finite."""


def key(seed, stream, chain):
    return rng.key(int(seed), streams()[stream], int(chain))


def normals(n, first_item, draw, client, step, key):
    out = np.empty(n)
    rng.normal(key, client, step, draw, first_item, out, 1)
    return out


def from_rows(W, a, z, row_normals):
    """Draws u in data space: (I + W W') w = a - v, v = W z + N(0, I), u = z + W'w."""
    w = np.linalg.solve(np.eye(len(W)) + W @ W.T, a - W @ z - row_normals)
    return z + W.T @ w


def from_gram(W, a, z):
    """Draws u = A^-1 rhs + L'^-1 z with L L' = A = I + W'W and rhs = W'a, where W = R S and a = (q - R theta) / sigma."""
    L = np.linalg.cholesky(np.eye(W.shape[1]) + W.T @ W)
    y = solve_triangular(L, W.T @ a, lower=True, check_finite=False)
    return solve_triangular(L.T, y + z, check_finite=False)


def from_orthogonal_factor(W, a, z):
    """Draws the same from the QR factorisation of [W; I] beside [a; 0], whose triangle is L' but for signs."""
    p = W.shape[1]
    rows = np.block([[W, a[:, None]], [np.eye(p), np.zeros((p, 1))]])
    triangle = np.linalg.qr(rows, mode="r")[:p]
    triangle *= np.where(np.diag(triangle) < 0, -1, 1)[:, None]
    return solve_triangular(triangle[:, :p], triangle[:, p] + z, check_finite=False)


def draw_coefficients(R, e, t, sigma, form, columns, width, first_item, client, step, key):
    """Draws d given the prior's standard deviations t and e = q - R theta. Returns also 1 if QR was needed, and 1 if drawn in
    data space."""
    W, a = R * (t / sigma), e / sigma
    z = normals(width, first_item, 0, client, step, key)[columns]
    rows = len(R) and (form == DATA or (form == AUTO and width >= LEAST_FOR_DATA and len(R) < DATA_ROWS * width))
    orthogonal = in_rows = 0
    if rows and np.max(t / sigma, initial=0) < MOST_DATA_SCALE:
        u, in_rows = from_rows(W, a, z, normals(len(R), first_item, 1, client, step, key)), 1
    else:
        try:
            u = from_gram(W, a, z)
        except np.linalg.LinAlgError:
            u, orthogonal = from_orthogonal_factor(W, a, z), 1
    if not np.isfinite(t * u).all():
        raise Failed(OF_COEFFICIENTS)
    return t * u, orthogonal, in_rows


def prior_deviation(t, slab):
    """Returns the standard deviation of N(0, t^2) N(0, slab^2)."""
    return t / np.sqrt(1 + (t / slab) ** 2)


def sweep(R, e, rss, n, tau_sq, d, lambda_sq, sigma_sq, model, regression, columns, width, client, step, keys, events):
    """Makes one sweep: lambda, d, sigma^2."""
    expanded, form, scale_lambda, shape, rate, slab = model
    first_item = regression * width
    drawn = scales.local_variance(
        d * d / (2 * tau_sq), lambda_sq, scale_lambda, expanded, first_item + columns, client, step, keys["scales"]
    )
    lambda_sq, outside = scales.clipped(drawn)
    events[0] += outside.sum()
    if np.isnan(lambda_sq).any():
        raise Failed(OF_LAMBDA)
    t = prior_deviation(np.sqrt(lambda_sq * tau_sq), slab)
    d, orthogonal, in_rows = draw_coefficients(
        R, e, t, np.sqrt(sigma_sq), form, columns, width, first_item, client, step, keys["coefficients"]
    )
    events[1] += orthogonal
    events[2] += in_rows
    residual = e - R @ d
    gamma = np.empty(1)
    rng.gamma(np.array([shape + n / 2]), keys["variances"], client, step, regression, gamma, 1)
    sigma_sq = (rate + (rss + residual @ residual) / 2) / gamma[0]
    if not 0 < sigma_sq < np.inf:
        raise Failed(OF_SIGMA)
    return d, lambda_sq, sigma_sq


def sweeps(R, e, rss, n, tau_sq, state, model, regression, columns, width, counter, chain, events):
    """Makes all sweeps of one chain of one regression; a draw that is not finite ends them."""
    seed, client, step, n_sweeps = counter
    keys = {name: key(seed, name, chain) for name in ("scales", "coefficients", "variances")}
    events[:] = 0, 0, 0, -1
    for i in range(n_sweeps):
        try:
            state = sweep(R, e, rss, n, tau_sq, *state, model, regression, columns, width, client, step + i, keys, events)
        except Failed as failed:
            events[3] = 8 * i + failed.args[0]
            break
    return state


@scales.quiet
def local_sweeps(
    R, theta, tau_sq, deviation, lambda_sq, sigma_sq, q, rss, gram, n, seed, chain, client, step, n_sweeps, expanded, form,
    scale_lambda, shape, rate, slab, new_deviation, new_lambda_sq, new_sigma_sq, events, n_threads,
):  # fmt: skip
    model, counter = (expanded, form, scale_lambda, shape, rate, slab), (seed, client, step, n_sweeps)
    R, p = np.triu(R), R.shape[1]
    for i in range(len(theta)):
        new_deviation[i], new_lambda_sq[i], new_sigma_sq[i] = sweeps(
            R, q[i] - R @ theta[i], rss[i], n, tau_sq[i], (deviation[i], lambda_sq[i], sigma_sq[i]), model,
            0, np.arange(p), p, counter, (int(chain) + i) % 2**64, events[i],
        )  # fmt: skip


@scales.quiet
def local_sweeps_batched(
    R, theta, tau_sq, deviation, lambda_sq, sigma_sq, gram, n, seed, chain, client, step, n_sweeps, expanded, form, scale_lambda,
    shape, rate, slab, new_deviation, new_lambda_sq, new_sigma_sq, events, n_threads,
):  # fmt: skip
    model, counter = (expanded, form, scale_lambda, shape, rate, slab), (seed, client, step, n_sweeps)
    R, p = np.triu(R), R.shape[1]
    new_deviation[...], new_lambda_sq[...] = 0, 1
    for i in range(len(theta)):
        for j in range(p):
            others = np.delete(np.arange(p), j)
            X, at = R[:, others], (i, j, others)
            new_deviation[at], new_lambda_sq[at], new_sigma_sq[i, j] = sweeps(
                X, R[:, j] - X @ theta[at], 0.0, n, tau_sq[at], (deviation[at], lambda_sq[at], sigma_sq[i, j]), model,
                j, others, p, counter, (int(chain) + i) % 2**64, events[i, j],
            )  # fmt: skip


@scales.quiet
def gaussian_posterior_draw(R, mean, scale, sigma_sq, q, gram, seed, chain, client, step, form, slab, deviation, n_threads):
    R, p = np.triu(R), R.shape[1]
    for i in range(len(mean)):
        normal_key = key(seed, "coefficients", (int(chain) + i) % 2**64)
        t = prior_deviation(scale[i], slab)
        try:
            deviation[i], *_ = draw_coefficients(
                R, q[i] - R @ mean[i], t, np.sqrt(sigma_sq[i]), form, np.arange(p), p, 0, client, step, normal_key
            )
        except Failed:
            deviation[i] = np.nan
