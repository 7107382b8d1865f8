"""How many combinations of values a file's covariates can have, for who has not seen it, and how rare those are that occur.

Whoever knows what a row can be needs to find only how often each possible row occurs: see docs/concepts/disclosure.md, "From
columns of few values".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..models.encoding import Spec
from ..privacy.disclosure import COARSE, LEAST_OF_LEVEL
from .cells import Text, floats
from .design import column_of
from .table import Table

Array = NDArray[np.float64]

STEPS = (1.0, 0.1, 0.01, 0.001)  # between two values of a column, as people write numbers down
HEAD = 20_000  # rows
LARGEST = 1e9  # of a number of such steps; floats tell them apart
SAME = 1e-6  # of a step: rounding


class Combinations(NamedTuple):
    """How many there can be, and how many rows each has that occurs."""

    possible: int
    rows: NDArray[np.int64]


def combinations(table: Table, spec: Spec, counting: NDArray[np.bool_]) -> Combinations | None:
    """Of the values of a file's covariates and offset, in the rows that count; None where there can be more than `COARSE`."""
    if len(counting) > 2 * HEAD:  # what the first rows have is seldom less than what all have, and a file may be large
        head = counting.copy()
        head[HEAD:] = False
        if head.any() and _combinations(table, spec, head) is None:
            return None
    return _combinations(table, spec, counting)


def _combinations(table: Table, spec: Spec, counting: NDArray[np.bool_]) -> Combinations | None:
    possible, codes = 1.0, np.zeros(int(counting.sum()), dtype=np.int64)
    for cells, levels in _columns(table, spec):
        values = cells[counting]
        different, inverse = np.unique(values, return_inverse=True)
        possible *= max(levels, len(different)) if levels is not None else _possible(np.asarray(values, np.float64))
        if possible > COARSE:
            return None
        codes = codes * len(different) + inverse
    return Combinations(int(possible), np.unique(codes, return_counts=True)[1])


def _columns(table: Table, spec: Spec) -> Iterator[tuple[NDArray[np.float64] | NDArray[np.int64], int | None]]:
    """Values, and for categories how many there are."""
    for name in spec.covariates(table.names):
        column, cells = column_of(spec, table, name), table.columns[name]
        if column.kind == "categorical" and isinstance(cells, Text):
            yield cells.codes, len(column.levels or ())
        else:
            yield floats(cells), None
    if spec.offset is not None:
        yield floats(table.columns[spec.offset]), None


def _possible(values: Array) -> float:
    """How many values a column of numbers can have: the steps from its least to its greatest, where it has steps, or the
    different ones that it has, where each is in `LEAST_OF_LEVEL` rows on average."""
    missing = 1 if np.isnan(values).any() else 0
    different = np.unique(values[np.isfinite(values)])
    if len(different) < 2:
        return len(different) + missing or 1
    has = len(different) if LEAST_OF_LEVEL * len(different) <= len(values) else np.inf
    for step in STEPS:
        whole = np.rint(different / step)
        if np.abs(whole).max() > LARGEST:
            break
        if len(np.unique(whole)) == len(different) and np.abs(different / step - whole).max() <= SAME:
            apart = np.gcd.reduce(np.diff(whole).astype(np.int64))
            return float(min(has, (whole[-1] - whole[0]) / apart + 1)) + missing
    return has + missing
