"""Computes generalised linear models for Numba. The @njit functions are public, and callable from other people's nopython code.

Scalars: `clean`, `log_likelihood`, `expected_log_likelihood`. Loops over rows in float64, whatever X is: `loglik_rows`,
`expectation_rows`, `predict_rows`, `example_rows`. The functions that bear a kernel's name prepare arrays for them, and take what
its record says, in the record's order: numbers of families, estimators and methods (`BERNOULLI`, ..) where the public function
takes their names.
"""

import numpy as np
from numba import boolean, float32, float64, int64, types
from numba.extending import overload

from ..families import CODES, numbered
from . import rng
from ._jit import EXACT, copied, loop, prepares, scalar, scalar_ieee
from ._rows import by_family, of

__all__ = [
    "ACTIVATION_MC",
    "ANALYTIC",
    "ANALYTIC_ELBO",
    "BERNOULLI",
    "GAUSSIAN",
    "NEGATIVE_BINOMIAL",
    "POISSON",
    "PROBIT",
    "QUADRATURE",
    "STL",
    "TOTAL",
    "WEIGHT_MC",
    "clean",
    "clipped_grad_sum",
    "clipped_grad_sum_full",
    "elbo_grad",
    "elbo_grad_full",
    "example_rows",
    "expectation_rows",
    "expectations",
    "expectations_full",
    "expected_log_likelihood",
    "log_likelihood",
    "loglik_grad",
    "loglik_rows",
    "predict",
    "predict_full",
    "predict_rows",
]

BERNOULLI, POISSON, GAUSSIAN, NEGATIVE_BINOMIAL = range(4)
STL, TOTAL, ANALYTIC_ELBO = range(3)
ANALYTIC, WEIGHT_MC, ACTIVATION_MC = range(3)
PROBIT, QUADRATURE = range(2)
KEEP_ALL = -1.0  # instead of a clipping bound: no row is clipped or skipped
NOISE_DRAW = 2**32 - 1  # the draw counter of a step's noise: no sample has it
LARGEST_COEFFICIENT = 1e100  # of a row of a clipped sum: beyond it squares of small numbers, which are 0, would matter
RECORDS = [numbered(code) for code in CODES.values()]
FAMILIES = len(RECORDS)
part, slope_of = (by_family(RECORDS, field, "y, a, scale, trials") for field in ("part", "slope"))
normaliser, base = by_family(RECORDS, "normaliser", "scale"), by_family(RECORDS, "base", "y, scale, trials")
expectation, is_response = by_family(RECORDS, "expectation", "m, s, y, scale"), by_family(RECORDS, "has", "y")


@scalar_ieee
def clean(y, family):
    """Returns the response, or NaN where the family has no such value. It raises an error where no family has the number."""
    if not 0 <= family < FAMILIES:
        raise ValueError("family: no likelihood of the Numba kernels has this number")
    return y if is_response(family, y) else np.nan


@scalar_ieee
def log_likelihood(a, y, family, scale):
    """Returns log p(y | a) and its derivative with respect to a."""
    value = part(family, y, a, scale, None) + normaliser(family, scale) + base(family, y, scale, None)
    return value, slope_of(family, y, a, scale, None)


@scalar_ieee
def expected_log_likelihood(m, s, y, family, scale):
    """Returns E log p(y | a), a ~ N(m, s^2), and the expectations of its first two derivatives."""
    return expectation(family, m, s, y, scale)


@scalar
def activation(x, offset, mu, variance, factor, full, u):
    """Returns mean and standard deviation of x'theta + offset. For a full-rank posterior it fills u = factor' x."""
    d = x.size
    m, v = 0.0, 0.0
    if full:
        u[:] = 0.0
        for i in range(d):
            for j in range(i + 1):
                u[j] += x[i] * factor[i, j]
    for j in range(d):
        m += x[j] * mu[j]
        v += u[j] * u[j] if full else x[j] * x[j] * variance[j]
    return m + offset, np.sqrt(v)


