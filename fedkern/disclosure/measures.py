"""Decides which mean, standard deviation, quantiles and correlation of a client's numbers may be told, and rounds them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .rules import Rules

Floats = NDArray[np.float64]

MANY = 10  # values, more than which a column has of which sums are told: with fewer, sums tell their counts
OF_AN_ERROR = 0.1  # to which sums are rounded
FIRST = 1 << 10  # rows, in which a column of many values shows most often that it is one
REACH = 2.0  # standard deviations, between which bins lie: so far out a mean and a sd let as many rows be as are asked for


class Moments(NamedTuple):
    """Holds a mean and a standard deviation, rounded to a tenth of their standard errors, and the rows that they weigh."""

    rows: float
    mean: float
    sd: float


def present(values: ArrayLike) -> Floats:
    """Returns the numbers that are not missing."""
    own = np.asarray(values, np.float64)
    there = np.isfinite(own)
    return own if there.all() else own[there]


def more_values(numbers: Floats, most: int) -> bool:
    """Tells whether a column has more different values than so many, which its first rows show most often."""
    return any(len(np.unique(some)) > most for some in (numbers[:FIRST], numbers))


def measured(values: ArrayLike, rules: Rules) -> bool:
    """Tells whether sums over numbers (nan: missing) may be told: they are of enough rows and many values, and none leads.

    Else the column has counts alone.
    """
    own, most = present(values), MANY * (rules.rows_per_value > 0)
    if len(own) < max(rules.rows, 2) or not more_values(own, most):
        return False
    off = own - own.mean()
    farthest = max(off.max(), -off.min()) ** 2
    return bool(1 / len(own) + farthest / max(off @ off, np.finfo(float).tiny) <= rules.leverage)


def moments(values: ArrayLike, rules: Rules, rows: float | None = None) -> Moments | None:
    """Returns the rounded mean and sd of numbers (nan: missing); None if they may not be told.

    `rows`: those with a number, as far as they are told: of all parts but one of missing cells alone. None: exactly those.
    """
    if not measured(values, rules):
        return None
    own = present(values)
    sd, n = float(own.std(ddof=1)), len(own)
    return Moments(n if rows is None else rows, rounded(float(own.mean()), sd / math.sqrt(n)), rounded(sd, sd / math.sqrt(2 * n)))


def step(size: float, *, up: bool = False) -> float:
    """Returns the largest of .., .1, .2, .5, 1, 2, 5, .. that is no larger than a size; `up`: the smallest that is no smaller."""
    at = math.floor(math.log10(size))
    every = [float(f"{digit}e{at + more}") for more in (0, 1) for digit in (1, 2, 5)]
    return next(one for one in every if one >= size) if up else [one for one in every if one <= size][-1]


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


class Products(NamedTuple):
    """Holds, of each two columns, over the rows with both (d, d): rows, sums and sums of squares of the first, sums of products,
    and the rounded correlation, which is nan where it may not be told."""

    rows: Floats
    sums: Floats
    squares: Floats
    products: Floats
    r: Floats


def products(columns: ArrayLike, rules: Rules) -> Products:
    """Returns the products of columns (n, d) (nan: missing).

    Of a correlation that is told both columns have more than ten cells of enough rows each: a cross table of fewer would be told
    by it.
    """
    own = np.asarray(columns, np.float64)
    there = np.isfinite(own)
    has, least, most = there.astype(np.float64), rules.rows_per_value, MANY * (rules.rows_per_value > 0)
    values = np.where(there, own, 0.0)
    rows, sums, squares, both = has.T @ has, values.T @ has, (values**2).T @ has, values.T @ values
    with np.errstate(divide="ignore", invalid="ignore"):
        mean, spread = sums / rows, squares - sums**2 / rows
        farthest = (
            np.maximum(values.max(axis=0, initial=0.0)[:, None] - mean, mean - values.min(axis=0, initial=0.0)[:, None]) ** 2
        )
        leads = 1 / rows + farthest / spread
        r = (both - sums * sums.T / rows) / np.sqrt(spread * spread.T)
    may = (rows >= max(rules.rows, 2)) & (leads <= rules.leverage if most else spread > 0)
    for i, j in zip(*np.triu_indices(len(rows), 1)):
        one = there[:, i] & there[:, j]
        may[i, j] = (
            may[i, j]
            and may[j, i]
            and all(any(_cells(own[:some, k][one[:some]], least) > most for some in (FIRST, len(own))) for k in (i, j))
        )
        r[i, j] = rounded(float(r[i, j]), 1 / math.sqrt(rows[i, j])) if may[i, j] else np.nan
    return Products(rows, sums, squares, both, r)


def _cells(values: Floats, least: int) -> int:
    """Returns into how many cells of enough rows each numbers can be cut, from the least one on."""
    cells, rows = 0, 0
    for count in np.unique(values, return_counts=True)[1].tolist():
        rows += count
        if rows >= max(least, 1):
            cells, rows = cells + 1, 0
    return cells


def ends(mean: float, sd: float, lower: float | None = None, upper: float | None = None, bins: int = 24) -> Floats:
    """Returns the inner ends of bins: round numbers between public limits, and within two standard deviations of a pooled mean.

    Where sums are not told (nan) the limits alone decide.
    """
    low = np.fmax(mean - REACH * sd, -math.inf if lower is None else lower)
    high = np.fmin(mean + REACH * sd, math.inf if upper is None else upper)
    if not (high > low and math.isfinite(high - low)):
        return np.empty(0)
    width = step((high - low) / bins, up=True)
    found = np.arange(math.floor(low / width), math.ceil(high / width) + 1) * width
    inside: Floats = found[(found > low) & (found < high)]
    return inside.round(max(0, -math.floor(math.log10(width))))
