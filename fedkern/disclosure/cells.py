"""Decides which counts of a client's rows may be told: cells with few rows join others, so that no difference gives one back.

All that is told of a column is a function of one partition of its cells (levels, or bins of a number, and one of missing cells),
each part of which has enough rows. So are differences of what is told: margins, all but a client, a group's complement, rows
without missing cells. A cell that no row is in is told as empty; one that has joined others has any number of rows up to its
part's. What a client sends is told already; what is printed of all clients is a sum over parts that all of them tell.

One function joins everything: levels of a factor, bins of a number, one factor of a cross table (the other's levels are views of
its cells), and intervals of survival times (the events and the censored rows of each group are views). Which cells join which
depends on public facts and on who has too few, so that clients' parts have much in common.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import Indices

_MANY = 1 << 20  # more than there are cells, and a power of two
Parts = tuple[tuple[int, ...], ...]  # of cells; each cell is in one of them


def join(counts: ArrayLike, least: int) -> Parts:
    """Joins cells in no order, those with few rows and then the first ones, until no part has few.

    Parameters
    ----------
    counts : (cells,) or (views, cells); a part needs enough rows in each view, unless all of its cells are empty in all
    least : rows of a part: `rows_per_value` of the level

    Returns
    -------
    the parts, by their first cells. Where even all cells together are too few they are one part, and `enough` says so

    Examples
    --------
    >>> from fedkern.disclosure.cells import join
    >>> join([40, 2, 0, 30], 5)
    ((0, 1), (2,), (3,))
    """
    views = np.atleast_2d(np.asarray(counts, np.int64))

    def fits(cells: Sequence[int]) -> bool:
        # Of one view it is known that no cell which has joined is empty: each has one row at least.
        filled = int(np.count_nonzero(views[:, list(cells)], axis=0).astype(bool).sum())
        known = filled if len(views) == 1 and filled > 1 else 0
        rows = views[:, list(cells)].sum(axis=1)
        return bool((rows >= least + known).all() or not rows.any())

    parts, few = list[list[int]](), list[int]()
    for cell in range(views.shape[1]):
        if fits([cell]):
            parts.append([cell])
        else:
            few.append(cell)
    while few and parts and not fits(few):
        few += parts.pop(0)
    return _sorted([*parts, *([few] if few else [])])


def cut(begins: Mapping[int, int], n: int, into: int, fits: Callable[[Parts], bool]) -> Parts:
    """Cuts `n` cells in an order at as many beginnings of cells as fit: the middle one first, then by halves.

    So clients' parts have much in common.

    Parameters
    ----------
    begins : cell -> its number among the cells that all clients know
    into : the number of the middle cell

    Examples
    --------
    >>> from fedkern.disclosure.cells import added, cut
    >>> cut({1: 1, 2: 2, 3: 3}, 4, 2, lambda parts: added([3, 4, 9, 6], parts).min() > 5)
    ((0, 1), (2,), (3,))
    """

    def halves(cell: int) -> tuple[int, int]:
        off = _MANY + begins[cell] - into
        return -(off & -off), begins[cell]  # the lowest bit says at which halving it is the middle

    found = list[int]()
    for begin in sorted(begins, key=halves):
        tried = sorted([*found, begin])
        if fits(_runs(tried, n)):
            found = tried
    return _runs(found, n)


def _runs(begins: Sequence[int], n: int) -> Parts:
    return tuple(tuple(range(begin, other)) for begin, other in pairwise((0, *begins, n)))


def bins(counts: ArrayLike, least: int, at: Sequence[int], into: int, most: int | None = None) -> Parts:
    """Joins neighbours until no part has few rows; the last cell, of missing ones, joins the middle where they are few.

    Parameters
    ----------
    counts, least : as `join` takes them
    at, into : the numbers of all other cells, and of the middle one, as `cut` takes them
    most : parts

    Examples
    --------
    >>> from fedkern.disclosure.cells import bins
    >>> bins([3, 4, 9, 12, 8, 3], 5, range(5), 2)
    ((0, 1), (2, 5), (3,), (4,))
    """
    views, n = np.atleast_2d(np.asarray(counts, np.int64)), len(at)
    sums, middle = views[:, :n].copy(), max(bisect_right(at, into) - 1, 0)
    missing = tuple(range(n, views.shape[1]))
    few = bool(missing) and not enough(views, (missing,), least)
    sums[:, middle] += few * views[:, n:].sum(axis=1)
    begins = {cell: at[cell] for cell in range(1, n)}
    parts = cut(begins, n, into, lambda tried: enough(sums, tried, least) and (most is None or len(tried) <= most))
    parts = tuple((*part, *missing) if few and middle in part else part for part in parts)
    return parts if few or not missing else (*parts, missing)


def _sorted(parts: Sequence[Sequence[int]]) -> Parts:
    return tuple(sorted(tuple(sorted(part)) for part in parts))


def enough(counts: ArrayLike, parts: Parts, least: ArrayLike, *, none: bool = False) -> bool:
    """Tells whether each part has enough rows in each view, or none in any; `none`: or in this one. Else no count is told."""
    rows = added(np.atleast_2d(np.asarray(counts, np.int64)), parts)
    fit = (rows >= np.reshape(least, (-1, 1))) | (none & (rows == 0))
    return bool((fit.all(axis=0) | ~rows.any(axis=0)).all())


def added(counts: ArrayLike, parts: Parts) -> Indices:
    """Returns (.., parts) the counts (.., cells) of parts."""
    cells = np.asarray(counts, np.int64)
    return np.stack([cells[..., list(part)].sum(axis=-1) for part in parts], axis=-1)


def common(*partitions: Parts) -> Parts:
    """Returns the finest parts that are unions of parts of each partition: what all clients tell can be added over these."""
    found = list[set[int]]()
    for part in (part for partition in partitions for part in partition):
        touched = [group for group in found if not group.isdisjoint(part)]
        found = [group for group in found if group.isdisjoint(part)] + [set(part).union(*touched)]
    return _sorted([sorted(group) for group in found])


def coarsened(parts: Parts, fits: Callable[[Parts], ArrayLike]) -> Parts | None:
    """Joins parts that do not fit with the next ones until all do; None where not even all together fit."""
    while not (fit := np.asarray(fits(parts), bool)).all():
        if len(parts) == 1:
            return None
        beside = min(int(fit.argmin()), len(parts) - 2)
        parts = _sorted([*parts[:beside], (*parts[beside], *parts[beside + 1]), *parts[beside + 2 :]])
    return parts


def again(counts: ArrayLike, before: ArrayLike, least: int) -> NDArray[np.bool_]:
    """Tells which counts may be told after others: enough rows have come or gone, or none, since differences are told, too."""
    change = np.abs(np.asarray(counts, np.int64) - np.asarray(before, np.int64))
    fit: NDArray[np.bool_] = (change == 0) | (change >= least)
    return fit


def in_cells(now: Sequence[Any], before: Sequence[Any], earlier: Parts) -> dict[tuple[int, ...], list[int]]:
    """Returns the finest parts of a column's cells that can be compared with what was told of other cells.

    Parameters
    ----------
    now, before : levels, or inner ends of bins; behind their cells stands that of missing ones
    earlier : parts of the cells of then

    Returns
    -------
    the cells of each part, and which of `earlier` are in it: ends that both have remain, a new level has none. Of a column that
    was of another kind all cells are one part

    Examples
    --------
    >>> from fedkern.disclosure.cells import in_cells
    >>> in_cells([10, 25, 30], [10, 20, 30], ((0,), (1,), (2, 3), (4,)))
    {(0,): [0], (1, 2, 3): [1, 2], (4,): [3]}
    """
    levels, kinds = [*dict.fromkeys([*now, *before])], {isinstance(name, str) for name in (*now, *before)}
    ends = [end for end in levels if end in now and end in before]
    if kinds == {True}:
        of_now, of_then, last = [*map(levels.index, now)], [*map(levels.index, before)], len(levels)
    elif len(kinds) == 2:
        of_now, of_then, last = [0] * len(now), [0] * len(before), 0
    else:
        of_now, of_then = ([0, *np.searchsorted(ends, side, "right").tolist()] for side in (now, before))
        last = len(ends) + 1
    of_now, of_then = [*of_now, last], [*of_then, last]
    shared = common(tuple((k,) for k in range(last + 1)), tuple(tuple({of_then[cell] for cell in part}) for part in earlier))
    found = {tuple(k for k, of in enumerate(of_now) if of in cells): cells for cells in shared}
    return {cells: [k for k, part in enumerate(earlier) if of_then[part[0]] in both] for cells, both in found.items() if cells}


def beside(parts: Parts, rows: ArrayLike, earlier: Sequence[tuple[Collection[int], int]], least: int) -> NDArray[np.bool_]:
    """Tells which parts, of so many rows, may be told beside what a job tells of rows without missing cells.

    A job tells the rows of each level, and of each of few values: its sums say them. What a part has beside these is rows that
    lack some cell. By all rows that count it is known how many the job has left out: so these have to be more by so many.

    Parameters
    ----------
    earlier : cells, and how many rows of the job are in them

    Examples
    --------
    >>> from fedkern.disclosure.cells import beside
    >>> beside(((0, 3), (1, 2)), [30, 9], [([0], 27), ([1], 5), ([2], 4)], 5)
    array([False, False])
    """
    others = {cell for part in parts for cell in part}.difference(*(some for some, _ in earlier))
    shared = common(parts, tuple(tuple(some) for some, _ in earlier), tuple((cell,) for cell in others))
    fit = dict[int, bool]()
    for cells in map(set, shared):
        inside = [(set(some), n) for some, n in earlier if cells.issuperset(some)]
        more = sum(n for part, n in zip(parts, np.asarray(rows).tolist()) if cells.issuperset(part)) - sum(n for _, n in inside)
        same = len(shared) == 1 or not inside or (len(inside) == 1 and inside[0][0] == cells)
        may = same or (not 0 < more < 2 * least - 1 and not any(0 < n < least for _, n in inside))
        fit |= dict.fromkeys(cells, may)
    return np.array([fit[part[0]] for part in parts])


def cross(
    counts: ArrayLike, least: int, at: tuple[Sequence[int], Sequence[int]] = ((), ()), into: tuple[int, int] = (0, 0)
) -> tuple[Parts, Parts] | None:
    """Returns the parts of rows, and of columns, by which a cross table may be told; None if by none.

    The cells of each factor are the parts in which it is told by itself, that of its missing cells among them. One factor joins,
    the other stays as it is: a cell that is hidden then is one of at least two rows and two columns whose sums are known, each of
    enough rows, and takes as many values. An empty cell counts as few, unless its factor's part is empty: it says something of
    all rows of a group. Where one factor has one filled part the table is the other's counts, which are told.

    Parameters
    ----------
    counts : (rows, columns)
    at, into : of the rows, and of the columns, as `bins` takes them; none of those in no order

    Examples
    --------
    >>> from fedkern.disclosure.cells import cross
    >>> cross([[20, 30, 2], [25, 28, 9]], 5), cross([[20, 3], [25, 0]], 5)
    ((((0,), (1,)), ((0, 2), (1,))), None)
    """
    table, found = np.asarray(counts, np.int64), list[tuple[Parts, Parts]]()
    if min(np.count_nonzero(table.any(axis=axis)) for axis in (0, 1)) <= 1:
        return tuple((k,) for k in range(len(table))), tuple((k,) for k in range(table.shape[1]))
    for axis in (1, 0):
        views = table if axis else table.T
        some = views[views.any(axis=1)]
        parts = bins(some, least, at[axis], into[axis]) if len(at[axis]) else join(some, least)
        whole = tuple((k,) for k in range(len(views)))
        filled = int(added(views.sum(axis=0), parts).astype(bool).sum())
        if filled > 1 and len(some) > 1 and enough(some, parts, least):
            found.append((whole, parts) if axis else (parts, whole))
    return max(found, key=lambda both: len(both[0]) * len(both[1]), default=None)


def ring(pairs: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """Returns the first pair of factors whose cross table closes a ring of those before it; None if none does.

    Tables without a ring leave open how often each combination of all their factors occurs; three tables of three factors may
    tell that one row has it.
    """
    trees = list[set[str]]()
    for row, other in pairs:
        touched = [tree for tree in trees if row in tree or other in tree]
        if row == other or any({row, other} <= tree for tree in touched):
            return row, other
        trees = [tree for tree in trees if tree not in touched] + [{row, other}.union(*touched)]
    return None