@loop
def loglik_rows(X, y, offset, weights, theta, family, scale, loglik, grads):
    """Adds up log-likelihoods (S,) and gradients (S, d) at the rows of theta (S, d)."""
    d = X.shape[1]
    x = np.empty(d)
    for i in range(X.shape[0]):
        for j in range(d):
            x[j] = X[i, j]
        yi = clean(y[i], family)
        for s in range(theta.shape[0]):
            a = offset[i]
            for j in range(d):
                a += x[j] * theta[s, j]
            value, slope = log_likelihood(a, yi, family, scale)
            loglik[s] += weights[i] * value
            r = weights[i] * slope
            for j in range(d):
                grads[s, j] += r * x[j]


@loop
def expectation_rows(X, y, offset, weights, mu, variance, factor, full, family, scale, value, slope, curvature):
    x, u = np.empty(X.shape[1]), np.empty(X.shape[1])
    for i in range(X.shape[0]):
        for j in range(x.size):
            x[j] = X[i, j]
        m, s = activation(x, offset[i], mu, variance, factor, full, u)
        e0, e1, e2 = expected_log_likelihood(m, s, clean(y[i], family), family, scale)
        value[i], slope[i], curvature[i] = weights[i] * e0, weights[i] * e1, weights[i] * e2


@loop
def predict_rows(X, offset, mu, variance, factor, full, family, method, mean):
    x, u = np.empty(X.shape[1]), np.empty(X.shape[1])
    for i in range(X.shape[0]):
        for j in range(x.size):
            x[j] = X[i, j]
        m, s = activation(x, offset[i], mu, variance, factor, full, u)
        if family in (POISSON, NEGATIVE_BINOMIAL):
            mean[i] = np.exp(m + 0.5 * s * s)
        elif family == GAUSSIAN:
            mean[i] = m
        elif family != BERNOULLI:
            raise ValueError("family: no likelihood of the Numba kernels has this number")
        elif method == PROBIT:
            mean[i] = of.expit(m / np.sqrt(1.0 + np.pi / 8.0 * s * s))
        else:
            mean[i] = of.log_sigmoid_expected(-m, s)[1]


@scalar
def example_vector(x, y, offset, weight, mu, variance, factor, full, e, family, scale, estimator, u, v):
    """Fills v with a row's gradient of weight E log p in (mu, log sigma) or (mu, lower triangle of L). Returns weight E log p and
    the size of the larger coefficient of x.

    e (S, d): sigma e_s, deviations of the weights; or (S, 1): deviations z_s of the activations.
    """
    d, draws = x.size, e.shape[0]
    m, s = activation(x, offset, mu, variance, factor, full, u)
    value, r, k = 0.0 * m, 0.0, 0.0
    if estimator == ANALYTIC:
        value, r, k = expected_log_likelihood(m, s, y, family, scale)
    elif estimator == ACTIVATION_MC:
        for t in range(draws):
            slope = log_likelihood(m + s * e[t, 0], y, family, scale)[1]
            r += slope / draws
            k += slope * e[t, 0] / draws
        k = 0.0 if s == 0.0 else k / s
    else:
        u[:] = 0.0
        for t in range(draws):
            a = offset
            for j in range(d):
                a += x[j] * (mu[j] + e[t, j])
            slope = log_likelihood(a, y, family, scale)[1] / draws
            r += slope
            for j in range(d):
                u[j] += slope * e[t, j]
        value, k = 0.0 * r, 0.0
    # From derivatives in the activation to those in the parameters.
    place = d
    for i in range(d):
        v[i] = weight * r * x[i]
        if full:
            for j in range(i + 1):
                v[place] = weight * k * x[i] * u[j]
                place += 1
        else:
            v[d + i] = weight * x[i] * u[i] if estimator == WEIGHT_MC else weight * k * (variance[i] * x[i] * x[i])
    return weight * value, max(abs(weight * r), abs(weight * k))


