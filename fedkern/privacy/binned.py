"""Computes shares, mean, standard deviation, quantiles and a survival curve of noisy counts of bins, with intervals that contain
the noise.

The noise is the two-sided geometric one of `Mechanism.count`, of all clients that added it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


class Interval(NamedTuple):
    """Holds an estimate with its limits."""

    value: float
    lower: float
    upper: float


class Noise(NamedTuple):
    """Says how noisy each count is: the decay of the geometric noise (`mechanism.decay * GRID`), added by so many clients."""

    decay: float
    clients: int = 1

    @property
    def variance(self) -> float:
        """Of one count."""
        raise NotImplementedError


def share(noisy: ArrayLike, noise: Noise, cell: int, level: float = 0.9) -> Interval:
    """Returns the share of one cell in all rows."""
    raise NotImplementedError


def mean(noisy: ArrayLike, noise: Noise, ends: ArrayLike, level: float = 0.9) -> Interval:
    """Returns the mean of numbers; `ends`: (bins + 1,) of the bins, the outer ones finite."""
    raise NotImplementedError


def sd(noisy: ArrayLike, noise: Noise, ends: ArrayLike, level: float = 0.9) -> Interval:
    """Returns the standard deviation."""
    raise NotImplementedError


def quantile(noisy: ArrayLike, noise: Noise, ends: ArrayLike, at: float, level: float = 0.9) -> Interval:
    """Returns a quantile: its value and limits are ends of bins."""
    raise NotImplementedError


def survival(events: ArrayLike, censored: ArrayLike, rest: float, noise: Noise, level: float = 0.9) -> list[Interval]:
    """Returns survival at the ends of intervals, of noisy counts (k,) of events and censored rows, and of rows with later times."""
    raise NotImplementedError
