"""Makes points that fill the unit cube evenly, in several nets that are scrambled apart, and estimates the error of their
averages.

Weighted draws are made of such points. By how much the nets of each round differ says how well the draws know the posterior's
means and standard deviations. Such points have a smaller error than the draws' weights say, and a posterior that bends away from
all proposals a larger one.

Some pairs of dimensions are filled badly, and would be in all nets: so the generator also chooses which dimension is which.
Source: docs/spec/likelihood.md, section 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NETS = 8  # of a round
HALF = 2.0**-31  # half a step of Sobol's points: none is 0
SURE = 2.576  # standard errors that a number is off with a probability of 1 %


def sobol(n: int, dimensions: int, key: tuple[int, ...]) -> Array:
    """Returns points (n, dimensions) in the open unit cube, scrambled by the key."""
    if not n:
        return np.empty((0, dimensions))
    from scipy.stats import qmc  # as long as all else of a job to import, and only servers draw points

    generator = np.random.default_rng([word % 2**64 for word in key])
    engine = qmc.Sobol(dimensions, scramble=True, bits=30, seed=generator)
    power = max(n - 1, 0).bit_length()
    points = engine.random_base2(power)[:n, generator.permutation(dimensions)]
    return np.asarray(points + HALF)


def largest(points: Array, weights: Array, nets: NDArray[np.int64]) -> tuple[float, float]:
    """Returns the largest error of a mean, and of a standard deviation, in posterior standard deviations.

    The error of each coordinate is one that is exceeded with a probability of 1 %.

    Parameters
    ----------
    points : (N, P)
    weights : (N,) which add up to 1; points without weight may be as far away as numbers go
    nets : (N,) of each point the number of its net; NETS after each other are of one round
    """
    points = np.where(weights[:, np.newaxis] > 0, points, 0.0)
    mean = weights @ points
    off = points - mean
    z = off / np.sqrt(np.maximum(weights @ off**2, np.finfo(float).tiny))
    return SURE * _error(z, weights, nets), SURE * _error((z**2 - 1) / 2, weights, nets)


def _error(values: Array, weights: Array, nets: NDArray[np.int64]) -> float:
    """Returns the largest standard error of the weighted sums of values (N, P).

    Seven differences of nets say little of one variance. So one half of it is shared by all coordinates: the share that nets
    leave of the variance that draws alone have with these weights.
    """
    terms = weights[:, np.newaxis] * values
    sums = np.array([np.bincount(nets, column, minlength=int(nets.max()) + 1) for column in terms.T]).T
    of_nets = NETS * sums.reshape(-1, NETS, values.shape[1]).var(axis=1, ddof=1).sum(axis=0)
    of_draws = (terms**2).sum(axis=0)
    return float(np.sqrt((of_nets + of_draws * of_nets.sum() / max(of_draws.sum(), np.finfo(float).tiny)).max() / 2))
