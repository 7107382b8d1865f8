"""Decides which mean, standard deviation, quantiles and correlation of a client's numbers may be told, and rounds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .cells import Parts
from .rules import Rules

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MANY = 10  # more cells than these, of enough rows each, has a column of which sums are told: of fewer, sums tell their counts


class Moments(NamedTuple):
    """Holds a mean and a standard deviation, rounded to a tenth of their standard errors, and the rows that they weigh."""

    rows: float
    mean: float
    sd: float


def measured(values: ArrayLike, rules: Rules) -> bool:
    """Tells whether sums over numbers (nan: missing) may be told: they are of enough rows and many values, and none leads.

    Else the column has counts alone: each of its values is a level.
    """
    raise NotImplementedError


def moments(values: ArrayLike, rules: Rules, weight: float | None = None) -> Moments | None:
    """Returns the rounded mean and sd of numbers (nan: missing); None if they may not be told.

    `weight`: the rows with a number, as far as they are told (the rows of parts without the cell of missing ones); None: exactly
    those (where their number is told).
    """
    raise NotImplementedError


def pooled(of_clients: Sequence[Moments]) -> Moments:
    """Returns the mean and sd of all clients' rows, of what they told."""
    raise NotImplementedError


def correlation(x: ArrayLike, y: ArrayLike, rules: Rules) -> float | None:
    """Returns a rounded correlation over the rows with both numbers; None if it may not be told."""
    raise NotImplementedError


def pooled_correlation(x: Sequence[Moments], y: Sequence[Moments], r: Sequence[float]) -> float:
    """Returns the correlation of all clients' rows, of what they told of two columns."""
    raise NotImplementedError


def ends(mean: float, sd: float, lower: float | None = None, upper: float | None = None, bins: int = 24) -> Floats:
    """Returns the inner ends of bins: between public limits, or three standard deviations about a pooled mean, round numbers."""
    raise NotImplementedError


def binned(values: ArrayLike, inner: ArrayLike) -> Ints:
    """Returns (bins + 1,) the counts of bins [end, next end), the first and the last without limit, and of missing cells."""
    raise NotImplementedError


def quantile(counts: ArrayLike, parts: Parts, inner: ArrayLike, share: float) -> tuple[float, float]:
    """Returns the ends between which a quantile lies, of the told counts (parts,) of bins: infinite beyond the outer ones."""
    raise NotImplementedError