@loop
def example_rows(
    X, y, offset, weights, rows, all_rows, mu, variance, factor, full, e, family, scale, estimator, clip, grid, total, whole
):  # fmt: skip
    """Adds clipped vectors to total or, with a grid, to whole; returns the sum of E log p and the number of rows skipped."""
    d, skipped, values = X.shape[1], 0, 0.0
    x, u, v = np.empty(d), np.empty(d), np.empty(total.size)
    margin = 2e-5 if X.itemsize == 4 and not grid > 0.0 else 1e-9
    bound = clip * (1.0 - margin)
    n_rows = X.shape[0] if all_rows else rows.size
    for k in range(n_rows):
        i = k if all_rows else rows[k]
        # Compiled code does not check an index: another row would be read, or memory beyond.
        if i < 0 or i >= X.shape[0]:
            raise IndexError("rows: an index is no row of X")
        for j in range(d):
            x[j] = X[i, j]
        yi = clean(y[i], family)
        value, coefficient = example_vector(
            x, yi, offset[i], weights[i], mu, variance, factor, full, e, family, scale, estimator, u, v
        )
        values += value
        w = 1.0
        if clip != KEEP_ALL:
            squared = 0.0 * value  # NaN where an activation is not finite, or |x|^2 is not
            for j in range(d):
                squared += 0.0 * (x[j] * x[j])
            for j in range(v.size):
                squared += v[j] * v[j]
            if not (np.isfinite(squared) and coefficient <= LARGEST_COEFFICIENT):
                skipped += 1
                continue
            norm = np.sqrt(squared)
            w = bound / norm if norm > bound else 1.0
        # Whole numbers add up exactly: the sum does not depend on the order of rows.
        if grid > 0.0:
            for j in range(v.size):
                whole[j] += int64(w * v[j] / grid)
        else:
            for j in range(v.size):
                total[j] += w * v[j]
    return values, skipped


def lean(rows, *arguments):
    """Returns a function that compiles a loop once for each type of X, whatever the layouts: they cost a few per cent, and a
    compilation seconds. Nopython code calls the loop itself."""
    dispatcher, ready = loop(rows.py_func), set()

    def call(X, *rest):
        if X.dtype not in ready:
            x_type = float32 if X.dtype == np.float32 else float64
            x = types.Array(x_type, 2, "A", readonly=True)
            dispatcher.disable_compile(False)
            dispatcher.compile((x, *arguments))
            dispatcher.disable_compile()
            ready.add(X.dtype)
        return dispatcher(X, *rest)

    overload(call, jit_options=EXACT)(lambda X, *rest: lambda X, *rest: rows(X, *rest))
    return call


_in = types.Array(float64, 1, "A", readonly=True)
_rows_in = types.Array(int64, 1, "A", readonly=True)
_out = types.Array(float64, 1, "A")
_q = (float64[::1], float64[::1], float64[:, ::1], boolean)  # mu, variance, factor, full
_logliks = lean(loglik_rows, _in, _in, _in, float64[:, ::1], int64, float64, float64[::1], float64[:, ::1])
_expectations = lean(expectation_rows, _in, _in, _in, *_q, int64, float64, _out, _out, _out)
_predictions = lean(predict_rows, _in, *_q, int64, int64, _out)
_examples = lean(
    example_rows, _in, _in, _in, _rows_in, boolean, *_q, float64[:, ::1], int64, float64, int64, float64, float64, float64[::1],
    int64[::1],
)  # fmt: skip


def column(values, n, default):
    """Returns a float64 column; a constant one takes no memory."""
    return np.ndarray((n,), np.float64, np.array(default), 0, (0,)) if values is None else values.astype(np.float64, copy=False)


