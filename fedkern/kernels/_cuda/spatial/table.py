"""Draws from tables of priors."""

from __future__ import annotations

import numpy as np

from fedkern._core import rng

from ..device import MATRIX, VECTOR, Array, blocks, current, key, matrix, pointer, structure, vector
from .gp import THREADS

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
    kernel = f"normals<{'double' if out.dtype == np.float64 else 'float'}>"
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
