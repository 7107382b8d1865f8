"""Draws from tables of priors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..device import blocks, current, matrix, pointer, structure, vector
from .gp import NAMES, THREADS

STORED, DENSE, SPARSE = range(3)

_WORDS = ("n", "rank", "group", "entries", "length", "values", "scale", "indptr", "indices", "order")
_TABLE = np.dtype([("kind", "i4"), *((f, "i8") for f in _WORDS)], align=True)


def table_sample(
    values: Any, scale: Any, indptr: Any, indices: Any, order: Any, kind: int, rank: int, group: int, seed: int, chain: int,
    step: int, theta: Any, entry: Any, n_threads: int,
) -> None:  # fmt: skip
    batch, n = theta.shape
    if not batch:
        return
    xp = current().xp
    flat = [None if a is None else xp.ascontiguousarray(a) for a in (values, scale, indptr, indices, order)]
    sizes = (n, rank, group, *values.shape)
    table = structure(_TABLE, kind, *sizes, *map(pointer, flat))
    named = structure(NAMES, seed, chain, 0, step)
    normals = {STORED: 0, DENSE: rank, SPARSE: n}[kind]
    e = xp.empty(batch * normals)
    first = (table, named, batch, vector(entry), e)
    current().launch("spatial", "table_entries", (blocks(batch * max(normals, 1), THREADS),), THREADS, first)
    kernel, grid = ("sparse_draws", blocks(batch, 4)) if kind == SPARSE else ("dense_draws", blocks(batch * n, THREADS))
    threads = 128 if kind == SPARSE else THREADS
    current().launch("spatial", kernel, (grid,), threads, (table, vector(entry), e, matrix(theta)))
