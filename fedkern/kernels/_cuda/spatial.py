"""Draws from spatial priors on a device."""

from __future__ import annotations

import numpy as np

from fedkern._core import rng

from .device import MATRIX, VECTOR, Array, blocks, current, key, matrix, pointer, strides, structure, vector

# Computes Gaussian processes: a thread an element of a covariance, a block a factor or a draw --------------------

THREADS = 256
WORKSPACE = 1 << 30  # bytes of the factors that are made at a time
NAMES = np.dtype([("seed", "u8"), ("chain", "u8"), ("client", "u4"), ("step", "u4")], align=True)
_COVARIANCES = np.dtype([(f, "i8") for f in ("data", "matrix", "row", "col")], align=True)


def at_a_time(tasks: int, numbers: int) -> int:
    """Returns how many blocks run, each with `numbers` float64 numbers for itself."""
    return max(1, min(tasks, WORKSPACE // (8 * max(numbers, 1))))


def gp_covariance(x: Array, lengthscale: Array, kind: int, jitter: float, covariance: Array, n_threads: int) -> None:
    if covariance.size:
        out = structure(_COVARIANCES, pointer(covariance), *strides(covariance))
        arguments = (matrix(x), vector(lengthscale), np.int32(kind), jitter, out)
        current().launch("spatial", "gp_covariances", (blocks(covariance.size, THREADS),), THREADS, arguments)


def gp_factor(x: Array, lengthscale: Array, kind: int, tolerance: float, factors: Array, residual: Array, n_threads: int) -> None:
    (m, n, rank) = factors.shape
    if not m:
        return
    grid = at_a_time(m, (rank + 1) * n)
    out = structure(_COVARIANCES, pointer(factors), *strides(factors))
    arguments = (matrix(x), vector(lengthscale), np.int32(kind), tolerance, rank, out, vector(residual))
    workspace = current().xp.empty(grid * (rank + 1) * n)
    current().launch("spatial", "gp_pivoted", (grid,), THREADS, (*arguments, workspace))


def gp_sample(
    x: Array, lengthscale: Array, kind: int, jitter: float, seed: int, chain: int, client: int, step: int, theta: Array,
    n_threads: int,
) -> int:  # fmt: skip
    """Returns the first draw whose covariance has no factor, or -1; this is waited for."""
    m, n = theta.shape
    if not m or not n:
        return -1
    xp, size = current().xp, (n + 1) * (n + 2) // 2 + 2 * n
    grid = at_a_time(m, size)
    failed, workspace = xp.empty(m, np.int64), xp.empty(grid * size)
    arguments = (
        matrix(x),
        vector(lengthscale),
        np.int32(kind),
        jitter,
        structure(NAMES, seed, chain, client, step),
        matrix(theta),
    )
    current().launch("spatial", "gp_draws", (grid,), THREADS, (*arguments, failed, workspace))
    return int(failed.argmax()) if bool(failed.any()) else -1


# Draws autoregressive priors through eigenvectors: the library's matrix product between two kernels --------------------


def car_sample(
    vectors: Array, values: Array, weights: Array, phi: Array, form: int, seed: int, chain: int, client: int, step: int,
    theta: Array, n_threads: int,
) -> None:  # fmt: skip
    m, n = theta.shape
    if not m or not n:
        return
    xp = current().xp
    e = xp.empty((m, n))
    arguments = (vector(values), vector(phi), np.int32(form), structure(NAMES, seed, chain, client, step), e)
    current().launch("spatial", "eigen_coefficients", (blocks(m * n, THREADS),), THREADS, arguments)
    theta[...] = xp.matmul(e, vectors.T) * weights


# Draws from tables of priors --------------------

STORED, DENSE, SPARSE = range(3)
WARPS = THREADS // 32
MOST_TILES = 256

_FIELDS = [("values", MATRIX), ("scale", VECTOR), ("group", "i8"), ("key", "u8"), ("made", "i8"), ("first", "u4")]
DRAWN = np.dtype(_FIELDS, align=True)


def stream(name: str, seed: int, chain: int) -> np.uint64:
    """Returns the key of a stream of random numbers."""
    return key(rng.key(int(seed), rng.streams()[name], int(chain)))


def normals(module: str, named: np.uint64, first: np.uint32 | int, made: Array, out: Array) -> None:
    """Draws numbers 0, 1, .. of a stream, at step `first` and as many more as the device has made."""
    type_name = "double" if out.dtype == np.float64 else "float"
    kernel = f"normals<{type_name}>"
    current().launch(module, kernel, (blocks(out.size, 2 * THREADS),), THREADS, (named, np.uint32(first), made, out.size, out))


def drawn(module: str, table: np.void, kind: int, rank: int, pattern: Array, e: Array | None, theta: Array) -> None:
    """Makes a draw for each row of theta; e: the rows' normals, which are overwritten."""
    device, (rows, n) = current(), theta.shape
    c_type = "double" if theta.dtype == np.float64 else "float"
    if kind == STORED:
        device.launch(
            module, f"stored_draws<{c_type}>", (rows, min(-(-n // THREADS), MOST_TILES)), THREADS, (table, matrix(theta))
        )
    elif kind == DENSE:
        grid = (rows, min(-(-n // WARPS), MOST_TILES))
        device.launch(module, f"dense_draws<{c_type}>", grid, THREADS, (table, rank, e, matrix(theta)))
    else:
        shared = 8 * n if 8 * n <= device.shared_memory() else 0
        arguments = (table, *map(vector, pattern), e, shared > 0, matrix(theta))
        device.launch(module, f"sparse_draws<{c_type}>", (rows,), 32, arguments, shared)


def table_sample(
    values: Array, scale: Array, indptr: Array, indices: Array, order: Array, kind: int, rank: int, group: int, seed: int,
    chain: int, step: int, theta: Array, entry: Array, n_threads: int,
) -> None:  # fmt: skip
    batch, n = theta.shape
    if not batch:
        return
    xp = current().xp
    made, e = xp.zeros(1, np.int64), xp.empty((batch, {STORED: 0, DENSE: rank, SPARSE: n}[kind]))
    table = structure(
        DRAWN, matrix(values).item(), vector(scale).item(), group, stream("prior_entries", seed, chain), pointer(made), step
    )
    current().launch("spatial", "entries", (blocks(batch, THREADS),), THREADS, (table, vector(entry)))
    if e.size:
        normals("spatial", stream("prior_draws", seed, chain), step, made, e)
    if n:
        drawn("spatial", table, kind, rank, (indptr, indices, order), e, theta)
