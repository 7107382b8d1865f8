"""Finds rows that a file's columns single out: sums over all of its rows are then sums over these few.

A sum of w x z over rows, with x a column that is 0 but in a few rows, is a sum over these few. Values of one column are counted
here; whoever has sums may add columns, too, and take a constant from them: sums of columns, and of products of columns, are
searched in `directions`. Rows count by their effective number, (sum w)^2 / sum w^2.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..models.encoding import Column
from .cells import MOST, Cells, Text, labels
from .directions import HEAVY, MOST_IN_PAIRS, MOST_SUMMED
from .directions import search as search_directions
from .incomplete import marked
from .standardised import BLOCK, Part, design, middle
from .table import Table


class Rare(NamedTuple):
    """Describes rows that a column, or several together, single out: the columns, the number of rows, and the number `wanted`.

    `far`: it is one row, by a cell that is far from all others.
    """

    columns: tuple[str, ...]
    n_rows: int
    far: bool = False
    wanted: int = 0


def rare(
    table: Table,
    columns: Sequence[Column],
    weights: Array,
    least: int,
    together: int,
    filled: Collection[str] = (),
    *,
    search: bool = True,
) -> tuple[Rare, ...]:
    """Returns the rows that columns single out, the fewest first.

    They are fewer than `least` rows that a column singles out. If no such rows exist, those that a sum of columns singles out are
    sought; then fewer than `together` rows that a sum of products of columns singles out, such as those with a value of each of
    two; and then a row that has nearly all of the squares of a column.

    Parameters
    ----------
    columns : that are looked at, and whether each is numeric
    weights : (n,) of the rows, 0 of those that do not count; a missing cell is no value
    filled : columns whose missing cells have been filled, as a column beside them marks
    search : whether more than each column alone is looked at
    """
    if least <= 0 or not (weights > 0).any():
        return ()
    values_of = [_values(table.columns[column.name], column) for column in columns]
    singled_out = list[Rare]()
    for column, values in zip(columns, values_of):
        few = (_of_levels if column.kind == "categorical" else _of_numbers)(values, weights, least)
        if few:
            singled_out.append(Rare((column.name,), few, wanted=least))
    if search and not singled_out and (parts := _parts(columns, values_of, MOST_IN_PAIRS)):
        found = search_directions(design(parts, weights), least, together)
        if found is not None:
            marks = {marked(name) for name in found.columns if name in filled}
            names = tuple(name for name in found.columns if name not in marks)
            singled_out.append(Rare(names, found.n_rows, found.far, together if found.products else least))
        elif least > 1:
            far = (c.name for c, values in zip(columns, values_of) if c.kind != "categorical" and heavy(values, weights))
            singled_out += (Rare((name,), 1, far=True) for name in far)
    return tuple(sorted(singled_out, key=lambda found: found.n_rows))


class Standardised(NamedTuple):
    """Holds the columns that are looked at: (n, 1 + d) 1 and one column a level, of the rows that weigh something.

    A missing cell is at the mean; `names` and `scale` (d,) have each column's name and divisor.
    """

    X: Array
    names: tuple[str, ...]
    scale: Array


def standardised(table: Table, columns: Sequence[Column], weights: Array, most: float) -> Standardised | None:
    """Returns the standardised columns; None if their cross-products would take more than `most` multiplications."""
    values_of = [_values(table.columns[column.name], column) for column in columns]
    parts, counted = design(_parts(columns, values_of), weights), weights > 0
    d = 1 + len(parts.parts)
    if d > MOST_SUMMED or np.count_nonzero(counted) * d * d > most:
        return None
    return Standardised(parts.rows(np.flatnonzero(counted)), tuple(part.name for part in parts.parts), parts.scale)


def _values(cells: Cells, column: Column) -> np.ndarray:
    """Returns a column's numbers (n,), or the number of each cell's level: -1 for an empty cell, or a level that is not
    declared."""
    if column.kind != "categorical":
        values = cells.numbers() if isinstance(cells, Text) else np.asarray(cells)
        return values if values.dtype.kind != "f" or values.dtype.itemsize < 8 or not _faults(values) else without_faults(values)
    if not isinstance(cells, Text):
        return np.unique(np.asarray(cells), return_inverse=True)[1]
    cells = labels(cells)
    known = np.array([text != "" and (column.levels is None or text in column.levels) for text in cells.levels], dtype=bool)
    return np.where(known, np.arange(len(known)), -1)[cells.codes]


def without_faults(values: np.ndarray) -> Array:
    """Returns the numbers that a job can read; others are faults, and here no values."""
    numbers = np.asarray(values, np.float64)
    return np.where(np.abs(numbers) <= MOST, numbers, np.nan)


def _faults(values: np.ndarray) -> bool:
    """Tells whether some cell is too large, block by block: a file may be larger than memory."""
    return any(not (np.abs(values[begin : begin + BLOCK]) <= MOST).all() for begin in range(0, len(values), BLOCK))


def _few(sums: Array, squares: Array, least: int) -> int:
    """Returns the smallest effective number below `least`, rounded up; 0 if none is below."""
    present = squares > 0
    numbers = sums[present] ** 2 / squares[present]
    few = numbers[numbers < least - 1e-9]
    return int(np.ceil(few.min() - 1e-9)) if len(few) else 0


def _of_levels(codes: NDArray[np.int64], weights: Array, least: int) -> int:
    """Returns the smallest effective number of rows of a level, or 0 if none is below `least`."""
    sums, squares = (np.asarray(np.bincount(codes + 1, w)[1:], np.float64) for w in (weights, weights**2))
    return _few(sums, squares, least)


def _of_numbers(values: np.ndarray, weights: Array, least: int) -> int:
    """Returns in how many rows a number differs from the one in all others; 0 if these are `least` or more."""
    sums, squares = differing(values, weights, least)
    return _few(np.array([sums]), np.array([squares]), least)


def differing(values: np.ndarray, weights: Array, enough: float = np.inf) -> tuple[float, float]:
    """Returns the sums of the weights, and of their squares, of rows whose number differs from the most frequent one; of equal
    weights no more rows than are enough need be counted."""
    equal = bool(((weights == 0) | (weights == weights.max(initial=0.0))).all())
    usual, sums, squares = _usual(values, weights), 0.0, 0.0
    for begin in range(0, len(values), BLOCK):
        part = np.asarray(values[begin : begin + BLOCK], np.float64)
        others = np.where((part != usual) & ~np.isnan(part), weights[begin : begin + BLOCK], 0.0)
        sums, squares = sums + float(others.sum()), squares + float((others**2).sum())
        if equal and squares > 0 and sums**2 / squares >= enough:
            break
    return sums, squares


def _usual(values: np.ndarray, weights: Array) -> float:
    """Returns the most frequent value of a few dozen rows: if all but a few rows share a value, it is this."""
    rows = np.flatnonzero(weights[:BLOCK] > 0) if (weights[:BLOCK] > 0).any() else np.flatnonzero(weights > 0)
    head = np.asarray(values[rows[:100]], np.float64)
    different, times = np.unique(head[~np.isnan(head)], return_counts=True)
    return float(different[times.argmax()]) if len(different) else np.nan


def heavy(values: np.ndarray, weights: Array) -> bool:
    """Tells whether one row has nearly all of the sum of squares of a column about its mean."""
    centre, moments, ends = middle(np.asarray(values[:BLOCK], np.float64)), np.zeros(3), [0.0, 0.0, 0.0]
    for begin in range(0, len(weights), BLOCK):
        numbers, w = np.asarray(values[begin : begin + BLOCK], np.float64) - centre, weights[begin : begin + BLOCK]
        present = (w > 0) & ~np.isnan(numbers)
        numbers, w = numbers[present], w[present]
        moments += [w.sum(), (w * numbers).sum(), (w * numbers * numbers).sum()]
        for row in {int(numbers.argmin()), int(numbers.argmax())} if len(numbers) else ():
            if w[row] * numbers[row] ** 2 > ends[0]:
                ends = [float(w[row] * numbers[row] ** 2), float(w[row]), float(numbers[row])]
    total, first, second = moments
    squares = second - first**2 / total if total > 0 else 0.0
    return bool(squares > 0 and ends[1] * (ends[2] - first / total) ** 2 > HEAVY * squares)


def _parts(columns: Sequence[Column], values_of: Sequence[np.ndarray], most: int = MOST_SUMMED) -> list[Part]:
    parts = list[Part]()
    for column, values in zip(columns, values_of):
        levels = np.unique(values).tolist() if column.kind == "categorical" else [None]
        parts += [Part(column.name, values, level) for level in levels if level is None or level >= 0]
        if len(parts) >= most:
            break
    return parts
