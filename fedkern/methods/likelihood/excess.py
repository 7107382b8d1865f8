"""Tells structural zeros from general variation, in counts that vary more than a Poisson model makes them.

With a share pi of structural zeros, and a = pi / (1 - pi), the variance at a mean m is m + a m^2, as that of a negative binomial
with a = 1 / r. The number of zeros at that a tells them apart: pi + (1 - pi) exp(-m (1 + a)), or (1 + a m)^(-1 / a).
Means of rows are taken as gamma distributed, with the mean and the variance that responses have which the model draws.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaincinv

from ...arrays import Array
from ...models.mixed.predictive import Sums

NODES = 200  # quantiles of the means
SURE = 2.0  # standard deviations of the number of zeros by which the two must differ


def structural(whole: Sums, ratio: float) -> bool:
    """Returns whether zeros are those of a zero-inflated model, and not of a negative binomial one. `whole`: sums over all
    clients of a Poisson job; `ratio`: how many times as much as the model says responses vary about their means, on average above
    1."""
    n, zeros = float(whole.observed[0]), float(whole.observed[3])
    total, squares = (float(column.mean()) for column in whole.replicated[:, :2].T)
    mean = total / n
    if not mean > 0 or not ratio > 1:
        return False
    a = (ratio - 1) / mean
    inflated, dispersed = zeros_at(_means(mean, (squares - total) / n - mean**2), a)
    apart = SURE * float(np.sqrt(n * dispersed * (1 - dispersed)))
    return n * (inflated - dispersed) > apart and zeros > 0.5 * n * (inflated + dispersed)


def zeros_at(means: Array, a: float) -> tuple[float, float]:
    """Returns the part of zeros among counts of these means with variance m + a m^2: with structural ones, and without."""
    pi = a / (1 + a)
    inflated = pi + (1 - pi) * np.exp(-means * (1 + a))
    return float(inflated.mean()), float(np.exp(-np.log1p(a * means) / a).mean())


def _means(mean: float, variance: float) -> Array:
    """Evenly chosen quantiles of a gamma distribution."""
    if variance <= 1e-6 * mean**2:
        return np.array([mean])
    shape = mean**2 / variance
    return np.asarray(gammaincinv(shape, (0.5 + np.arange(NODES)) / NODES) * mean / shape)
