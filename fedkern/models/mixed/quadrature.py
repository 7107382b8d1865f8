"""Makes rules of the standard normal: Gauss-Hermite in one dimension and more, and of equal steps in one."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.polynomial.hermite_e import hermegauss

from ...arrays import Vector

FARTHEST = 8.0  # of equal steps, in standard deviations
LARGEST = 150.0  # standard deviation up to which their number grows: a function that bends within 1 is a step there


@lru_cache(maxsize=32)
def rule(nodes: int, d: int) -> tuple[Vector, Vector]:
    """Returns nodes (K, d), `nodes` of them a dimension, and the logarithms (K,) of weights that add up to 1."""
    t, w = hermegauss(nodes)
    places = np.array(list(product(range(nodes), repeat=d)), dtype=np.int64).reshape(nodes**d, d)
    with np.errstate(divide="ignore"):  # weights of the outermost of many nodes underflow
        log_w = np.log(w / w.sum())
    return t[places], log_w[places].sum(axis=1)


def even(sd: float) -> tuple[Vector, Vector]:
    """Returns nodes (K,) of equal steps, and weights that add up to 1, for E f(m + sd t) of a function that bends within lengths
    of 1, such as the logistic one.

    Gauss-Hermite nodes stand sd apart, or farther: 21 of them give a logistic mean to four digits up to sd = 2, and its second
    derivative up to sd = 1. Of equal steps of f's argument, h long, the error is about exp(-2 pi^2 / h).
    """
    step = 0.75 / min(max(1.0, sd), LARGEST)
    nodes: Vector = step * np.arange(-math.ceil(FARTHEST / step), math.ceil(FARTHEST / step) + 1, dtype=np.float64)
    weights: Vector = np.exp(-0.5 * nodes**2)
    return nodes, weights / weights.sum()


def log_sum(terms: Vector) -> Vector:
    """Returns log sum exp over the last axis; NaN where one is NaN."""
    most = terms.max(axis=-1, keepdims=True)
    most = np.where(np.isfinite(most), most, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(terms - most).sum(axis=-1)) + most[..., 0])
