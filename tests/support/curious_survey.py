"""What the sums of scores of a survey's clusters tell of rows, by derivatives in their cells."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedkern.arrays import Array
from fedkern.models.mixed import Layout, Rows
from fedkern.models.survey import Clusters, Pseudo

from .curious import WITHIN

STEP, DIGITS = 1e-5, 1e-9


def client(family: str, n: int, p: int, seed: int) -> tuple[Rows, Array, Array]:
    """Rows with weights, and the point at which they are asked."""
    random = np.random.default_rng([p, seed])
    X = np.column_stack([np.ones(n), random.normal(size=(n, p))])
    eta = 0.3 + 0.5 * X[:, 1]
    y = random.poisson(np.exp(eta)) if family == "poisson" else random.random(n) < 1 / (1 + np.exp(-eta))
    layout = Layout(("intercept", *(f"x{k}" for k in range(p))), family)
    point = np.concatenate([[0.3, 0.5], np.zeros(p - 1)])
    return Rows(layout, X, y.astype(float), np.array([0, n])), random.uniform(0.5, 1.5, n), point


def told(rows: Rows, X: Array, weights: Array, point: Array, clusters: NDArray[np.int64]) -> Array:
    """All numbers of `ClusterScores`, and the sums and squares of the columns."""
    moved = Rows(rows.layout, X, rows.y, rows.starts)
    found, lower = Pseudo.of(moved, weights).scores(point, Clusters(clusters, None)), np.tril_indices(len(point))
    sums = X[:, 1:].sum(axis=0), (X[:, 1:] ** 2).sum(axis=0)
    return np.concatenate([found.total, found.products[lower], found.curvature[lower], *sums])


def known(rows: Rows, weights: Array, point: Array, clusters: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(n,) whether every cell of a row is known to `WITHIN`, where N(0, 1) is all that is known beforehand."""
    n, p = len(rows), rows.X.shape[1] - 1
    noise = DIGITS * np.maximum(np.abs(told(rows, rows.X, weights, point, clusters)), 1.0) / 12**0.5
    J = np.empty((len(noise), n * p))
    for cell in range(n * p):
        both = []
        for step in (STEP, -STEP):
            X = rows.X.copy()
            X[cell // p, 1 + cell % p] += step
            both.append(told(rows, X, weights, point, clusters) / noise)
        J[:, cell] = (both[0] - both[1]) / (2 * STEP)
    _, s, V = np.linalg.svd(J, full_matrices=False)
    left = 1 - (V**2).sum(axis=0) + (V**2 / (1 + s**2)[:, np.newaxis]).sum(axis=0)
    sd: Array = np.sqrt(np.maximum(left, 0.0)).reshape(n, p).max(axis=1)
    return sd < WITHIN


def singles(n: int, most: int) -> NDArray[np.int64]:
    """(n,) clusters: so many of one row, and one of all others."""
    return np.minimum(np.arange(n), most)
