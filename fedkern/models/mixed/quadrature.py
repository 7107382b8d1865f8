"""Makes Gauss-Hermite rules of the standard normal in one dimension and more."""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@lru_cache(maxsize=32)
def rule(nodes: int, d: int) -> tuple[Vector, Vector]:
    """Returns nodes (K, d), `nodes` of them a dimension, and the logarithms (K,) of weights that add up to 1."""
    t, w = hermegauss(nodes)
    at = np.array(list(product(range(nodes), repeat=d)), dtype=np.int64).reshape(nodes**d, d)
    with np.errstate(divide="ignore"):  # weights of the outermost of many nodes underflow
        log_w = np.log(w / w.sum())
    return t[at], log_w[at].sum(axis=1)


def log_sum(terms: Vector) -> Vector:
    """Returns log sum exp over the last axis; NaN where one is NaN."""
    most = terms.max(axis=-1, keepdims=True)
    most = np.where(np.isfinite(most), most, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(terms - most).sum(axis=-1)) + most[..., 0])
