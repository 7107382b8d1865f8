"""Makes cases of factors whose last block is dense."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedkern.kernels import spatial
from fedkern.kernels._reference.spatial import bordered as _bordered

from .. import Case, Source
from .car import SMALL, graph

reference: Any = _bordered


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
    at = pattern.indices, np.repeat(np.arange(k), np.diff(pattern.indptr))
    arrays = {"indptr": source.array(pattern.indptr, np.int64), "indices": source.array(pattern.indices, np.int64)}
    return arrays, A[at], A[k:, k:]


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
    right = source.random.standard_normal((source.choose([0, 1, 3]), len(arrays["indptr"]) - 1 + len(block)))
    arguments = arrays | {"right": source.array(right), "factor": source.array(factor), "back": source.choose([False, True])}
    return Case(arguments, magnitude=[np.full(right.shape, 1000.0)])
