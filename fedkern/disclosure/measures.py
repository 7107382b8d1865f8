"""Decides which mean, standard deviation, quantiles and correlation of a client's numbers may be told, and rounds them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .cells import Parts
from .rules import Rules

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

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


def measured(values: ArrayLike, rules: Rules, parts: int = 0) -> bool:
    """Tells whether sums over numbers (nan: missing) may be told: they are of enough rows and many values, and none leads.

    Else the column has counts alone; and where some of its cells have joined, no other job may have its sums.

    `parts`: of the column's cells, as many as were told at most, now or before: where few have several values, sums take them
    apart.
    """
    own, most = present(values), max(MANY, 2 * parts) * (rules.rows_per_value > 0)
    if len(own) < max(rules.rows, 2) or not any(len(np.unique(some)) > most for some in (own[:FIRST], own)):
        return False
    off = own - own.mean()
    farthest = max(off.max(), -off.min()) ** 2
    return bool(1 / len(own) + farthest / max(off @ off, np.finfo(float).tiny) <= rules.leverage)


def moments(values: ArrayLike, rules: Rules, parts: int = 0, rows: float | None = None) -> Moments | None:
    """Returns the rounded mean and sd of numbers (nan: missing); None if they may not be told.

    Parameters
    ----------
    parts : as `measured` takes it
    rows : those with a number, as far as they are told: of all parts but one of missing cells alone. None: exactly those
    """
    if not measured(values, rules, parts):
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


def pooled(of_clients: Sequence[Moments]) -> Moments:
    """Returns the mean and sd of all clients' rows, of what they told."""
    n, mean, sd = np.array(of_clients, np.float64).T
    total = float(n.sum())
    of_all = float(n @ mean) / total
    square = float((n - 1) @ sd**2 + n @ (mean - of_all) ** 2) / (total - 1)
    error = math.sqrt(square / total)
    return Moments(total, rounded(of_all, error), rounded(math.sqrt(square), error / math.sqrt(2)))


def correlation(x: ArrayLike, y: ArrayLike, rules: Rules) -> float | None:
    """Returns a rounded correlation over the rows with both numbers; None if it may not be told.

    Both columns have more than ten cells of enough rows each: a cross table of fewer would be told by it.
    """
    own = [np.asarray(one, np.float64) for one in (x, y)]
    if not (there := np.isfinite(own[0]) & np.isfinite(own[1])).all():
        own = [one[there] for one in own]
    least, most = rules.rows_per_value, MANY * (rules.rows_per_value > 0)
    if not all(measured(one, rules) and any(_cells(some, least) > most for some in (one[:FIRST], one)) for one in own):
        return None
    a, b = (one - one.mean() for one in own)
    return rounded(float(a @ b) / math.sqrt(float(a @ a) * float(b @ b)), 1 / math.sqrt(len(a)))


def _cells(values: Floats, least: int) -> int:
    """Returns into how many cells of enough rows each numbers can be cut, from the least one on."""
    cells, rows = 0, 0
    for count in np.unique(values, return_counts=True)[1].tolist():
        rows += count
        if rows >= max(least, 1):
            cells, rows = cells + 1, 0
    return cells


def pooled_correlation(x: Sequence[Moments], y: Sequence[Moments], r: Sequence[float]) -> float:
    """Returns the correlation of all clients' rows, of what they told of two columns."""
    n = np.array([min(one.rows, other.rows) for one, other in zip(x, y, strict=True)])
    means, sds = (np.array([[one[k] for one in column] for column in (x, y)]) for k in (1, 2))
    off = means - (means @ n / n.sum())[:, None]
    products = np.einsum("ik,jk,k->ij", off, off, n) + np.einsum("ik,jk,k->ij", sds, sds, n - 1) * np.eye(2)
    products[[0, 1], [1, 0]] += float((sds.prod(axis=0) * r) @ (n - 1))
    return rounded(float(products[0, 1] / math.sqrt(products[0, 0] * products[1, 1])), 1 / math.sqrt(n.sum()))


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


def binned(values: ArrayLike, inner: ArrayLike) -> Ints:
    """Returns (bins + 1,) the counts of bins [end, next end), the first and the last without limit, and of missing cells."""
    own, inner = present(values), np.asarray(inner, np.float64)
    inside = np.bincount(np.searchsorted(inner, own, "right"), minlength=len(inner) + 1)
    return np.append(inside, np.size(values) - len(own)).astype(np.int64)


def quantile(counts: ArrayLike, parts: Parts, inner: ArrayLike, share: float) -> tuple[float, float]:
    """Returns the ends between which a quantile lies, of the told counts (parts,) of bins: infinite beyond the outer ones."""
    bounds = [-math.inf, *np.asarray(inner, np.float64).tolist(), math.inf]
    last = len(bounds) - 1  # the cell of missing ones
    own = [([cell for cell in part if cell < last], int(n)) for part, n in zip(parts, np.asarray(counts), strict=True)]
    own = [(cells, n) for cells, n in own if cells and n]
    if not own:
        return -math.inf, math.inf
    until = np.cumsum([n for _, n in own])
    cells = own[int(np.searchsorted(until, share * until[-1]))][0]
    return bounds[min(cells)], bounds[max(cells) + 1]
