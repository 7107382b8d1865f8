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

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..privacy.sketch import Sketch

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Parts = tuple[tuple[int, ...], ...]  # of cells; each cell is in one of them


def join(counts: ArrayLike, least: ArrayLike, *, ordered: int = 0, into: int = 0, none: bool = False) -> Parts:
    """Joins cells until no part has few rows.

    Parameters
    ----------
    counts : (cells,) or (views, cells); a part needs enough rows in each view, unless all of its cells are empty in all
    least : rows of a part, or (views,): `rows_per_value` of the level; `rows` where sums over a part's rows are told
    ordered : the number of first cells of which neighbours alone join, as bins do; cells behind them are in no order
    into : the cell, the same at all clients, that takes those which are too few together; of ordered cells the outer ones join
        towards it
    none : whether a part may have no rows in some views

    Returns
    -------
    the parts, by their first cells. Where even all cells together are too few they are one part, and `enough` says so

    Examples
    --------
    >>> from fedkern.disclosure.cells import join
    >>> join([40, 2, 0, 30], 5), join([3, 4, 1, 9, 12, 3, 2], 5, ordered=6, into=4)
    (((0, 1), (2,), (3,)), ((0, 1), (2, 3), (4, 5, 6)))
    """
    views = np.atleast_2d(np.asarray(counts, np.int64))
    filled = np.count_nonzero(views, axis=0) > 0
    single = len(views) == 1

    def fits(cells: Sequence[int]) -> bool:
        # Of one view it is known that no cell which has joined is empty: each has one row at least.
        known = int(filled[list(cells)].sum())
        known = known if single and known > 1 else 0
        rows = views[:, list(cells)].sum(axis=1)
        fit = rows >= np.asarray(least) + known
        return not rows.any() or bool((fit | (none & (rows == 0))).all())

    parts, few = list[list[int]](), list[int]()
    for side in (range(into), range(ordered - 1, into, -1)) if ordered else ():
        run = list[int]()
        for cell in side:
            run.append(cell)
            if fits(run):
                parts.append(run)
                run = []
        few += run
    if few:
        few.append(into)
    for cell in [*([] if few or not ordered else [into]), *range(ordered, views.shape[1])]:
        if fits([cell]):
            parts.append([cell])
        else:
            few.append(cell)
    parts.sort(key=lambda part: (0 < ordered <= part[0], min(abs(cell - into) for cell in part)))
    while few and parts and not fits(few):
        few += parts.pop(0)
    return _sorted([*parts, *([few] if few else [])])


def _sorted(parts: Sequence[Sequence[int]]) -> Parts:
    return tuple(sorted(tuple(sorted(part)) for part in parts))


def enough(counts: ArrayLike, parts: Parts, least: ArrayLike, *, none: bool = False) -> bool:
    """Tells whether each part has enough rows in each view, or none in any; `none`: or in this one. Else no count is told."""
    rows = added(np.atleast_2d(np.asarray(counts, np.int64)), parts)
    fit = (rows >= np.reshape(least, (-1, 1))) | (none & (rows == 0))
    return bool((fit.all(axis=0) | ~rows.any(axis=0)).all())


def added(counts: ArrayLike, parts: Parts) -> Ints:
    """Returns (.., parts) the counts (.., cells) of parts."""
    own = np.asarray(counts, np.int64)
    return np.stack([own[..., list(part)].sum(axis=-1) for part in parts], axis=-1)


def common(*partitions: Parts) -> Parts:
    """Returns the finest parts that are unions of parts of each partition: what all clients tell can be added over these."""
    found = list[set[int]]()
    for part in (part for partition in partitions for part in partition):
        touched = [one for one in found if not one.isdisjoint(part)]
        found = [one for one in found if one.isdisjoint(part)] + [set(part).union(*touched)]
    return _sorted([sorted(one) for one in found])


def once(parts: Parts, counts: ArrayLike, earlier: Parts, told: ArrayLike, least: int) -> Parts | None:
    """Coarsens the parts of a column of which counts were told before, on these rows or on most of them; None: nothing is told.

    No part is finer than what was told, and each has changed by enough rows, or not at all: differences are told, too.

    Parameters
    ----------
    parts, counts : (.., cells) of now
    earlier, told : (.., parts) of the last `describe` on this data, from its holder's account; of other bins `in_bins`

    Examples
    --------
    >>> from fedkern.disclosure.cells import once
    >>> now = ((0, 2), (1,), (3,))
    >>> once(now, [30, 9, 1, 20], ((0,), (1,), (2,), (3,)), [30, 9, 0, 12], 5)
    ((0, 1, 2, 3),)
    """
    parts, before = common(parts, earlier), np.atleast_2d(np.asarray(told, np.int64))
    while True:
        owns = [[k for k, one in enumerate(earlier) if set(one) <= set(part)] for part in parts]
        change = np.abs(added(np.atleast_2d(np.asarray(counts, np.int64)), parts) - added(before, _sorted(owns)))
        few = (change < least).any(axis=0) & change.any(axis=0)
        if not few.any():
            return parts
        if len(parts) == 1:
            return None
        beside = min(int(few.argmax()), len(parts) - 2)
        parts = _sorted([*parts[:beside], (*parts[beside], *parts[beside + 1]), *parts[beside + 2 :]])


