"""Makes local sweeps: a site's scales, coefficients and error variance given theta and tau. sparse.md, sections 2, 3 and 8.

`draw_coefficients` and `sweep_chain` are for other people's nopython code; their arrays are C-contiguous float64. The functions
that bear a kernel's name prepare arrays for them.
"""

import numpy as np

from fedkern._core.rng import streams

from .. import rng
from .._jit import copied, loop, prepares, scalar
from .server import clipped, local_variance

__all__ = ["draw_coefficients", "gaussian_posterior_draw", "local_sweeps", "local_sweeps_batched", "sweep_chain"]

SCALES, COEFFICIENTS, VARIANCES = (streams()[name] for name in ("scales", "coefficients", "variances"))
AUTO, GRAM, DATA = range(3)
LEAST_FOR_DATA, DATA_ROWS, MOST_DATA_SCALE, LARGEST_SMALL = 33, 0.6, 1e4, 64
IN_GRAM, ORTHOGONAL, IN_DATA, FAILED = range(4)
OF_LAMBDA, OF_COEFFICIENTS, OF_SIGMA = range(3)


@scalar
def upper_factor(A):
    """Computes L' of A = L L', in place for small matrices, by loops. Returns also whether A was positive definite."""
    p = A.shape[0]
    if p > LARGEST_SMALL:
        try:
            return True, np.linalg.cholesky(A).T
        except Exception:  # Numba knows no narrower clause
            return False, A
    for j in range(p):
        if not A[j, j] > 0.0:
            return False, A
        inverse = 1.0 / np.sqrt(A[j, j])
        for k in range(j, p):
            A[j, k] *= inverse
        for i in range(j + 1, p):
            for k in range(i, p):
                A[i, k] -= A[j, i] * A[j, k]
    return True, A


@scalar
def solve_lower(U, x):
    """Solves U'y = x in place."""
    for j in range(x.size):
        x[j] /= U[j, j]
        for k in range(j + 1, x.size):
            x[k] -= U[j, k] * x[j]


@scalar
def solve_upper(U, x):
    for j in range(x.size - 1, -1, -1):
        total = x[j]
        for k in range(j + 1, x.size):
            total -= U[j, k] * x[k]
        x[j] = total / U[j, j]


@scalar
def residual(R, q, x):
    """Returns q - R x, R upper trapezoidal."""
    e = q.copy()
    for i in range(R.shape[0]):
        for j in range(i, R.shape[1]):
            e[i] -= R[i, j] * x[j]
    return e


@scalar
def in_data_space(R, e, s, sigma, z, first_item, client, step, key, u):
    """Draws by W = R S, (I + W W') w = e / sigma - v, v = W z + N(0, I), u = z + W'w. Returns whether it could be solved."""
    r = R.shape[0]
    W = np.zeros(R.shape)
    for i in range(r):
        for j in range(i, s.size):
            W[i, j] = R[i, j] * s[j]
    v = np.empty(r)
    rng.normal(key, client, step, 1, first_item, v, 1)
    M = np.dot(W, W.T)
    for i in range(r):
        M[i, i] += 1.0
    good, U = upper_factor(M)
    if not good:
        return False
    w = e / sigma - v - np.dot(W, z)
    solve_lower(U, w)
    solve_upper(U, w)
    u[:] = z + np.dot(w, W)
    return True


@scalar
def by_gram(gram, c, s, sigma, z, u):
    """Draws u = A^-1 rhs + L'^-1 z. Returns whether A was positive definite."""
    p = s.size
    A = np.empty((p, p))
    for i in range(p):
        for j in range(p):
            A[i, j] = s[i] * gram[i, j] * s[j]
        A[i, i] += 1.0
    good, U = upper_factor(A)
    if not good:
        return False
    u[:] = s * c / sigma
    solve_lower(U, u)
    u += z
    solve_upper(U, u)
    return True


@scalar
def by_orthogonal_factor(R, e, s, sigma, z, u):
    """Draws the same from the QR factorisation of [R S; I] beside [e / sigma; 0], whose triangle is L' but for signs."""
    r, p = R.shape
    X = np.zeros((r + p, p + 1))
    for i in range(r):
        for j in range(i, p):
            X[i, j] = R[i, j] * s[j]
        X[i, p] = e[i] / sigma
    for j in range(p):
        X[r + j, j] = 1.0
    _, U = np.linalg.qr(X)
    for j in range(p - 1, -1, -1):  # z belongs to a triangle with a positive diagonal
        signed = -z[j] if U[j, j] < 0.0 else z[j]
        total = U[j, p] + signed
        for k in range(j + 1, p):
            total -= U[j, k] * u[k]
        u[j] = total / U[j, j]


