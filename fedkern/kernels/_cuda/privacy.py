"""Computes sums of clipped rows, and noise that a key repeats."""

from __future__ import annotations

from .device import Array, blocks, counter, current, key, matrix, named, vector

THREADS = 256
WARPS = THREADS // 32
C_TYPES = {"float64": "double", "float32": "float"}
SHAPES = ((1, 8), (4, 4), (16, 1))  # (C, R): a warp holds R rows of up to 32 C columns


def shape_of(p: int) -> tuple[int, int] | None:
    """Returns (C, R) for a number of columns; None for more than a warp holds."""
    return next(((c, r) for c, r in SHAPES if p <= 32 * c), None)


def clip_sum(rows: Array, bound: float, out: Array, n_threads: int) -> None:
    device, (n, p), c_type = current(), rows.shape, C_TYPES[named(rows.dtype)]
    if n == 0 or p == 0:
        out[...] = 0
        return
    xp, shape = device.xp, shape_of(p)
    if shape:
        grid = blocks(n, WARPS * shape[1])
        partial = xp.empty((grid, p))
        kernel = f"clip_rows<{c_type}, {shape[0]}, {shape[1]}>"
        device.launch("privacy", kernel, (grid,), THREADS, (matrix(rows), bound, partial))
    else:
        grid, weights = blocks(n, 64, 256), xp.empty(n)
        partial = xp.empty((grid, p))
        device.launch("privacy", f"clip_weights<{c_type}>", (blocks(n, WARPS),), THREADS, (matrix(rows), bound, weights))
        device.launch("privacy", f"weighted_rows<{c_type}>", (grid, -(-p // THREADS)), THREADS, (matrix(rows), weights, partial))
    sum_partials("privacy", partial, grid, p, out)


def sum_partials(module: str, partial: Array, grid: int, size: int, out: Array) -> None:
    """Computes out = the sum of the blocks' partial sums, in a fixed order."""
    current().launch(module, "sum_partials<double>", (-(-size // 32),), THREADS, (partial, grid, size, vector(out)))


def add_noise(total: Array, sigma: float, key_: int, client: int, step: int, out: Array, n_threads: int) -> None:
    if len(out):
        arguments = (vector(total), sigma, key(key_), counter(client, step), vector(out))
        current().launch("privacy", "noisy", (blocks(len(out), 2 * THREADS),), THREADS, arguments)
