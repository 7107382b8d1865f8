"""Moves coefficients, and makes local sweeps that touch rows, for Numba: docs/spec/sparse.md, sections 6 and 11."""

import numpy as np

from .._jit import copied, loop, loop_ieee, prepares, scalar_ieee
from ..rng import exponential_pair, gamma_one, normal_pair, polya_gamma_one, stream_key
from .local import prior_deviation
from .server import IDS, SERVER, clipped, local_variance

__all__ = ["imputed_sweeps", "logistic_sweeps", "move", "move_terms"]

MOVES = IDS["moves"]


@loop_ieee
def fill_terms(R, q, block, theta, deviation, tau_sq, sigma_sq, slab, gradient, precision):
    p, w = R.shape[1], block.size
    column = block % max(p, 1)
    picked = np.empty((R.shape[0], w))
    for a in range(w):
        picked[:, a] = R[:, column[a]]
    gram = picked.T @ picked
    factor = np.empty(w)
    for i in range(theta.shape[0]):
        h = picked.T @ (q[i] - R @ (theta[i] + deviation[i]))
        for a in range(w):
            d = deviation[i, column[a]]
            factor[a] = d / np.sqrt(tau_sq[i, column[a]]) if block[a] >= p else 1.0
            gradient[i, a] = factor[a] * h[a] / sigma_sq[i]
            for b in range(a + 1):
                precision[i, a, b] = factor[a] * factor[b] * gram[a, b] / sigma_sq[i]
                precision[i, b, a] = precision[i, a, b]
            if block[a] >= p:
                gradient[i, a] -= factor[a] * d / slab**2
                precision[i, a, a] += (factor[a] / slab) ** 2


@scalar_ieee
def cholesky(A):
    """Computes the lower factor in place. Returns whether one exists."""
    for j in range(A.shape[0]):
        pivot = A[j, j] - (A[j, :j] * A[j, :j]).sum()
        if not pivot > 0.0:
            return False
        A[j, j] = np.sqrt(pivot)
        for i in range(j + 1, A.shape[0]):
            A[i, j] = (A[i, j] - (A[i, :j] * A[j, :j]).sum()) / A[j, j]
    return True


