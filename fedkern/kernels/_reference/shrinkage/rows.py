"""Defines local sweeps that touch rows, for a logistic response and for missing covariates: docs/spec/sparse.md, section
11."""

import numpy as np
from scipy.linalg import solve_triangular

from .. import rng
from . import scales
from .local import OF_COEFFICIENTS, OF_LAMBDA, OF_SIGMA, Failed, key, normals, prior_deviation

OF_OTHERS = 7


def posterior_draw(W, a, prior, z):
    """Returns u = A^-1 W'a + L'^-1 z, L L' = A = diag(prior) + W'W; 1 if QR was needed."""
    try:
        L = np.linalg.cholesky(np.diag(prior) + W.T @ W)
        y = solve_triangular(L, W.T @ a, lower=True, check_finite=False)
        return solve_triangular(L.T, y + z, check_finite=False), 0
    except np.linalg.LinAlgError:
        rows = np.block([[W, a[:, None]], [np.diag(np.sqrt(prior)), np.zeros((len(prior), 1))]])
        triangle = np.linalg.qr(rows, mode="r")[: len(prior)]
        sign = np.where(np.diag(triangle) < 0, -1, 1)
        return solve_triangular(triangle[:, :-1], triangle[:, -1] + sign * z, check_finite=False), 1


def draw_scales(d, tau_sq, lambda_sq, model, client, step, keys, events):
    expanded, scale, slab = model
    drawn = scales.local_variance(
        0.5 * d * d / tau_sq, lambda_sq, scale, expanded, np.arange(len(d)), client, step, keys["scales"]
    )
    lambda_sq, outside = scales.clipped(drawn)
    events[0] += outside.sum()
    if np.isnan(lambda_sq).any():
        raise Failed(OF_LAMBDA)
    return lambda_sq, prior_deviation(np.sqrt(lambda_sq * tau_sq), slab)


def check(quantity, *values):
    if not all(np.isfinite(v).all() for v in values):
        raise Failed(quantity)


def run_sweeps(sweep, state, n_sweeps, events):
    """Makes the sweeps of one chain; a draw that is not finite ends them."""
    events[:] = 0, 0, 0, -1
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        for i in range(n_sweeps):
            try:
                state = sweep(i, *state)
            except Failed as failed:
                events[3] = 8 * i + failed.args[0]
                break
    return state


def keys_of(seed, chain, *streams):
    return {name: key(seed, name, chain % 2**64) for name in streams}


def logistic_sweeps(
    X, y, theta, tau_sq, deviation, lambda_sq, alpha, seed, chain, client, step, n_sweeps, expanded, scale_lambda,
    scale_intercept, intercept, slab, new_deviation, new_lambda_sq, new_alpha, events, n_threads,
):  # fmt: skip
    n, p = X.shape
    for c in range(len(theta)):
        keys = keys_of(seed, int(chain) + c, "scales", "coefficients", "augmentation")
        base = X @ theta[c]

        def sweep(i, d, lambda_sq, alpha, c=c, keys=keys, base=base):
            at = client, step + i
            lambda_sq, t = draw_scales(d, tau_sq[c], lambda_sq, (expanded, scale_lambda, slab), *at, keys, events[c])
            omega = np.empty(n)
            rng.polya_gamma(base + alpha + X @ d, keys["augmentation"], *at, 0, omega, 1)
            root = np.sqrt(omega)
            Z, s = np.column_stack([X, np.ones(n)])[:, : p + intercept], np.append(t, scale_intercept)[: p + intercept]
            W, a = root[:, None] * Z * s, (y[c] - 0.5) / root - root * base
            z = normals(p + intercept, 0, 0, *at, keys["coefficients"])
            check(OF_COEFFICIENTS, W, a)
            u, again = posterior_draw(W, a, np.ones(len(z)), z)
            events[c, 1] += again
            d, alpha = t * u[:p], s[p] * u[p] if intercept else 0.0
            check(OF_COEFFICIENTS, d, alpha)
            return d, lambda_sq, alpha

        state = deviation[c], lambda_sq[c], alpha[c] if intercept else 0.0
        new_deviation[c], new_lambda_sq[c], new_alpha[c] = run_sweeps(sweep, state, n_sweeps, events[c])


def impute(row, r, law, b, sigma, normal):
    """Draws x_U | x_O, y by precision C^-1 + b b' / sigma^2: a draw of N(shift + K x_O, C), C = L L', corrected by y."""
    K, L, shift = law
    missing = np.diag(L) > 0
    drawn = np.where(missing, shift + K @ np.where(missing, 0, row) + L @ normal[:-1], row)
    along = L.T @ b
    gain = L @ along / (along @ along + sigma**2)
    return np.where(missing, drawn + gain * (r - b @ drawn - sigma * normal[-1]), row)


def imputed_sweeps(
    y, pattern, K, L, shift, theta, tau_sq, deviation, lambda_sq, sigma_sq, alpha, completed, seed, chain, client, step, n_sweeps,
    expanded, scale_lambda, shape, rate, slab, intercept, new_deviation, new_lambda_sq, new_sigma_sq, new_alpha, new_completed,
    events, n_threads,
):  # fmt: skip
    n, p = completed.shape[1:]
    for c in range(len(theta)):
        keys = keys_of(seed, int(chain) + c, "scales", "coefficients", "variances", "imputation")

        def sweep(i, d, lambda_sq, variance, alpha, X, c=c, keys=keys):
            at = client, step + i
            lambda_sq, t = draw_scales(d, tau_sq[c], lambda_sq, (expanded, scale_lambda, slab), *at, keys, events[c])
            sigma = np.sqrt(variance)
            e = y[c] - X @ theta[c]
            W, a = np.column_stack([X * (t / sigma), np.full(n, 1 / np.sqrt(n))])[:, : p + intercept], e / sigma
            check(OF_COEFFICIENTS, W, a)
            z = normals(p + intercept, 0, 0, *at, keys["coefficients"])
            u, again = posterior_draw(W, a, np.append(np.ones(p), 0)[: p + intercept], z)
            events[c, 1] += again
            d, alpha = t * u[:p], sigma / np.sqrt(n) * u[p] if intercept else 0.0
            check(OF_COEFFICIENTS, d, alpha)
            rss, gamma = ((e - X @ d - alpha) ** 2).sum(), np.empty(1)
            rng.gamma(np.array([shape + n / 2]), keys["variances"], *at, 0, gamma, 1)
            variance = (rate + rss / 2) / gamma[0]
            check(OF_SIGMA, variance)
            X = X.copy()
            for row in np.flatnonzero(pattern >= 0):
                normal = normals(p + 1, row * (p // 2 + 1), 0, *at, keys["imputation"])
                of = pattern[row]
                law = K[of], L[of], shift[of]
                X[row] = impute(X[row], y[c, row] - alpha, law, theta[c] + d, np.sqrt(variance), normal)
            check(OF_OTHERS, X)
            return d, lambda_sq, variance, alpha, X

        state = deviation[c], lambda_sq[c], sigma_sq[c], alpha[c] if intercept else 0.0, completed[c]
        new_deviation[c], new_lambda_sq[c], new_sigma_sq[c], new_alpha[c], new_completed[c] = run_sweeps(
            sweep, state, n_sweeps, events[c]
        )