@overload(column, jit_options=EXACT)
def _column(values, n, default):
    if isinstance(values, (types.NoneType, types.Omitted)):
        return lambda values, n, default: np.broadcast_to(np.full(1, default), (n,))
    if values.dtype == float64:
        return lambda values, n, default: values
    return lambda values, n, default: values.astype(np.float64)


@prepares
def columns(X, y, offset, weights):
    n = X.shape[0]
    return column(y, n, 0.0), column(offset, n, 0.0), column(weights, n, 1.0)


@prepares
def copy_posterior(mu, spread):
    """Returns mu, variance, factor, full: contiguous copies, one of variance and factor empty."""
    if spread.ndim == 2:
        return copied(mu), np.empty(0), copied(spread), True
    return copied(mu), np.exp(2 * copied(spread)), np.empty((0, 0)), False


@prepares
def normals(n, key, client, step, draw):
    out = np.empty(n)
    rng.normal(np.uint64(key), np.uint32(client), np.uint32(step), np.uint32(draw), np.uint32(0), out, 1)
    return out


@prepares
def weight_draws(d, draws, key, client, step):
    e = np.empty((draws, d))
    for s in range(draws):
        e[s] = normals(d, key, client, step, s)
    return e


@prepares
def logliks(X, y, theta, offset, weights, family, scale):
    value, grads = np.zeros(theta.shape[0]), np.zeros(theta.shape)
    ys, offsets, factors = columns(X, y, offset, weights)
    _logliks(X, ys, offsets, factors, theta, family, scale, value, grads)
    return value, grads


@prepares
def loglik_grad(X, y, theta, offset, weights, family, scale, grad, n_threads):
    value, grads = logliks(X, y, copied(theta).reshape(1, theta.size), offset, weights, family, scale)
    grad[:] = grads[0]
    return value[0]


@prepares
def expectations(X, y, mu, log_sigma, offset, weights, family, scale, value, slope, curvature, n_threads):
    ys, offsets, factors = columns(X, y, offset, weights)
    m, variance, factor, full = copy_posterior(mu, log_sigma)
    _expectations(X, ys, offsets, factors, m, variance, factor, full, family, scale, value, slope, curvature)


expectations_full = expectations


@prepares
def predict(X, mu, log_sigma, offset, family, method, mean, n_threads):
    m, variance, factor, full = copy_posterior(mu, log_sigma)
    _predictions(X, column(offset, X.shape[0], 0.0), m, variance, factor, full, family, method, mean)


predict_full = predict


@prepares
def numbers_of_rows(rows):
    return np.empty(0, np.int64) if rows is None else rows


@prepares
def examples(X, y, mu, log_sigma, rows, offset, weights, family, scale, e, estimator, clip, grid):
    """Returns the sum of E log p, the sum of vectors (float64, and in whole multiples of the grid), and the number of rows
    skipped."""
    d = X.shape[1]
    size = d * (d + 3) // 2 if log_sigma.ndim == 2 else 2 * d
    total, whole = np.zeros(size), np.zeros(size, np.int64)
    ys, offsets, factors = columns(X, y, offset, weights)
    m, variance, factor, full = copy_posterior(mu, log_sigma)
    value, skipped = _examples(
        X, ys, offsets, factors, numbers_of_rows(rows), rows is None, m, variance, factor, full, e, family, scale, estimator,
        clip, grid, total, whole,
    )  # fmt: skip
    return value, total, whole, skipped


@prepares
def clipped_grad_sum(
    X, y, mu, log_sigma, rows, offset, weights, family, scale, clip, estimator, draws, key, client, step, noise_multiplier, grid,
    total, n_threads,
):  # fmt: skip
    e = np.empty((0, 0))
    if estimator == WEIGHT_MC:
        e = weight_draws(mu.size, draws, key, client, step) * np.exp(log_sigma)
    elif estimator == ACTIVATION_MC:
        e = normals(draws, key, client, step, 0).reshape(draws, 1)
    _, sums, whole, skipped = examples(X, y, mu, log_sigma, rows, offset, weights, family, scale, e, estimator, clip, grid)
    if noise_multiplier > 0:
        sums += noise_multiplier * clip * normals(sums.size, key, client, step, NOISE_DRAW)
    if grid > 0:
        total[:] = whole
    else:
        total[:] = sums
    return skipped


