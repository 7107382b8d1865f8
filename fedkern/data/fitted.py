"""Computes the weight of a client's rows in X'WX at the fit of a generalised linear model.

A row's weight may come from an exposure among the covariates as from an offset, or from a level in which nearly nobody has an
event.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from ..arrays import Array
from ..kernels.families import BERNOULLI, QUANTILES, Family
from ..models.weighing import products

STEPS, ENOUGH = 40, 1e-3  # of Newton's method; a change of the coefficients after which no more are made: the next is its square
FARTHEST = 30.0  # of a predictor


def weights(X: Array, y: Array, trials: Array, offset: Array, weight: Array, precision: Array, family: Family) -> Array:
    """Returns each row's part (n,) in the curvature, at the posterior mode of a model of chances, or of counts (link "log").

    Parameters
    ----------
    X : (n, d)
    y, trials, offset, weight : (n,) trials of chances
    precision : (d,) of the prior about 0
    family : of the response; a logistic model stands for one with neither
    """
    counts, chance = family.link == "log", family if family.chances else BERNOULLI

    def moments(b: Array) -> tuple[Array, Array]:
        eta = np.clip(X @ b + offset, -FARTHEST, FARTHEST)
        if counts:
            mean = np.exp(eta)
            return weight * (y - mean), weight * mean
        return weight * chance.slope(y, eta, 1.0, trials), weight * chance.information(y, eta, 1.0, trials)

    total = max(float(weight @ y), 0.5)
    level = total / float(weight @ (np.exp(np.clip(offset, -FARTHEST, FARTHEST)) if counts else trials))
    most = 1 - 0.5 / max(float(weight @ trials), 1.0)
    b = np.zeros(X.shape[1])
    b[0] = np.log(level) if counts else QUANTILES[chance.link](min(level, most))
    for _ in range(STEPS):
        slope, curvature = moments(b)
        gradient = X.T @ slope - precision * b
        step = cho_solve(cho_factor(products(X, curvature) + np.diag(precision)), gradient)
        longest = max(2.0, float(np.abs(b).max()) / 2)  # counts far from their mean would throw it too far
        step /= max(1.0, float(np.abs(step).max()) / longest)
        b = b + step
        if float(np.abs(step).max()) < ENOUGH:
            break
    return moments(b)[1]
