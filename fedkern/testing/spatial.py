"""Makes cases of the spatial kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from fedkern.kernels import spatial
from fedkern.kernels._reference import rng as _rng
from fedkern.kernels._reference import spatial as _reference
from fedkern.kernels.spatial.gp import GP_KINDS

from . import Arguments, Case, Floats, Indices, Source

reference: Any = _reference
rng: Any = _rng

# Makes cases of factors whose last block is dense --------------------


def problem(source: Source) -> tuple[dict[str, Any], Any, Any]:
    """Returns the pattern of a random graph with a border, and values and dense block of a precision of it. Its eigenvalues are
    within [1, 5] of those of its diagonal."""
    n = source.choose(SMALL)
    indptr, indices = graph(source, n)
    border = np.flatnonzero(source.random.random(n) < source.choose([0.0, 0.2, 1.0]))
    pattern = spatial.bordered_analyse(indptr, indices, border)
    W = np.zeros((n, n))
    W[np.repeat(np.arange(n), np.diff(indptr)), indices] = 1.0
    W[np.ix_(border, border)] = source.random.standard_normal((len(border),) * 2)
    A = np.tril(W * source.random.uniform(-1, 1, (n, n)), -1)
    A = A + A.T
    A += np.diag(abs(A).sum(axis=1) + source.random.uniform(0.5, 3, n))
    A = A[np.ix_(pattern.order, pattern.order)]
    k = n - len(border)
    stored = pattern.indices, np.repeat(np.arange(k), np.diff(pattern.indptr))
    arrays = {"indptr": source.array(pattern.indptr, np.int64), "indices": source.array(pattern.indices, np.int64)}
    return arrays, A[stored], A[k:, k:]


def factored(arrays: dict[str, Any], values: Any, block: Any) -> tuple[Any, Any]:
    factor, rest = np.empty(len(values)), np.empty(block.shape)
    reference.bordered_factor(values, arrays["indptr"], arrays["indices"], block, factor, rest, 1)
    return factor, rest


def bordered_factor(source: Source) -> Case:
    arrays, values, block = problem(source)
    most = abs(block).max(initial=1.0) + abs(values).max(initial=1.0)
    arguments = arrays | {"values": source.array(values), "block": source.array(block)}
    return Case(arguments, magnitude=[np.full(len(values), 4 * most), np.full(block.shape, 4 * most)])


def bordered_inverse(source: Source) -> Case:
    arrays, values, block = problem(source)
    factor, rest = factored(arrays, values, block)
    arguments = arrays | {"factor": source.array(factor), "block": source.array(np.linalg.inv(rest))}
    return Case(arguments, magnitude=[np.full(len(values), 100.0)])


def bordered_solve(source: Source) -> Case:
    arrays, values, block = problem(source)
    factor, _ = factored(arrays, values, block)
    right = source.random.standard_normal((source.choose([0, 1, 3, 19]), len(arrays["indptr"]) - 1 + len(block)))
    arguments = arrays | {"right": source.array(right), "factor": source.array(factor), "back": source.choose([False, True])}
    return Case(arguments, magnitude=[np.full(right.shape, 1000.0)])


# Makes cases of the autoregressive priors --------------------


SMALL = (1, 2, 3, 8, 17, 40)


def graph(source: Source, n: int) -> tuple[Indices, Indices]:
    """Returns a random graph, some of its areas without neighbours."""
    chance = source.choose([0.0, 0.1, 0.3])
    W = np.triu(source.random.random((n, n)) < chance, 1)
    W |= W.T
    return np.concatenate([[0], np.cumsum(W.sum(axis=1))]).astype(np.int64), np.nonzero(W)[1].astype(np.int64)


def counters(source: Source) -> dict[str, int]:
    return {
        "seed": source.choose([3, 2**64 - 1]),
        "chain": source.choose([0, 9]),
        "client": source.choose([0, 2**32 - 1]),
        "step": source.choose([0, 2**32 - 1]),
    }


def car_logdensity(source: Source) -> Case:
    n, m, form = source.choose(SMALL), source.choose([0, 1, 2, 7, 8, 9, 17]), source.choose(["car", "leroux", "icar"])
    indptr, indices = graph(source, n)
    lo, hi = source.choose([(0.0, 0.99), (0.2, 0.5), (0.0, 0.999)])
    series = spatial.logdet_table(spatial.car_eigen(indptr, indices, form=form).values, indptr, form=form, lo=lo, hi=hi)
    theta, phi = source.random.standard_normal((m, n)) * 3, source.random.uniform(lo, hi, m)
    W, d, x = reference.adjacency(indptr, indices), reference.degrees(indptr), abs(theta)
    around, f = x @ W, phi[:, None]
    product = (1 - f) * x + f * (d * x + around) if form == "leroux" else d * x + around
    r = series.widest * phi / (1 - phi)
    size, count = abs(series.coefficients), np.arange(len(series.coefficients))
    value = (x * product).sum(axis=1) + size.sum() * 40 + n * 2
    steep = 40 * (size @ count**2) / 1e-3 if hi - lo < 1e-3 else 40 * (size @ count**2)
    slope = (x * (product + d * x + around)).sum(axis=1) + steep * series.widest / ((1 - phi) ** 2 * (1 + r))
    extremes = source.choose([(), (), (lo, hi, hi + 1e-3, np.nan)])
    arguments: Arguments = {
        "theta": source.array(theta, extremes=source.choose([(), (), (0.0, 1e-200)])),
        "phi": source.array(phi, extremes=extremes),
        "indptr": source.array(indptr, np.int64),
        "indices": source.array(indices, np.int64),
        "logdet": source.array(series.coefficients),
    }
    if extremes:  # the nearer phi is to 1, the larger the slope
        slope = slope + steep * series.widest / (1 - hi)
        product = product + d * x + around
        value = value + (x * product).sum(axis=1)
    return Case(arguments | series.options, magnitude=[value, product, slope])


def car_factor(source: Source) -> Case:
    n, m, form = source.choose(SMALL), source.choose([0, 1, 2, 7, 8, 9, 17]), source.choose(["car", "leroux"])
    indptr, indices = graph(source, n)
    pattern = spatial.car_analyse(indptr, indices)
    phi = source.random.uniform(0, 0.95, m)
    d = spatial.diagonal(indptr)
    most = np.tile(np.sqrt(d.max()) / (1 - phi[:, None]), (1, len(pattern.indices)))
    arguments = {
        "phi": source.array(phi),
        "indptr": source.array(indptr, np.int64),
        "indices": source.array(indices, np.int64),
        "order": source.array(pattern.order, np.int64),
        "factor_indptr": source.array(pattern.indptr, np.int64),
        "factor_indices": source.array(pattern.indices, np.int64),
    }
    logdet = n * (np.log(d.max()) + 1 / (1 - phi))
    return Case(arguments | {"form": form}, magnitude=[most, logdet])


def car_sample(source: Source) -> Case:
    n, m, form = source.choose(SMALL), source.choose([0, 1, 2, 7, 8, 9, 17]), source.choose(["car", "leroux", "icar"])
    indptr, indices = graph(source, n)
    eigen = spatial.car_eigen(indptr, indices, form=form)
    phi, weights = source.random.uniform(0, 0.95, m), np.exp(source.random.standard_normal(n))
    names = counters(source)
    e = abs(reference.numbers(rng.normal, m * n, "prior_draws", *names.values())).reshape(m, n)
    p = eigen.precisions(phi)
    most = np.divide(e, np.sqrt(p), out=np.zeros_like(e), where=p > 0) @ abs(eigen.vectors).T * weights
    arrays = {"vectors": eigen.vectors, "values": eigen.values, "weights": weights, "phi": phi}
    arguments = {name: source.array(a) for name, a in arrays.items()}
    return Case(arguments | {"form": form} | names, magnitude=[most])


# Makes cases of Gaussian processes --------------------


def gp_problem(source: Source) -> tuple[Arguments, Any, Any, str]:
    n, m, p = source.choose([0, 1, 2, 3, 9, 33]), source.choose([0, 1, 2, 9]), source.choose([1, 2, 3])
    x = source.random.random((n, p))
    if p == 1 and n:
        x = np.linspace(0, 1, n)[:, None]  # mirror images
    lengthscale = source.random.uniform(0.05, 2.0, m)
    kind = source.choose(sorted(GP_KINDS))
    return {"x": source.array(x), "lengthscale": source.array(lengthscale), "kind": kind}, x, lengthscale, kind


def gp_covariance(source: Source) -> Case:
    arguments, x, lengthscale, _ = gp_problem(source)
    if source.choose([True, False, False]):
        arguments["lengthscale"] = source.array(lengthscale, extremes=(0.0, -1.0, np.nan, 1e-3, 1e6))
    return Case(arguments | {"jitter": source.choose([0.0, 1e-6])}, magnitude=[np.ones((len(lengthscale), len(x), len(x)))])


def gp_factor(source: Source) -> Case:
    arguments, x, lengthscale, _ = gp_problem(source)
    rank, tolerance = source.choose([0, 1, 2, 7, 12]), source.choose([1e-2, 1e-4])
    most = np.ones((len(lengthscale), len(x), rank)) / tolerance
    return Case(
        arguments | {"rank": rank, "tolerance": tolerance}, magnitude=[most, np.full(len(lengthscale), len(x) / tolerance)]
    )


def gp_sample(source: Source) -> Case:
    arguments, x, lengthscale, _ = gp_problem(source)
    jitter = source.choose([1e-1, 1e-2])
    most = np.full((len(lengthscale), len(x)), 10 * max(len(x), 1) / jitter)
    return Case(arguments | {"jitter": jitter} | counters(source), magnitude=[most])


# Makes cases of draws from a table of priors --------------------


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
    u = reference.numbers(rng.uniform, -(-batch // group), "prior_entries", *counters)
    e = abs(reference.numbers(rng.normal, batch * size, "prior_draws", *counters)).reshape(batch, size)
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
            L = -abs(reference.triangle(entry, indptr, indices))
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
