"""How well weighted draws know the posterior's means and standard deviations: by how much the nets of each round differ, which
have been scrambled apart (see `proposals`). Points that fill the space evenly have a smaller error than the draws' weights say,
and a posterior that bends away from all proposals a larger one. Source: docs/methods/likelihood.md, section 1."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .proposals import NETS

Array = NDArray[np.float64]

SURE = 2.576  # standard errors that a number is off with a probability of 1 %


def largest(points: Array, weights: Array, nets: NDArray[np.int64]) -> tuple[float, float]:
    """The largest error of a mean, and of a standard deviation, in posterior standard deviations: of each coordinate one that is
    exceeded with a probability of 1 %.

    Parameters
    ----------
    points : (N, P)
    weights : (N,) which add up to 1
    nets : (N,) of each point the number of its net; NETS after each other are of one round
    """
    mean = weights @ points
    off = points - mean
    z = off / np.sqrt(np.maximum(weights @ off**2, np.finfo(float).tiny))
    return SURE * _error(z, weights, nets), SURE * _error((z**2 - 1) / 2, weights, nets)


def _error(values: Array, weights: Array, nets: NDArray[np.int64]) -> float:
    """The largest standard error of the weighted sums of values (N, P).

    Seven differences of nets say little of one variance. So a half of it is what all coordinates have in common: the share that
    nets leave of the variance that draws alone have with these weights.
    """
    terms = weights[:, np.newaxis] * values
    sums = np.array([np.bincount(nets, column, minlength=int(nets.max()) + 1) for column in terms.T]).T
    of_nets = NETS * sums.reshape(-1, NETS, values.shape[1]).var(axis=1, ddof=1).sum(axis=0)
    of_draws = (terms**2).sum(axis=0)
    return float(np.sqrt((of_nets + of_draws * of_nets.sum() / max(of_draws.sum(), np.finfo(float).tiny)).max() / 2))
