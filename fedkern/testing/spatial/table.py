"""Makes cases of draws from a table of priors."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from fedkern.kernels._reference import rng as _rng
from fedkern.kernels._reference.spatial import table as _table

from .. import Arguments, Case, Floats, Indices, Source

rng: Any = _rng
table: Any = _table


def triangle_pattern(source: Source, n: int) -> tuple[Indices, Indices]:
    """Returns columns of a random sparse lower triangle: where they begin, and the rows."""
    kept = np.tril(source.random.random((n, n)) < min(1.0, 3 / max(n, 1)), -1) | np.eye(n, dtype=bool)
    columns, rows = np.nonzero(kept.T)
    return np.searchsorted(columns, np.arange(n + 1)).astype(np.int64), rows.astype(np.int64)


def magnitudes(
    values: Floats,
    scale: Floats,
    pattern: tuple[Indices, Indices, Indices] | None,
    kind: str,
    rank: int,
    group: int,
    batch: int,
    counters: tuple[int, ...],
) -> Floats:
    """Returns sums of the absolute terms of every draw; for a triangular solve the solution with the comparison matrix."""
    n = len(scale)
    size = {"stored": 0, "dense": rank, "sparse": n}[kind]
    u = table.numbers(rng.uniform, -(-batch // group), "prior_entries", *counters)
    e = abs(table.numbers(rng.normal, batch * size, "prior_draws", *counters)).reshape(batch, size)
    sums = np.empty((batch, n))
    for b in range(batch):
        entry = values[int(u[b // group] * len(values))]
        if kind == "stored":
            sums[b] = abs(entry)
        elif kind == "dense":
            sums[b] = abs(entry).reshape(n, rank) @ e[b]
        else:
            assert pattern is not None
            indptr, indices, order = pattern
            L = -abs(table.triangle(entry, indptr, indices))
            sums[b, order] = solve_triangular((L - 2 * np.diag(np.diag(L))).T, e[b])
    return scale * sums


def table_sample(source: Source) -> Case:
    n, batch, random = min(source.size(), 60), source.choose([0, 1, 2, 7, 8, 9, 17, 24]), source.random
    kind = source.choose(["stored", "dense", "sparse"])
    group, entries, rank = source.choose([1, 1, 2, 8, 8, 11]), source.choose([1, 2, 5]), source.choose([0, 1, 3, 8, 13])
    rank = rank if kind == "dense" else 0
    pattern = None
    values = random.standard_normal((entries, n if kind == "stored" else n * rank))
    if kind == "sparse":
        indptr, indices = triangle_pattern(source, n)
        pattern = indptr, indices, random.permutation(n)
        values = -random.random((entries, len(indices))) / 3
        values[:, indptr[:-1]] = 0.5 + random.random((entries, n))
    scale = np.exp(random.standard_normal(n))
    counters = {"seed": source.choose([3, 2**64 - 1]), "chain": source.choose([0, 9]), "step": source.choose([0, 2**32 - 1])}
    most = magnitudes(
        values, scale, pattern, kind, rank, group, batch, (counters["seed"], counters["chain"], 0, counters["step"])
    )
    arguments: Arguments = {"values": source.array(values), "scale": source.array(scale)}
    if pattern is not None:
        arguments |= {part: source.array(a, np.int64) for part, a in zip(("indptr", "indices", "order"), pattern)}
    options = {"kind": kind, "rank": rank, "group": group, "batch": batch}
    return Case(arguments | options | counters, magnitude=[most, np.ones(batch)])