def in_bins(inner: ArrayLike, before: ArrayLike, earlier: Parts, told: ArrayLike) -> tuple[Parts, Ints]:
    """Returns what was told of bins with other ends, as parts of the bins of now, and their counts: ends that both have remain.

    Parameters
    ----------
    inner, before : inner ends of now, and of then; the last cell of each is that of missing ones
    earlier, told : (parts,)

    Examples
    --------
    >>> from fedkern.disclosure.cells import in_bins
    >>> in_bins([10, 25, 30], [10, 20, 30], ((0,), (1,), (2, 3), (4,)), [7, 8, 20, 5])
    (((0,), (1, 2, 3), (4,)), array([ 7, 28,  5]))
    """
    both = np.intersect1d(inner, before)
    now, then = ([0, *np.searchsorted(both, ends, "right").tolist(), len(both) + 1] for ends in (inner, before))
    shared = common(tuple((k,) for k in range(len(both) + 2)), tuple(tuple({then[cell] for cell in part}) for part in earlier))
    counts = [sum(int(n) for part, n in zip(earlier, np.asarray(told)) if then[part[0]] in one) for one in shared]
    return _sorted([[cell for cell, at in enumerate(now) if at in one] for one in shared]), np.array(counts, np.int64)


def cross(
    counts: ArrayLike, least: int, *, ordered: tuple[int, int] = (0, 0), into: tuple[int, int] = (0, 0)
) -> tuple[Parts, Parts] | None:
    """Returns the parts of rows, and of columns, by which a cross table may be told; None if by none.

    The cells of each factor are the parts in which it is told by itself, that of its missing cells among them. One factor joins,
    the other stays as it is: a cell that is hidden then is one of at least two rows and two columns whose sums are known, each of
    enough rows, and takes as many values. An empty cell counts as few, unless its factor's part is empty: it says something of
    all rows of a group.

    Parameters
    ----------
    counts : (rows, columns)
    ordered, into : of the rows, and of the columns, as `join` takes them

    Examples
    --------
    >>> from fedkern.disclosure.cells import cross
    >>> cross([[20, 30, 2], [25, 28, 9]], 5), cross([[20, 3], [25, 0]], 5)
    ((((0,), (1,)), ((0, 2), (1,))), None)
    """
    table, found = np.asarray(counts, np.int64), list[tuple[Parts, Parts]]()
    for axis in (1, 0):
        views = table if axis else table.T
        parts = join(views[views.any(axis=1)], least, ordered=ordered[axis], into=into[axis])
        whole = tuple((k,) for k in range(len(views)))
        filled = int(added(views.sum(axis=0), parts).astype(bool).sum())
        if filled > 1 and views.any(axis=1).sum() > 1 and enough(views[views.any(axis=1)], parts, least):
            found.append((whole, parts) if axis else (parts, whole))
    return max(found, key=lambda both: len(both[0]) * len(both[1]), default=None)


def ring(pairs: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """Returns the first pair of factors whose cross table closes a ring of those before it; None if none does.

    Tables without a ring leave open how often each combination of all their factors occurs; three tables of three factors may
    tell that one row has it.
    """
    trees = list[set[str]]()
    for one, other in pairs:
        touched = [tree for tree in trees if one in tree or other in tree]
        if one == other or any({one, other} <= tree for tree in touched):
            return one, other
        trees = [tree for tree in trees if tree not in touched] + [{one, other}.union(*touched)]
    return None


def few_apart(now: Mapping[str, Sketch], earlier: Mapping[str, Sketch], least: int) -> list[tuple[str, str]]:
    """Returns the sets of rows, of a `describe` and of another job, that differ by few rows: both counts tell of these alone.

    Of each column a `describe` has the rows of each part, and a job those of each level, or of each of two values, that it uses.
    Sets of the same cells are not compared: by all rows that count it is known how many a job has left out. That says also how
    many rows at least lack some cell: so a set has to differ by so many more.

    Parameters
    ----------
    now, earlier : the cells of a set -> the sketch of its rows, of one column
    """
    pairs = [(one, other, mine.apart(theirs)) for one, mine in now.items() for other, theirs in earlier.items() if one != other]
    return [(one, other) for one, other, apart in pairs if apart is not None and 0 < apart < 2 * least - 1]