@scalar
def draw_coefficients(R, gram, e, c, t, sigma, form, first_item, client, step, key, d):
    """Draws d given the prior's standard deviations t, e = q - R theta and c = R'e. Returns in which way it was drawn."""
    r, p = R.shape
    s, z, u = t / sigma, np.empty(p), np.empty(p)
    rng.normal(key, client, step, 0, first_item, z, 1)
    rows = r > 0 and (form == DATA or (form == AUTO and p >= LEAST_FOR_DATA and r < DATA_ROWS * p))
    largest = 0.0
    for j in range(p):
        largest = max(largest, s[j])
    if rows and largest < MOST_DATA_SCALE and in_data_space(R, e, s, sigma, z, first_item, client, step, key, u):
        way = IN_DATA
    elif by_gram(gram, c, s, sigma, z, u):
        way = IN_GRAM
    elif np.isfinite(s).all() and np.isfinite(e).all():
        by_orthogonal_factor(R, e, s, sigma, z, u)
        way = ORTHOGONAL
    else:
        u[:] = np.nan
        way = FAILED
    for j in range(p):
        d[j] = t[j] * u[j]
        if not np.isfinite(d[j]):
            way = FAILED
    return way


@scalar
def prior_deviation(t, slab):
    """Returns the standard deviation of N(0, t^2) N(0, slab^2)."""
    return t / np.sqrt(1.0 + (t / slab) ** 2)


@scalar
def sweep_chain(
    R, gram, e, rss, n, tau_sq, d, lambda_sq, sigma_sq, regression, inert, seed, chain, client, step, n_sweeps,
    expanded, form, scale_lambda, shape, rate, slab, events,
):  # fmt: skip
    """Makes the sweeps of one chain of one regression, in place; returns sigma^2. Coefficient `inert` (-1: none) does not
    exist."""
    p = d.size
    scale_key, normal_key = rng.stream_key(seed, SCALES, chain), rng.stream_key(seed, COEFFICIENTS, chain)
    variance_key = rng.stream_key(seed, VARIANCES, chain)
    c, t, first_item = np.zeros(p), np.empty(p), regression * p
    # R'e once for all sweeps: the system's right side depends on d through nothing else.
    for i in range(R.shape[0]):
        for j in range(i, p):
            c[j] += R[i, j] * e[i]
    events[:] = 0
    events[3] = -1
    for i in range(n_sweeps):
        for j in range(p):
            if j == inert:
                t[j] = 0.0
                continue
            drawn = local_variance(
                d[j] * d[j] / (2.0 * tau_sq[j]), lambda_sq[j], scale_lambda, expanded, first_item + j, client, step + i, scale_key
            )
            lambda_sq[j] = clipped(drawn)
            events[0] += drawn != lambda_sq[j]
            # A NaN fails this test too. The state before the fault is given back.
            if not lambda_sq[j] > 0.0:
                events[3] = 8 * i + OF_LAMBDA
                return sigma_sq
            t[j] = prior_deviation(np.sqrt(lambda_sq[j] * tau_sq[j]), slab)
        way = draw_coefficients(R, gram, e, c, t, np.sqrt(sigma_sq), form, first_item, client, step + i, normal_key, d)
        if way == FAILED:
            events[3] = 8 * i + OF_COEFFICIENTS
            return sigma_sq
        events[1] += way == ORTHOGONAL
        events[2] += way == IN_DATA
        # The residual sum of squares: that of the least-squares fit, and the part that d leaves.
        left = residual(R, e, d)
        rss_here = rss + np.sum(left * left)
        sigma_sq = (rate + 0.5 * rss_here) / rng.gamma_one(shape + 0.5 * n, regression, client, step + i, variance_key)
        if not (sigma_sq > 0.0 and sigma_sq < np.inf):
            events[3] = 8 * i + OF_SIGMA
            return sigma_sq
    return sigma_sq


