"""Chooses for generalised linear models the instance by the number of columns, workspaces, and chunks of rows for full-rank
posteriors."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from fedkern._core import glm as host

from . import rng
from .device import VECTOR, Array, Launched, blocks, counter, current, key, named, pointer, strides, structure, vector

THREADS = 256
WARPS = THREADS // 32
MOST_SHARES = 512  # blocks that have sums of their own
C_TYPES = {"float64": "double", "float32": "float"}
COLUMN_TYPES = {"float64": 0, "float32": 1, "int64": 2, "int32": 3, "int8": 4, "uint8": 5, "bool": 5}  # views.hpp
# (C, R): a warp holds R rows of up to 32 C columns; longer rows are read twice. What is missing here would spill registers.
LOGLIK_SHAPES = ((1, 8), (4, 4), (8, 2))
SEVERAL_LOGLIKS = {1: (8, 4), 4: (2, 2), 8: (2, 1)}  # C: rows, and draws at once
EXAMPLE_SHAPES = {"expectation": ((1, 4), (4, 2)), "weights": ((1, 8), (4, 4), (8, 1)), "several": ((1, 4), (4, 2))}
CHUNK_BYTES = 1 << 26  # of the rows of a chunk, in float64
STL, ANALYTIC_ELBO = 0, 2
ANALYTIC, WEIGHT_MC = 0, 1
NO_CLIP = (0.0, 0.0, 0.0)

_COLUMN = np.dtype([("data", "i8"), ("stride", "i8"), ("type", "i4"), ("fill", "f8")], align=True)
_REGRESSION = np.dtype(
    [
        ("x", "i8"),
        ("single", "?"),
        *((name, "i8") for name in ("rows", "d", "row_stride", "col_stride")),
        *((name, _COLUMN) for name in ("y", "offset", "weight")),
        ("picked", "i8"),
        ("n", "i8"),
    ],
    align=True,
)
_LIKELIHOOD = np.dtype([("family", "i4"), ("scale", "f8")], align=True)
_CLIPPING = np.dtype([("bound", "f8"), ("grid", "f8"), ("noise", "f8")], align=True)
_SHARED = np.dtype([("first", "i8"), ("second", "i8"), ("z", "i8"), ("draws", "i8")], align=True)
_CHUNK = np.dtype([(name, "i8") for name in ("m", "v", "n2", "n4")], align=True)


def _column(values: Array | None, fill: float) -> Launched:
    """Returns a Column of views.hpp."""
    return (0, 0, 0, fill) if values is None else (pointer(values), values.strides[0], COLUMN_TYPES[named(values.dtype)], 0.0)


class Data(NamedTuple):
    """Holds rows and a likelihood as kernels take them, with the arrays that have to live as long."""

    regression: np.void
    likelihood: np.void
    n: int
    d: int
    c_type: str
    alive: Launched


@cache
def _known(family: int) -> int:
    """Returns the number, if a family has it. A host's kernels, which have the same list of them, refuse it by name."""
    none = np.empty(0)
    host.predict(np.empty((0, 0)), none, none, None, family, 0, none, 1)
    return family


def _data(
    X: Array, y: Array | None, offset: Array | None, weights: Array | None, family: int, scale: float, rows: Array = None
) -> Data:
    if rows is not None:
        if len(rows) and int(rows.view(np.uint64).max()) >= len(X):  # one below 0 is huge
            raise IndexError("rows: an index is no row of X")
        rows = current().xp.ascontiguousarray(rows)
    n = len(X) if rows is None else len(rows)
    d = X.shape[1]
    columns = (_column(y, 0.0), _column(offset, 0.0), _column(weights, 1.0))
    single = named(X.dtype) == "float32"
    picked = 0 if rows is None else pointer(rows)
    regression = structure(_REGRESSION, pointer(X), single, *X.shape, *strides(X), *columns, picked, n)
    likelihood = structure(_LIKELIHOOD, _known(family), scale)
    return Data(regression, likelihood, n, d, C_TYPES[named(X.dtype)], (X, y, offset, weights, rows))


def _shape(shapes: tuple[tuple[int, int], ...], d: int) -> tuple[int, int] | None:
    """Returns (C, R) for a number of columns; None for more than a warp holds."""
    return next(((c, r) for c, r in shapes if d <= 32 * c), None)


