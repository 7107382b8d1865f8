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

from ...arrays import Array
from .directions import DIMENSIONS, directions

NETS = 8  # of a round
BITS = 30
HALF = 2.0 ** -(BITS + 1)  # half a step of Sobol's points: none is 0
SURE = 2.576  # standard errors that a number is off with a probability of 1 %


def sobol(n: int, dimensions: int, key: tuple[int, ...]) -> Array:
    """Returns points (n, dimensions) in the open unit cube, scrambled by the key."""
    if not n:
        return np.empty((0, dimensions))
    generator = np.random.default_rng([word % 2**64 for word in key])
    power = max(n - 1, 0).bit_length()
    points = _scrambled(power, dimensions, generator)[:n, generator.permutation(dimensions)]
    return np.asarray(points + HALF)


def _scrambled(power: int, dimensions: int, generator: np.random.Generator) -> Array:
    """Returns 2^power points, scrambled by random lower triangular matrices and a shift: to the last bit those of SciPy.

    Their numbers x(i) are in the order of Gray's code: x(2^k + j) = x(2^k - 1 - j) ^ v(k).
    """
    if dimensions > DIMENSIONS:
        from scipy.stats import qmc  # takes a second to import

        return np.asarray(qmc.Sobol(dimensions, scramble=True, bits=BITS, seed=generator).random_base2(power))
    powers, random = 1 << np.arange(BITS), generator.spawn(1)[0]
    shift = random.integers(2, size=(dimensions, BITS), dtype=np.uint32) @ powers
    triangles = np.tril(random.integers(2, size=(dimensions, BITS, BITS), dtype=np.uint32), -1) + np.eye(BITS, dtype=np.int64)
    digits = directions(dimensions, BITS)[:, np.newaxis, :power] >> np.arange(BITS)[::-1, np.newaxis] & 1
    steps = powers[::-1] @ (triangles @ digits & 1)
    numbers = np.empty((2**power, dimensions), np.int64)
    numbers[0] = shift
    for k in range(power):
        numbers[2**k : 2 ** (k + 1)] = numbers[2**k - 1 :: -1] ^ steps[:, k]
    return numbers / 2.0**BITS


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