@loop
def sweep_chains(
    R, gram, q, rss, n, theta, tau_sq, d, lambda_sq, sigma_sq, batched, seed, chain, client, step, n_sweeps, expanded, form,
    scale_lambda, shape, rate, slab, events,
):  # fmt: skip
    """Makes the sweeps of all chains and regressions in place: arrays (c, g, p), (c, g), events (c, g, 4). Batched: response g is
    column g."""
    for i in range(theta.shape[0]):
        for g in range(theta.shape[1]):
            x, response, inert = theta[i, g].copy(), np.zeros(R.shape[0]), -1
            if batched:
                inert, x[g] = g, -1.0  # e = R (e_g - theta)
                d[i, g, g], lambda_sq[i, g, g] = 0.0, 1.0
            else:
                response[:] = q[i]
            sigma_sq[i, g] = sweep_chain(
                R, gram, residual(R, response, x), rss[i], n, tau_sq[i, g], d[i, g], lambda_sq[i, g], sigma_sq[i, g], g, inert,
                seed, chain + np.uint64(i), client, step, n_sweeps, expanded, form, scale_lambda, shape, rate, slab, events[i, g],
            )  # fmt: skip


@loop
def draw_chains(R, gram, mean, scale, sigma_sq, q, seed, chain, client, step, form, slab, d):
    for i in range(mean.shape[0]):
        e = residual(R, q[i], mean[i])
        c = np.zeros(R.shape[1])
        for k in range(R.shape[0]):
            for j in range(k, R.shape[1]):
                c[j] += R[k, j] * e[k]
        key = rng.stream_key(seed, COEFFICIENTS, chain + np.uint64(i))
        way = draw_coefficients(
            R, gram, e, c, prior_deviation(scale[i], slab), np.sqrt(sigma_sq[i]), form, 0, client, step, key, d[i]
        )
        if way == FAILED:
            d[i] = np.nan


@prepares
def prepared(R, gram):
    """Returns arrays of one layout, so that each function is compiled once."""
    U = np.triu(copied(R))
    products = U.T @ U if gram is None else copied(gram)
    return U, products


@prepares
def by_regression(a):
    """Returns a copy (c, g, ..) with g = 1 of an array (c, ..)."""
    return copied(a).reshape((a.shape[0], 1) + a.shape[1:])  # noqa: RUF005 (Numba unpacks no tuple here)


@prepares
def local_sweeps(
    R, theta, tau_sq, deviation, lambda_sq, sigma_sq, q, rss, gram, n, seed, chain, client, step, n_sweeps, expanded, form,
    scale_lambda, shape, rate, slab, new_deviation, new_lambda_sq, new_sigma_sq, events, n_threads,
):  # fmt: skip
    d, scales, noise = by_regression(deviation), by_regression(lambda_sq), by_regression(sigma_sq)
    U, moments = prepared(R, gram)
    happened = np.empty((theta.shape[0], 1, 4), np.int64)
    sweep_chains(
        U, moments, copied(q), copied(rss), n, by_regression(theta), by_regression(tau_sq), d, scales, noise, False,
        np.uint64(seed), np.uint64(chain), client, step, n_sweeps, expanded, form, scale_lambda, shape, rate, slab, happened,
    )  # fmt: skip
    new_deviation[...], new_lambda_sq[...], new_sigma_sq[...], events[...] = d[:, 0], scales[:, 0], noise[:, 0], happened[:, 0]


@prepares
def local_sweeps_batched(
    R, theta, tau_sq, deviation, lambda_sq, sigma_sq, gram, n, seed, chain, client, step, n_sweeps, expanded, form, scale_lambda,
    shape, rate, slab, new_deviation, new_lambda_sq, new_sigma_sq, events, n_threads,
):  # fmt: skip
    d, scales, noise = copied(deviation), copied(lambda_sq), copied(sigma_sq)
    U, moments = prepared(R, gram)
    happened = np.empty(events.shape, np.int64)
    sweep_chains(
        U, moments, np.empty((0, 0)), np.zeros(theta.shape[0]), n, copied(theta), copied(tau_sq), d, scales, noise, True,
        np.uint64(seed), np.uint64(chain), client, step, n_sweeps, expanded, form, scale_lambda, shape, rate, slab, happened,
    )  # fmt: skip
    new_deviation[...], new_lambda_sq[...], new_sigma_sq[...], events[...] = d, scales, noise, happened


@prepares
def gaussian_posterior_draw(R, mean, scale, sigma_sq, q, gram, seed, chain, client, step, form, slab, deviation, n_threads):
    drawn = np.empty(deviation.shape)
    U, moments = prepared(R, gram)
    draw_chains(
        U, moments, copied(mean), copied(scale), copied(sigma_sq), copied(q), np.uint64(seed), np.uint64(chain), client, step,
        form, slab, drawn,
    )  # fmt: skip
    deviation[...] = drawn