clipped_grad_sum_full = clipped_grad_sum


@prepares
def elbo_grad(
    X, y, mu, log_sigma, prior_shift, prior_precision, offset, weights, family, scale, estimator, draws, key, client, step,
    grad_mu, grad_log_sigma, n_threads,
):  # fmt: skip
    h, P, sigma, d = prior_shift, prior_precision, np.exp(log_sigma), mu.size
    constant = 0.0  # of the prior, if it is a density
    if (P > 0).all():
        constant = (np.log(P / (2 * np.pi)) - h**2 / P).sum() / 2
    entropy = log_sigma.sum() + d / 2 * np.log(2 * np.pi)  # without e^2 / 2
    if estimator == ANALYTIC_ELBO:
        value, total, _, _ = examples(
            X, y, mu, log_sigma, None, offset, weights, family, scale, np.empty((0, 0)), ANALYTIC, KEEP_ALL, 0.0
        )
        grad_mu[:] = total[:d] + h - P * mu
        grad_log_sigma[:] = total[d:] + 1 - P * sigma**2
        return value + (h * mu - P * (sigma**2 + mu**2) / 2).sum() + entropy + d / 2 + constant
    e = weight_draws(d, draws, key, client, step)
    theta = mu + sigma * e
    values, grads = logliks(X, y, theta, offset, weights, family, scale)
    u = grads + h - P * theta
    if estimator == STL:
        u += e / sigma
    grad_mu[:] = u.sum(axis=0) / draws
    of_entropy = 1.0 if estimator == TOTAL else 0.0
    grad_log_sigma[:] = (u * e).sum(axis=0) / draws * sigma + of_entropy
    return (values + (h * theta - P * theta**2 / 2 + e**2 / 2).sum(axis=1)).mean() + entropy + constant


@prepares
def elbo_grad_full(
    X, y, mu, log_sigma, prior_shift, prior_precision, offset, weights, normaliser, family, scale, estimator, draws, key, client,
    step, grad_mu, grad_log_sigma, n_threads,
):  # fmt: skip
    m, h, P, L, d = copied(mu), copied(prior_shift), copied(prior_precision), np.tril(copied(log_sigma)), mu.size
    entropy = np.log(np.diag(L)).sum() + d / 2 * np.log(2 * np.pi)  # without e^2 / 2
    on_diagonal = np.diag(1 / np.diag(L))
    if estimator == ANALYTIC_ELBO:
        value, total, _, _ = examples(
            X, y, mu, log_sigma, None, offset, weights, family, scale, np.empty((0, 0)), ANALYTIC, KEEP_ALL, 0.0
        )
        grad_mu[:] = total[:d] + h - P @ m
        grad_log_sigma[:] = on_diagonal - np.tril(P @ L)
        place = d
        for i in range(d):
            for j in range(i + 1):
                grad_log_sigma[i, j] += total[place]
                place += 1
        return value + h @ m - (m @ P @ m + (P @ L * L).sum()) / 2 + entropy + d / 2 + normaliser
    e = weight_draws(d, draws, key, client, step)
    theta = m + e @ L.T
    values, grads = logliks(X, y, theta, offset, weights, family, scale)
    u = grads + h - theta @ P
    if estimator == STL:
        u += np.linalg.solve(L.T, e.T).T
    grad_mu[:] = u.sum(axis=0) / draws
    grad_log_sigma[:] = np.tril(u.T @ e) / draws
    if estimator == TOTAL:
        grad_log_sigma[:] += on_diagonal
    return (values + theta @ h - ((theta @ P) * theta - e**2).sum(axis=1) / 2).mean() + entropy + normaliser
