"""Decides of which numbers of a client sums may be told, where bins of them end, and rounds means and correlations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import Array
from .rules import Rules

MANY = 10  # values, more than which a column has of which sums are told: with fewer, sums tell their counts
OF_AN_ERROR = 0.1  # to which sums are rounded
FIRST = 1 << 10  # rows, in which a column of many values shows most often that it is one
REACH = 2.0  # standard deviations, between which bins lie


def present(values: ArrayLike) -> Array:
    """Returns the numbers that are not missing."""
    numbers = np.asarray(values, np.float64)
    finite = np.isfinite(numbers)
    return numbers if finite.all() else numbers[finite]


def n_values(numbers: Array, most: int) -> int:
    """Returns how many different values there are; or at least so many, where the first rows show as many already."""
    found = len(np.unique(numbers[:FIRST]))
    return found if found >= most else len(np.unique(numbers))


def measured(values: ArrayLike, rules: Rules) -> bool:
    """Tells whether sums over numbers (nan: missing) may be told: they are of enough rows and many values, and none leads.

    Else the column has counts alone.
    """
    numbers_there, most = present(values), MANY * (rules.rows_per_value > 0)
    if len(numbers_there) < max(rules.rows, 2) or n_values(numbers_there, most + 1) <= most:
        return False
    off = numbers_there - numbers_there.mean()
    farthest = max(off.max(), -off.min()) ** 2
    return bool(1 / len(numbers_there) + farthest / max(off @ off, np.finfo(float).tiny) <= rules.leverage)


def scale(values: Array) -> tuple[float, float, float]:
    """Returns 1 (-1 if some of these numbers is below 0), and their mean and sd to a quarter or half of the sd."""
    mean, sd = float(values.mean()), float(values.std(ddof=1))
    unit = step(sd / 2) if sd > 0 else 1.0
    near = (round(mean / unit) * unit, round(sd / unit) * unit) if sd > 0 else (mean, sd)
    return -1.0 if values.min() < 0 else 1.0, *near


def step(size: float, *, up: bool = False) -> float:
    """Returns the largest of .., .1, .2, .5, 1, 2, 5, .. that is no larger than a size; `up`: the smallest that is no smaller."""
    power = math.floor(math.log10(size))
    round_numbers = [float(f"{digit}e{power + more}") for more in (0, 1) for digit in (1, 2, 5)]
    return (
        next(number for number in round_numbers if number >= size)
        if up
        else [number for number in round_numbers if number <= size][-1]
    )


def rounded(value: float, error: float) -> float:
    """Returns a number rounded to a tenth of its error, or somewhat less.

    Examples
    --------
    >>> from fedkern.disclosure.measures import rounded
    >>> rounded(63.1728, 1.3), rounded(2.5, 0.0)
    (63.2, 2.5)
    """
    if not error > 0:
        return value
    unit = step(OF_AN_ERROR * error)
    return round(round(value / unit) * unit, max(0, -math.floor(math.log10(unit))))


def products(columns: Sequence[Array]) -> Array:
    """Returns (pairs, 6), over the rows with both numbers (nan: missing) of each two columns: rows, both sums, both sums of
    squares, and the sum of products."""
    values = np.array(columns).reshape(len(columns), -1)
    has = np.isfinite(values).astype(np.float64)
    values = np.where(has, values, 0.0)
    rows, sums, squares, both = has @ has.T, values @ has.T, values**2 @ has.T, values @ values.T
    i, j = np.triu_indices(len(columns), 1)
    return np.stack([rows[i, j], sums[i, j], sums[j, i], squares[i, j], squares[j, i], both[i, j]], axis=-1)


def ends(mean: float, sd: float, lower: float | None = None, upper: float | None = None, bins: int = 24) -> Array:
    """Returns the inner ends of bins: round numbers between public limits, and within two standard deviations of a pooled mean.

    Where sums are not told (nan) the limits alone decide.
    """
    low = np.fmax(mean - REACH * sd, -math.inf if lower is None else lower)
    high = np.fmin(mean + REACH * sd, math.inf if upper is None else upper)
    if not (high > low and math.isfinite(high - low)):
        return np.empty(0)
    width = step((high - low) / bins, up=True)
    found = np.arange(math.floor(low / width), math.ceil(high / width) + 1) * width
    inside: Array = found[(found > low) & (found < high)]
    return inside.round(max(0, -math.floor(math.log10(width))))
