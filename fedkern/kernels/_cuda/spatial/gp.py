"""Computes Gaussian processes: a thread an element of a covariance, a block a factor or a draw."""

from __future__ import annotations

import numpy as np

from ..device import Array, blocks, current, matrix, pointer, strides, structure, vector

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
