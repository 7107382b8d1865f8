"""Columns as sums over rows have them: one each, or one a level, about their means and in their standard deviations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ..arrays import Array, Indices

BLOCK = 1 << 16
SOME = 1000  # numbers of a column, about whose median no digits of its sums are lost
SAMPLE, MANY = 1000, 10_000  # of a column, that tell where its middle is; numbers from which on that saves a sort


class Part(NamedTuple):
    """Describes a column as it is multiplied: its name, values, and of which level, if any."""

    name: str
    values: np.ndarray
    level: int | None

    def numbers(self, places: Indices | slice) -> Array:
        """Returns the column's numbers in some rows; of a level, whether they have it."""
        part = self.values[places]
        return np.asarray(part, np.float64) if self.level is None else (part == self.level).astype(np.float64)


class Design(NamedTuple):
    """Holds columns as they are multiplied: one each, or one a level, less its mean and over its standard deviation."""

    parts: tuple[Part, ...]
    weights: Array
    centre: Array
    scale: Array

    def rows(self, places: Indices, which: Indices | None = None) -> Array:
        """Returns rows (b, 1 + d), or some columns of them; column 0 is 1, and a missing cell is at the mean."""
        which = np.arange(1 + len(self.parts)) if which is None else which
        Z = np.ones((len(which), len(places)))
        for k, j in enumerate(which.tolist()):
            if j:
                np.subtract(self.parts[j - 1].numbers(places), self.centre[j - 1], out=Z[k])
                Z[k] /= self.scale[j - 1]
        return without_gaps(Z.T)

    def blocks(self) -> Iterator[Array]:
        """Yields the rows that count, times the roots of their weights."""
        for begin in range(0, len(self.weights), BLOCK):
            rows = begin + np.flatnonzero(self.weights[begin : begin + BLOCK] > 0)
            yield self.rows(rows) * np.sqrt(self.weights[rows])[:, None]


def design(parts: Sequence[Part], weights: Array) -> Design:
    """Returns columns in their standard deviations, about their means, of weighted rows."""
    total, moments = float(weights.sum()), np.zeros((2, len(parts)))
    first = (part.numbers(slice(BLOCK)) for part in parts)
    centre = np.array([middle(values[~np.isnan(values)][:SOME]) for values in first])
    for j, part in enumerate(parts):
        for begin in range(0, len(weights), BLOCK):
            values = without_gaps(part.numbers(slice(begin, begin + BLOCK)) - centre[j])
            moments[:, j] += [(weights[begin : begin + BLOCK] * values**power).sum() for power in (1, 2)]
    mean, square = moments / total
    scale = np.sqrt(np.maximum(square - mean**2, 0))
    return Design(tuple(parts), weights, centre + mean, np.where(scale > 0, scale, 1.0))


def without_gaps(numbers: Array) -> Array:
    """Returns numbers with 0 in the place of those that are missing: the same ones where none is."""
    return numbers if np.isfinite(numbers.sum()) else np.nan_to_num(numbers, copy=False)


def middle(values: Array) -> float:
    """Returns the median of the cells that are there: a number among those of a column, about which no digits are lost."""
    known = values if np.isfinite(values.sum()) else values[~np.isnan(values)]
    if not (half := len(known) // 2):
        return float(known[0]) if len(known) else 0.0
    odd, below = len(known) % 2, 0
    if len(known) > MANY:  # between two numbers of a sample there are few, and the middle
        low, high = sample(known)[[SAMPLE * 9 // 20, SAMPLE * 11 // 20]]
        below = int(np.count_nonzero(known < low))
        near = known[(known >= low) & (known <= high)]
        known, below = (near, below) if below < half < below + len(near) else (known, 0)
    known = np.partition(known, (half - below - 1, half - below))  # np.median, which takes four times as long, has the same bits
    return float(known[half - below] if odd else (known[half - below - 1] + known[half - below]) / 2)


def sample(values: Array) -> Array:
    """Returns some of many numbers, evenly chosen and in order."""
    return np.sort(values[:: len(values) // SAMPLE][:SAMPLE])


def smallest(values: Array, n: int) -> Array:
    """Returns the n smallest of some numbers, in no order."""
    if len(values) > MANY:
        near = values[values <= sample(values)[SAMPLE // 100]]
        values = near if len(near) >= n else values
    return np.partition(values, n - 1)[:n]