def _launch(kernel: str, grid: tuple[int, ...], *arguments: object) -> None:
    current().launch("glm", kernel, grid, THREADS, arguments)


def _summed(partial: Array, shares: int, size: int, c_type: str = "double") -> Array:
    """Returns the sum of the blocks' partial sums, in a fixed order."""
    total = current().xp.empty(size, partial.dtype)
    _launch(f"sum_partials<{c_type}>", (-(-size // 32),), partial, shares, size, vector(total))
    return total


def _weights(
    mu: Array, log_sigma: Array, draws: int, share: float, key_: int, client: int, step: int
) -> tuple[Array, Array, Array]:
    """Returns theta_s = mu + sigma e_s; e_s; share sigma e_s."""
    theta, e, deviation = (current().xp.empty((draws, len(mu))) for _ in range(3))
    grid = (blocks(draws * -(-len(mu) // 2), THREADS),)
    named = (key(key_), counter(client, step))
    _launch("draw_weights", grid, vector(mu), vector(log_sigma), draws, share, *named, theta, e, deviation)
    return theta, e, deviation


# ---- Log-likelihood.


def _logliks(data: Data, theta: Array) -> Array:
    """Returns (S, d + 1): gradient and value at each of S parameters."""
    xp, (draws, d), shape = current().xp, theta.shape, _shape(LOGLIK_SHAPES, data.d)
    if shape:
        shape_of_blocks = SEVERAL_LOGLIKS[shape[0]] if draws > 1 else (shape[1], 1)
        c, (r, s) = shape[0], shape_of_blocks
        shares = blocks(data.n, WARPS * r, MOST_SHARES)
        partial = xp.empty((shares, draws, d + 1))
        for first in range(0, draws, s):
            kernel = f"loglik_rows<{data.c_type}, {c}, {r}, {s}>"
            _launch(kernel, (shares,), data.regression, data.likelihood, theta, draws, first, partial)
    else:
        shares = blocks(data.n, 64, 128)
        partial, slopes, values = xp.empty((shares, draws, d + 1)), xp.empty((data.n, draws)), xp.empty((data.n, draws))
        first_pass = (data.regression, data.likelihood, theta, draws, slopes, values)
        _launch(f"loglik_slopes<{data.c_type}>", (blocks(data.n, WARPS),), *first_pass)
        grid = (shares, -(-(d + 1) // THREADS), draws)
        _launch(f"loglik_columns<{data.c_type}>", grid, data.regression, slopes, values, draws, partial)
    return _summed(partial, shares, draws * (d + 1)).reshape(draws, d + 1)


def loglik_grad(
    X: Array, y: Array, theta: Array, offset: Array, weights: Array, family: int, scale: float, grad: Array, n_threads: int
) -> Array:
    sums = _logliks(_data(X, y, offset, weights, family, scale), current().xp.ascontiguousarray(theta)[None])
    grad[...] = sums[0, :-1]
    return sums[0, -1]


# ---- Sums over examples.


def _examples(data: Data, by: str, clip: tuple[float, ...] | None, value: bool, shared: Launched, grid: bool = False) -> Array:
    """Returns (2 d + 2,): the sums of example_rows. `shared` are two arrays of vectors, the draws of the activations, and a
    count."""
    out = "Index" if grid else "double"
    xp, d = current().xp, data.d
    shape = _shape(EXAMPLE_SHAPES[by], d)
    common = (structure(_CLIPPING, *(clip or NO_CLIP)), np.int32(clip is not None), np.int32(value))
    vectors = structure(_SHARED, *map(pointer, shared[:3]), shared[3])
    dtype = np.int64 if grid else np.float64
    size = 2 * d + 2
    if shape:
        shares = blocks(data.n, WARPS * shape[1], MOST_SHARES)
        partial = xp.empty((shares, size), dtype)
        kernel = f"example_rows<By::{by}, {data.c_type}, {shape[0]}, {shape[1]}, {out}>"
        _launch(kernel, (shares,), data.regression, data.likelihood, *common, vectors, partial)
    else:
        shares = blocks(data.n, 64, 128)
        scratch = (data.n, shared[3]) if by == "several" else 0
        partial, slopes = xp.empty((shares, size), dtype), xp.empty(scratch)
        alpha, beta, values = (xp.empty(data.n) for _ in range(3))
        by_row = (alpha, beta, values, slopes)
        first_pass = (data.regression, data.likelihood, *common, vectors, *by_row)
        _launch(f"example_coefficients<By::{by}, {data.c_type}>", (blocks(data.n, WARPS),), *first_pass)
        tiles = (shares, -(-(d + 1) // THREADS))
        _launch(f"example_columns<By::{by}, {data.c_type}, {out}>", tiles, data.regression, common[1], vectors, *by_row, partial)
    return _summed(partial, shares, size, out)


def _unfolded(mu: Array, log_sigma: Array, draws: int = 0, key_: int = 0, client: int = 0, step: int = 0) -> Launched:
    """Returns mu, sigma^2, draws of the activations, and their number."""
    mean, variance, z = (current().xp.empty(size) for size in (len(mu), len(mu), draws))
    named = (draws, key(key_), counter(client, step))
    _launch("unfold", (blocks(max(len(mu), draws), THREADS),), vector(mu), vector(log_sigma), *named, mean, variance, z)
    return mean, variance, z, draws


def clipped_grad_sum(
    X: Array, y: Array, mu: Array, log_sigma: Array, rows: Array, offset: Array, weights: Array, family: int, scale: float,
    clip: float, estimator: int, draws: int, key_: int, client: int, step: int, noise: float, grid: float, total: Array,
    n_threads: int,
) -> Array:  # fmt: skip
    data = _data(X, y, offset, weights, family, scale, rows)
    named = (key_, client, step)
    if estimator == WEIGHT_MC:
        by = "weights" if draws == 1 else "several"
        theta, _, deviation = _weights(mu, log_sigma, draws, 1 / draws, *named)
        shared: Launched = (theta, deviation, None, draws)
    else:
        n_draws = 0 if estimator == ANALYTIC else draws
        by, shared = "expectation", _unfolded(mu, log_sigma, n_draws, *named)
    sums = _examples(data, by, (clip, grid, 0.0), False, shared, grid > 0)
    skipped = current().xp.empty((), np.int64)
    sd = noise * clip if noise > 0 else 0.0
    kernel = "finish_examples<By::expectation, Index>" if grid > 0 else f"finish_examples<By::{by}, double>"
    ends = (shared[1], sd, key(key_), counter(client, step), vector(total), skipped.reshape(1))
    _launch(kernel, (blocks(2 * data.d, THREADS),), sums, data.d, *ends)
    return skipped


# ---- The evidence lower bound.


def elbo_grad(
    X: Array, y: Array, mu: Array, log_sigma: Array, prior_shift: Array, prior_precision: Array, offset: Array, weights: Array,
    family: int, scale: float, estimator: int, draws: int, key_: int, client: int, step: int, grad_mu: Array,
    grad_log_sigma: Array, n_threads: int,
) -> Array:  # fmt: skip
    data, elbo = _data(X, y, offset, weights, family, scale), current().xp.empty(1)
    ends = (*map(vector, (prior_shift, prior_precision)),)
    prior = structure(_PRIOR, *(tuple(v.item()) for v in ends))
    out = (vector(grad_mu), vector(grad_log_sigma), elbo)
    if estimator == ANALYTIC_ELBO:
        shared = _unfolded(mu, log_sigma)
        sums = _examples(data, "expectation", None, True, shared)
        _launch("finish_analytic", (1,), sums, shared[1], vector(mu), vector(log_sigma), prior, *out)
    else:
        theta, e, _ = _weights(mu, log_sigma, draws, 1.0, key_, client, step)
        sums = _logliks(data, theta)
        _launch("finish_sampled", (1,), sums, theta, e, draws, vector(log_sigma), prior, np.int32(estimator == STL), *out)
    return elbo.reshape(())


_PRIOR = np.dtype([("shift", VECTOR), ("precision", VECTOR)], align=True)
_OUTPUTS = np.dtype([(name, VECTOR) for name in ("value", "slope", "curvature")], align=True)


def _outputs(*arrays: Array) -> Array:
    """Returns RowOutputs of glm.cu."""
    given = [tuple(vector(a).item()) for a in arrays]
    return structure(_OUTPUTS, *given, *((0, 0, 0),) * (3 - len(given)))


# ---- Every row.


def _row_by_row(data: Data, wanted: str, mu: Array, log_sigma: Array, probit: bool, outputs: Array) -> None:
    if data.n:
        mean, variance, *_ = _unfolded(mu, log_sigma)
        kernel = f"row_expectations<Wanted::{wanted}, {data.c_type}>"
        grid = (blocks(data.n, WARPS * 8),)
        _launch(kernel, grid, data.regression, data.likelihood, mean, variance, np.int32(probit), outputs)


def expectations(
    X: Array, y: Array, mu: Array, log_sigma: Array, offset: Array, weights: Array, family: int, scale: float, value: Array,
    slope: Array, curvature: Array, n_threads: int,
) -> None:  # fmt: skip
    data = _data(X, y, offset, weights, family, scale)
    _row_by_row(data, "expectations", mu, log_sigma, False, _outputs(value, slope, curvature))


def predict(X: Array, mu: Array, log_sigma: Array, offset: Array, family: int, method: int, mean: Array, n_threads: int) -> None:
    _row_by_row(_data(X, None, offset, None, family, 1.0), "mean", mu, log_sigma, method == 0, _outputs(mean))


# ---- Full rank: rows in chunks, rotated by the library's matrix product.


class Rotated(NamedTuple):
    """Holds a chunk of rows: x, u = L'x, and sums over their columns."""

    begin: int
    n: int
    x: Array
    u: Array
    sums: Array
    alive: Array


def _chunks(data: Data, mu: Array, L: Array) -> Array:
    xp, d = current().xp, data.d
    most = max(1, CHUNK_BYTES // (8 * max(d, 1)))
    for begin in range(0, data.n, most):
        count = min(most, data.n - begin)
        x = xp.empty((count, d))
        _launch(f"gather_rows<{data.c_type}>", (blocks(count * d, THREADS),), data.regression, begin, count, x)
        u = xp.ascontiguousarray(xp.matmul(x, L))
        kept = xp.empty((4, count))
        sums = structure(_CHUNK, *(pointer(row) for row in kept))
        _launch("rotated_sums", (blocks(count, WARPS),), x, u, vector(mu), count, sums)
        yield Rotated(begin, count, x, u, sums, kept)


def _lower(log_sigma: Array) -> Array:
    return current().xp.tril(log_sigma)


def _chunk_by_chunk(data: Data, wanted: str, mu: Array, log_sigma: Array, probit: bool, outputs: Array) -> None:
    for chunk in _chunks(data, mu, _lower(log_sigma)):
        rows = (chunk.begin, chunk.n, chunk.sums, np.int32(probit), outputs)
        kernel = f"chunk_expectations<Wanted::{wanted}>"
        _launch(kernel, (blocks(chunk.n, THREADS),), data.regression, data.likelihood, *rows)


def expectations_full(
    X: Array, y: Array, mu: Array, log_sigma: Array, offset: Array, weights: Array, family: int, scale: float, value: Array,
    slope: Array, curvature: Array, n_threads: int,
) -> None:  # fmt: skip
    data = _data(X, y, offset, weights, family, scale)
    _chunk_by_chunk(data, "expectations", mu, log_sigma, False, _outputs(value, slope, curvature))


def predict_full(
    X: Array, mu: Array, log_sigma: Array, offset: Array, family: int, method: int, mean: Array, n_threads: int
) -> None:
    _chunk_by_chunk(_data(X, None, offset, None, family, 1.0), "mean", mu, log_sigma, method == 0, _outputs(mean))


def _coefficients(data: Data, chunk: Rotated, clip: tuple[float, ...] | None, value: bool) -> tuple[Array, Array, Array]:
    alpha, beta, values = (current().xp.empty(chunk.n) for _ in range(3))
    common = (structure(_CLIPPING, *(clip or NO_CLIP)), np.int32(clip is not None), np.int32(value))
    rows = (chunk.begin, chunk.n, chunk.sums, alpha, beta, values)
    _launch("chunk_coefficients", (blocks(chunk.n, THREADS),), data.regression, data.likelihood, *common, *rows)
    return alpha, beta, values


def _full_sums(data: Data, mu: Array, L: Array, clip: tuple[float, ...] | None, value: bool) -> tuple[Array, Array, Array, Array]:
    """Returns (d,), (d, d) whose lower triangle counts, the value, and how many rows were skipped."""
    xp, d = current().xp, data.d
    sum_mu, sum_L, sum_value, skipped = xp.zeros(d), xp.zeros((d, d)), xp.zeros(()), xp.zeros(())
    for chunk in _chunks(data, mu, L):
        alpha, beta, values = _coefficients(data, chunk, clip, value)
        v, skips = xp.empty_like(chunk.x), xp.empty(chunk.n)
        both = (np.int32(clip is not None), alpha, beta, chunk.x, chunk.u, v, skips)
        _launch("scale_chunk", (blocks(chunk.n, WARPS),), d, chunk.n, *both)
        sum_mu = sum_mu + xp.matmul(alpha, chunk.x)
        sum_L = sum_L + xp.matmul(v.T, chunk.u)
        sum_value, skipped = sum_value + values.sum(), skipped + skips.sum()
    return sum_mu, sum_L, sum_value, skipped


def clipped_grad_sum_full(
    X: Array, y: Array, mu: Array, log_sigma: Array, rows: Array, offset: Array, weights: Array, family: int, scale: float,
    clip: float, estimator: int, draws: int, key_: int, client: int, step: int, noise: float, grid: float, total: Array,
    n_threads: int,
) -> Array:  # fmt: skip
    data, L, xp, d = _data(X, y, offset, weights, family, scale, rows), _lower(log_sigma), current().xp, X.shape[1]
    bounds, size = (clip, grid, 0.0), d * (d + 3) // 2
    if grid > 0:
        sums = xp.zeros(size + 1, np.int64)
        for chunk in _chunks(data, mu, L):
            alpha, beta, _ = _coefficients(data, chunk, bounds, False)
            shares = blocks(chunk.n, 256, 64)
            partial = xp.empty((shares, size + 1), np.int64)
            tiles = (shares, -(-(size + 1) // THREADS))
            _launch("chunk_grid_sums", tiles, d, chunk.n, alpha, beta, chunk.x, chunk.u, partial)
            sums = sums + _summed(partial, shares, size + 1, "Index")
        total[...] = sums[:-1]
        return sums[-1]
    sum_mu, sum_L, _, skipped = _full_sums(data, mu, L, bounds, False)
    total[:d], total[d:] = sum_mu, sum_L[xp.tril_indices(d)]
    if noise > 0:
        z = xp.empty(size)
        rng.normal(key_, client, step, 2**32 - 1, 0, z, 1)
        total += noise * clip * z
    return skipped.astype(np.int64)


def elbo_grad_full(
    X: Array, y: Array, mu: Array, log_sigma: Array, prior_shift: Array, prior_precision: Array, offset: Array, weights: Array,
    normaliser: float, family: int, scale: float, estimator: int, draws: int, key_: int, client: int, step: int, grad_mu: Array,
    grad_log_sigma: Array, n_threads: int,
) -> Array:  # fmt: skip
    xp, d, h, P, L = current().xp, X.shape[1], prior_shift, prior_precision, _lower(log_sigma)
    data = _data(X, y, offset, weights, family, scale)
    diagonal = xp.diagonal(L)
    constant = normaliser + d * 0.5 * float(np.log(2 * np.pi)) + xp.log(diagonal).sum()
    if estimator == ANALYTIC_ELBO:
        sum_mu, sum_L, value, _ = _full_sums(data, mu, L, None, True)
        P_mu, P_L = xp.matmul(P, mu), xp.matmul(P, L)
        grad_mu[...] = sum_mu + h - P_mu
        grad_log_sigma[...] = xp.tril(sum_L - P_L) + xp.diag(1 / diagonal)
        return value + constant + 0.5 * d + (h * mu).sum() - 0.5 * ((mu * P_mu).sum() + (L * P_L).sum())
    e = xp.empty((draws, d))
    for s in range(draws):
        rng.normal(key_, client, step, s, 0, e[s], 1)
    theta = mu + xp.matmul(e, L.T)
    sums = _logliks(data, xp.ascontiguousarray(theta))
    P_theta = xp.matmul(theta, P)
    u = (sums[:, :-1] + h - P_theta) / draws
    if estimator == STL and d:
        solved = xp.empty((draws, d))
        _launch("solve_transposed", (draws,), xp.ascontiguousarray(L), e, d, solved)
        u = u + solved / draws
    grad_mu[...] = u.sum(axis=0)
    of_draws = 0 if estimator == STL else xp.diag(1 / diagonal)
    grad_log_sigma[...] = xp.tril(xp.matmul(u.T, e)) + of_draws
    density = (h * theta - 0.5 * theta * P_theta + 0.5 * e * e).sum() / draws
    return sums[:, -1].sum() / draws + density + constant