@loop_ieee
def fill_moves(gradient, precision, block, theta, tau_sq, gamma, eta, seed, chain, step, scale_tau, c0, fixed, moved, t):
    c, p = theta.shape
    w = block.size
    for i in range(c):
        key = stream_key(seed, MOVES, chain + np.uint64(i))
        Q, g, scale = precision[i].copy(), np.empty(w), np.empty(w)
        x = np.concatenate((theta[i], np.sqrt(tau_sq[i])))
        for a in range(w):
            j = block[a] % p
            if block[a] >= p:
                exponential, _ = exponential_pair(j, 1, SERVER, step, key)
                prior = exponential / (0.5 * (scale_tau**2 + tau_sq[i, j]))
            else:
                prior = 1.0 / (eta[i, j] if gamma[i, j] == 1.0 else fixed if fixed > 0.0 else c0 * eta[i, j])
            Q[a, a] += prior
            scale[a] = 1.0 / np.sqrt(Q[a, a])
            g[a] = scale[a] * (gradient[i, a] - prior * x[block[a]])
        for a in range(w):
            for b in range(w):
                Q[a, b] *= scale[a] * scale[b]
        good = cholesky(Q)
        for a in range(w):
            g[a] = (g[a] - (Q[a, :a] * g[:a]).sum()) / Q[a, a]
        for a in range(w):
            normals = normal_pair(a // 2, 0, SERVER, step, key)
            g[a] += normals[a % 2]
        for a in range(w - 1, -1, -1):
            g[a] = (g[a] - (Q[a + 1 :, a] * g[a + 1 :]).sum()) / Q[a, a]
            x[block[a]] += scale[a] * g[a] if good else np.nan
        moved[i], t[i] = x[:p], x[p:]


@prepares
def move_terms(R, q, block, theta, deviation, tau_sq, sigma_sq, slab, gradient, precision, n_threads):
    g, P = np.empty(gradient.shape), np.empty(precision.shape)
    fill_terms(
        copied(R), copied(q), copied(block), copied(theta), copied(deviation), copied(tau_sq), copied(sigma_sq), slab, g, P
    )  # fmt: skip
    gradient[...], precision[...] = g, P


@prepares
def move(
    gradient, precision, block, theta, tau_sq, gamma, eta, seed, chain, step, scale_tau, c0, spike_variance, new_theta, t,
    n_threads,
):  # fmt: skip
    x, y = np.empty(new_theta.shape), np.empty(t.shape)
    fill_moves(
        copied(gradient), copied(precision), copied(block), copied(theta), copied(tau_sq), copied(gamma), copied(eta),
        np.uint64(seed), np.uint64(chain), step, scale_tau, c0, spike_variance, x, y,
    )  # fmt: skip
    new_theta[...], t[...] = x, y


SCALES, COEFFICIENTS, VARIANCES, AUGMENTATION, IMPUTATION = (
    IDS[name] for name in ("scales", "coefficients", "variances", "augmentation", "imputation")
)
OF_LAMBDA, OF_COEFFICIENTS, OF_SIGMA, OF_OTHERS = 0, 1, 2, 7
FINE = -1


@scalar_ieee
def normals(n, first_item, client, step, key):
    out = np.empty(n)
    for e in range(n):
        out[e] = normal_pair(first_item + e // 2, 0, client, step, key)[e % 2]
    return out


@scalar_ieee
def solve_transposed(L, x):
    """Replaces x by L'^-1 x."""
    for j in range(x.size - 1, -1, -1):
        x[j] = (x[j] - (L[j + 1 :, j] * x[j + 1 :]).sum()) / L[j, j]


@scalar_ieee
def posterior_draw(W, a, prior, z):
    """Draws u = A^-1 W'a + L'^-1 z, L L' = A = diag(prior) + W'W. Returns whether QR was needed."""
    n, k = W.shape
    A = W.T @ W
    for j in range(k):
        A[j, j] += prior[j]
    if cholesky(A):
        u = W.T @ a
        for j in range(k):
            u[j] = (u[j] - (A[j, :j] * u[:j]).sum()) / A[j, j]
        u += z
        solve_transposed(A, u)
        return u, False
    rows = np.zeros((n + k, k + 1))
    rows[:n, :k], rows[:n, k] = W, a
    for j in range(k):
        rows[n + j, j] = np.sqrt(prior[j])
    triangle = np.linalg.qr(rows)[1]
    u = triangle[:k, k].copy()
    for j in range(k):
        u[j] += -z[j] if triangle[j, j] < 0.0 else z[j]
    solve_transposed(np.ascontiguousarray(triangle[:k, :k].T), u)
    return u, True


@scalar_ieee
def draw_scales(d, tau_sq, lambda_sq, t, expanded, scale, slab, client, step, key):
    """Draws lambda^2 and the prior's standard deviations in place. Returns how many were clipped, -1 where one is not a
    number."""
    clips = 0
    for j in range(d.size):
        drawn = local_variance(0.5 * d[j] * d[j] / tau_sq[j], lambda_sq[j], scale, expanded, j, client, step, key)
        if np.isnan(drawn):
            return -1
        lambda_sq[j] = clipped(drawn)
        clips += lambda_sq[j] < drawn or lambda_sq[j] > drawn
        t[j] = prior_deviation(np.sqrt(lambda_sq[j] * tau_sq[j]), slab)
    return clips


@scalar_ieee
def logistic_sweep(X, y, theta, tau_sq, d, lambda_sq, alpha, seed, chain, client, step, o, events):
    """Makes one sweep in place. Returns alpha, and the faulty quantity."""
    expanded, scale_lambda, scale_intercept, intercept, slab = o
    n, p = X.shape
    k = p + 1 if intercept else p
    s = np.full(k, scale_intercept)
    clips = draw_scales(d, tau_sq, lambda_sq, s[:p], expanded, scale_lambda, slab, client, step, stream_key(seed, SCALES, chain))
    if clips < 0:
        return alpha, OF_LAMBDA
    events[0] += clips
    base = X @ theta
    predictor, key = base + X @ d + alpha, stream_key(seed, AUGMENTATION, chain)
    W, a = np.empty((n, k)), np.empty(n)
    for i in range(n):
        root = np.sqrt(polya_gamma_one(predictor[i], i, client, step, key))
        a[i] = (y[i] - 0.5) / root - root * base[i]
        W[i, :p] = root * X[i] * s[:p]
        if intercept:
            W[i, p] = root * s[p]
    if not (np.isfinite(W).all() and np.isfinite(a).all()):
        return alpha, OF_COEFFICIENTS
    u, again = posterior_draw(W, a, np.ones(k), normals(k, 0, client, step, stream_key(seed, COEFFICIENTS, chain)))
    events[1] += again
    d[:] = s[:p] * u[:p]
    if intercept:
        alpha = s[p] * u[p]
    code = FINE if np.isfinite(d).all() and np.isfinite(alpha) else OF_COEFFICIENTS
    return alpha, code


@scalar_ieee
def impute(row, r, K, L, shift, b, sigma, normal):
    """Draws x_U | x_O, y in place: a draw of N(shift + K x_O, C), C = L L', corrected by y."""
    p = row.size
    for u in range(p):
        if L[u, u] > 0.0:
            row[u] = 0.0
    drawn = K @ row
    along = L.T @ b
    noise = L @ normal[:p]
    for u in range(p):
        row[u] = shift[u] + drawn[u] + noise[u] if L[u, u] > 0.0 else row[u]
    surprise = r - (b * row).sum() - sigma * normal[p]
    gain = L @ along * (surprise / ((along * along).sum() + sigma * sigma))
    for u in range(p):
        if L[u, u] > 0.0:
            row[u] += gain[u]


@scalar_ieee
def imputed_sweep(y, pattern, K, L, shift, theta, tau_sq, d, lambda_sq, noise, alpha, X, seed, chain, client, step, o, events):
    """Makes one sweep in place. Returns sigma^2, alpha, and the faulty quantity."""
    expanded, scale_lambda, shape, rate, slab, intercept = o
    n, p = X.shape
    k = p + 1 if intercept else p
    t, prior = np.empty(p), np.ones(k)
    # The intercept has a flat prior; its column is scaled to length 1 for the system.
    prior[p:] = 0.0
    clips = draw_scales(d, tau_sq, lambda_sq, t, expanded, scale_lambda, slab, client, step, stream_key(seed, SCALES, chain))
    if clips < 0:
        return noise, alpha, OF_LAMBDA
    events[0] += clips
    sigma = np.sqrt(noise)
    e = y - X @ theta
    W, a = np.full((n, k), 1.0 / np.sqrt(n)), e / sigma
    W[:, :p] = X * (t / sigma)
    if not (np.isfinite(W).all() and np.isfinite(a).all()):
        return noise, alpha, OF_COEFFICIENTS
    u, again = posterior_draw(W, a, prior, normals(k, 0, client, step, stream_key(seed, COEFFICIENTS, chain)))
    events[1] += again
    d[:] = t * u[:p]
    if intercept:
        alpha = sigma / np.sqrt(n) * u[p]
    if not (np.isfinite(d).all() and np.isfinite(alpha)):
        return noise, alpha, OF_COEFFICIENTS
    e = e - X @ d - alpha
    noise = (rate + 0.5 * (e * e).sum()) / gamma_one(shape + 0.5 * n, 0, client, step, stream_key(seed, VARIANCES, chain))
    if not (noise > 0.0 and noise < np.inf):
        return noise, alpha, OF_SIGMA
    # Missing values last, given the coefficients and the variance just drawn.
    key = stream_key(seed, IMPUTATION, chain)
    for i in range(n):
        if pattern[i] >= 0:
            normal = normals(p + 1, i * (p // 2 + 1), client, step, key)
            of = pattern[i]
            impute(X[i], y[i] - alpha, K[of], L[of], shift[of], theta + d, np.sqrt(noise), normal)
    code = FINE if np.isfinite(X).all() else OF_OTHERS
    return noise, alpha, code


@loop
def logistic_chains(X, y, theta, tau_sq, d, lambda_sq, alpha, seed, chain, client, step, n_sweeps, o, events):
    for c in range(len(theta)):
        events[c, :3], events[c, 3] = 0, -1
        for i in range(n_sweeps):
            alpha[c], quantity = logistic_sweep(
                X,
                y[c],
                theta[c],
                tau_sq[c],
                d[c],
                lambda_sq[c],
                alpha[c],
                seed,
                chain + np.uint64(c),
                client,
                step + i,
                o,
                events[c],
            )
            if quantity != FINE:
                events[c, 3] = 8 * i + quantity
                break


@loop
def imputed_chains(
    y, pattern, K, L, shift, theta, tau_sq, d, lambda_sq, noise, alpha, X, seed, chain, client, step, n_sweeps, o, events
):  # fmt: skip
    for c in range(len(theta)):
        events[c, :3], events[c, 3] = 0, -1
        for i in range(n_sweeps):
            noise[c], alpha[c], quantity = imputed_sweep(
                y[c], pattern, K, L, shift, theta[c], tau_sq[c], d[c], lambda_sq[c], noise[c], alpha[c], X[c], seed,
                chain + np.uint64(c), client, step + i, o, events[c]
            )  # fmt: skip
            if quantity != FINE:
                events[c, 3] = 8 * i + quantity
                break


@prepares
def at_first(alpha, intercept):
    """Returns a copy of the level, 0 where there is none."""
    return copied(alpha) if intercept else 0 * copied(alpha)


@prepares
def logistic_sweeps(
    X, y, theta, tau_sq, deviation, lambda_sq, alpha, seed, chain, client, step, n_sweeps, expanded, scale_lambda,
    scale_intercept, intercept, slab, new_deviation, new_lambda_sq, new_alpha, events, n_threads,
):  # fmt: skip
    d, scales, level = copied(deviation), copied(lambda_sq), at_first(alpha, intercept)
    o, happened = (expanded, scale_lambda, scale_intercept, intercept, slab), np.empty(events.shape, np.int64)
    logistic_chains(
        copied(X), copied(y), copied(theta), copied(tau_sq), d, scales, level, np.uint64(seed), np.uint64(chain), client, step,
        n_sweeps, o, happened,
    )  # fmt: skip
    new_deviation[...], new_lambda_sq[...], new_alpha[...], events[...] = d, scales, level, happened


@prepares
def imputed_sweeps(
    y, pattern, K, L, shift, theta, tau_sq, deviation, lambda_sq, sigma_sq, alpha, completed, seed, chain, client, step, n_sweeps,
    expanded, scale_lambda, shape, rate, slab, intercept, new_deviation, new_lambda_sq, new_sigma_sq, new_alpha, new_completed,
    events, n_threads,
):  # fmt: skip
    d, scales, noise, level = copied(deviation), copied(lambda_sq), copied(sigma_sq), at_first(alpha, intercept)
    X, o, happened = copied(completed), (expanded, scale_lambda, shape, rate, slab, intercept), np.empty(events.shape, np.int64)
    imputed_chains(
        copied(y), copied(pattern), copied(K), copied(L), copied(shift), copied(theta), copied(tau_sq), d, scales, noise, level,
        X, np.uint64(seed), np.uint64(chain), client, step, n_sweeps, o, happened,
    )  # fmt: skip
    new_deviation[...], new_lambda_sq[...], new_sigma_sq[...], new_alpha[...] = d, scales, noise, level
    new_completed[...], events[...] = X, happened
