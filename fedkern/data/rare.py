"""Values that few rows of a file have, which sums over all of its rows single out.

A sum of w x z over rows, with x a column that is 0 but in a few rows, is a sum over these few; and a server may add columns and
take a constant from them, so that what a column is elsewhere does not matter: only whether it is the same. Two columns of two
values each do likewise where one of their four combinations does not occur, since one of the other three then follows from sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..models.encoding import Column
from .cells import Cells, Text
from .table import Table

BLOCK = 1 << 16
Rows = slice | NDArray[np.int64]
MOST_PAIRED = 256  # columns of two values that are looked at in pairs


class Rare(NamedTuple):
    """Rows that share what few have: of which columns, and how many they are."""

    columns: tuple[str, ...]
    n_rows: int


def rare(table: Table, columns: Sequence[Column], least: int, counted: NDArray[np.bool_]) -> Rare | None:
    """The fewest rows, fewer than `least`, in which a column is not what it is in all others, or a pair of columns is not.

    Parameters
    ----------
    columns : that are looked at, and whether each is numeric
    least : rows that must share a level, or differ from all others
    counted : (n,) rows that count; a missing cell is no value

    Returns
    -------
    None where there are none
    """
    found, pairs = list[Rare](), list[tuple[str, NDArray[np.bool_]]]()
    rows = slice(None) if counted.all() else np.flatnonzero(counted)  # files may be larger than memory
    for column in columns if least > 0 and counted.any() else ():
        cells = table.columns[column.name]
        if column.kind == "categorical":
            codes = _codes(cells, column.levels)[rows]
            counts = np.bincount(codes + 1)[1:]
            few, two = min((n for n in counts.tolist() if 0 < n < least), default=0), _levels(codes, counts)
        else:
            values = cells.numbers() if isinstance(cells, Text) else np.asarray(cells)
            few, two = _few(values, rows, least), _two_valued(values, rows)
        if few:
            found.append(Rare((column.name,), few))
        elif len(pairs) < MOST_PAIRED:
            pairs += [(column.name, one) for one in two]
    return min([*found, *_of_pairs(pairs, least)], key=lambda one: one.n_rows, default=None)


def _codes(cells: Cells, levels: Sequence[str] | None) -> NDArray[np.int64]:
    """(n,) which level each cell is; -1 of an empty one, or of none of these `levels`, which is a fault."""
    if not isinstance(cells, Text):
        return np.unique(np.asarray(cells), return_inverse=True)[1]
    known = np.array([level != "" and (levels is None or level in levels) for level in cells.levels], dtype=bool)
    return np.where(known, np.arange(len(known)), -1)[cells.codes]


def _few(values: NDArray[Any], rows: Rows, least: int) -> int:
    """In how many rows a number is not what it is in all others; 0 if these are `least` or more."""
    head = next(_blocks(values, rows, 2 * least))  # most of these have what all but a few have
    head, times = np.unique(head[~np.isnan(head)], return_counts=True)
    if not len(head):
        return 0
    others = sum(_differ(values, rows, float(head[times.argmax()]), least))
    return others if others < least else 0


def _blocks(values: NDArray[Any], rows: Rows, size: int = BLOCK) -> Iterator[NDArray[np.float64]]:
    """A column's cells in these rows, so many at a time."""
    for begin in range(0, len(values) if isinstance(rows, slice) else len(rows), size):
        which = slice(begin, begin + size) if isinstance(rows, slice) else rows[begin : begin + size]
        yield np.asarray(values[which], np.float64)


def _differ(values: NDArray[Any], rows: Rows, usual: float, least: int) -> Iterator[int]:
    """How many cells of each block are numbers but not the usual one, until there are enough."""
    total = 0
    for part in _blocks(values, rows):
        n = int(np.count_nonzero((part != usual) & ~np.isnan(part)))
        total += n
        yield n
        if total >= least:
            return


def _levels(codes: NDArray[np.int64], counts: NDArray[np.int64]) -> Iterator[NDArray[np.bool_]]:
    """Whether each cell is this level, of each of the first levels."""
    yield from (codes == code for code in np.flatnonzero(counts)[: MOST_PAIRED // 8])


def _two_valued(values: NDArray[Any], rows: Rows) -> Iterator[NDArray[np.bool_]]:
    """A column of two numbers as whether it is the larger one; nothing of others."""
    if any(len(np.unique(part)) > 2 for part in _blocks(values, rows)):
        return
    whole = np.asarray(values[rows], np.float64)
    low, high = whole.min(), whole.max()
    if low < high and bool(((whole == low) | (whole == high)).all()):
        yield whole == high


def _of_pairs(columns: Sequence[tuple[str, NDArray[np.bool_]]], least: int) -> Iterator[Rare]:
    """Pairs of columns of which three combinations occur, one of them in a few rows."""
    if len(columns) < 2:
        return
    B = np.column_stack([column for _, column in columns]).astype(np.float32)
    n, both = len(B), np.zeros((len(columns), len(columns)))
    for begin in range(0, n, BLOCK):
        part = B[begin : begin + BLOCK]
        both += part.T @ part  # whole numbers below 2^24: exact
    ones = np.diag(both)
    cells = np.stack([both, ones[:, None] - both, ones[None, :] - both, n - ones[:, None] - ones[None, :] + both])
    smallest = np.where(cells > 0, cells, np.inf).min(axis=0)
    single = np.triu(((cells == 0).sum(axis=0) == 1) & (smallest < least), 1)
    for i, j in zip(*np.nonzero(single)):
        yield Rare(tuple(dict.fromkeys((columns[i][0], columns[j][0]))), int(smallest[i, j]))
