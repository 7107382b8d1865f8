"""Counts how many combinations of values a file's covariates can have, for a stranger to it, and how rare those are that occur.

Whoever knows which rows are possible needs only the number of times that each occurs: see docs/concepts/disclosure.md, "From
columns of few values".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..data.cells import Text, floats, labels
from ..data.design import LEAST_OF_LEVEL, column_of
from ..data.table import Table
from ..models.encoding import Spec
from .rules import COARSE

STEPS = (1.0, 0.1, 0.01, 0.001)  # between two values of a column, as people write numbers down
LARGEST = 1e9  # of a number of such steps; floats tell them apart
SAME = 1e-6  # of a step: rounding
PARTS = 6  # the smallest gap between two values may be so many steps
NEAR = 0.05  # of a step: the digits that a file has
NEARLY_ALL = 0.9  # of the different values: a few others are known once found
SMALL = 9.0  # a logarithm
REPEATED = 5  # rows whose combination another has, at least, in all of which a column must follow from it


class Combinations(NamedTuple):
    """Holds the number of possible combinations, and the effective number of rows of each that occurs."""

    possible: int
    rows: Array


def combinations(table: Table, spec: Spec, weights: Array) -> Combinations | None:
    """Counts the combinations of a file's covariates and offset in rows of these weights; None if more than `COARSE` are
    possible.
    """
    counting = weights > 0
    possible, codes = 1.0, np.zeros(int(counting.sum()), dtype=np.int64)
    for cells, levels in _columns(table, spec):
        values = cells[counting]
        different, inverse = np.unique(values, return_inverse=True)
        before = int(codes.max(initial=-1)) + 1
        codes = np.unique(codes * len(different) + inverse, return_inverse=True)[1]
        if len(codes) - before >= REPEATED and codes.max() + 1 == before:
            continue  # a function of the columns before it: the square of an age, a product
        possible *= max(levels, len(different)) if levels is not None else _possible(np.asarray(values, np.float64))
        if possible > COARSE:
            return None
    counted, most = weights[counting], np.zeros(int(codes.max(initial=-1)) + 1)
    np.maximum.at(most, codes, counted)
    relative = counted / most[codes]  # whose squares are no smaller than numbers can be
    return Combinations(int(possible), np.bincount(codes, relative) ** 2 / np.bincount(codes, relative**2))


def _columns(table: Table, spec: Spec) -> Iterator[tuple[NDArray[np.float64] | NDArray[np.int64], int | None]]:
    """Yields the values of each column, and the number of its categories if it has some."""
    for name in spec.covariates(table.names):
        column, cells = column_of(spec, table, name), table.columns[name]
        if column.kind == "categorical" and isinstance(cells, Text):
            yield labels(cells).codes, len(column.levels or ())
        else:
            yield floats(cells), None
    if spec.offset is not None:
        yield floats(table.columns[spec.offset]), None


def _possible(values: Array) -> float:
    """Returns how many values a column of numbers can have.

    They are the steps from its least to its greatest value, if nearly all of its values are steps, as they are or as a logarithm
    or a root of them; or its different values, if each is in `LEAST_OF_LEVEL` rows on average.
    """
    missing = 1 if np.isnan(values).any() else 0
    different = np.unique(values[np.isfinite(values)])
    if len(different) < 2:
        return len(different) + missing or 1
    has = float(len(different)) if LEAST_OF_LEVEL * len(different) <= len(values) else np.inf
    counts = [has, _decimal(different), _spaced(different)]
    if np.abs(different).max() < SMALL:
        counts += [_spaced(np.unique(of)) for of in (np.exp(different), 10**different, different**2)]
    if different[0] >= 0:
        counts.append(_spaced(np.sqrt(different)))
    return min(counts) + missing


def _decimal(different: Array) -> float:
    """Returns how many whole numbers, or numbers of one to three decimals, lie from the least to the greatest; inf if it has
    others.
    """
    for step in STEPS:
        whole = np.rint(different / step)
        if np.abs(whole).max() > LARGEST:
            break
        on = np.abs(different / step - whole) <= SAME
        if on.mean() >= NEARLY_ALL and len(np.unique(whole[on])) == on.sum() > 1:
            apart = np.gcd.reduce(np.diff(whole[on]).astype(np.int64))
            return float((whole[on][-1] - whole[on][0]) / apart + 1 + (~on).sum())
    return np.inf


def _spaced(different: Array) -> float:
    """Returns how many equally spaced values, in whatever unit, lie from the least to the greatest: ages as z-scores, months over
    12.

    It is inf if the values are not equally spaced.
    """
    if len(different) < 2:
        return np.inf
    gaps = np.diff(different)
    sizes, times = np.unique(np.array([float(f"{gap:.2g}") for gap in gaps]), return_counts=True)
    usual = float(np.median(gaps[np.isclose(gaps, sizes[times.argmax()], rtol=0.06)]))
    for base in (float(gaps.min()), usual):
        for parts in range(1, PARTS + 1):
            for origin in np.quantile(different, (0.25, 0.5, 0.75), method="nearest"):
                whole = np.rint((different - origin) / (base / parts))
                if whole[-1] - whole[0] > COARSE:
                    break
                step = float(whole @ (different - origin)) / float(whole @ whole)
                steps = (different - origin) / step
                on = np.abs(steps - np.rint(steps)) <= NEAR
                if on.mean() >= NEARLY_ALL and len(np.unique(np.rint(steps[on]))) == on.sum() > 1:
                    return float(np.ptp(np.rint(steps[on])) + 1 + (~on).sum())
    return np.inf
