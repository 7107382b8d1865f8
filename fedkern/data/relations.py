"""Finds sums of two or three columns that are the same in many rows: doses given as planned, an age less two spans of years.

Two or three columns depend on each other if their differences between drawn rows, one more than columns, do. If half of all rows
share a value of the sum, a few draws find it; if all do but two, so does one of three draws that share no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

MOST_IN_PAIRS, MOST_IN_THREES = 2_000, 100  # columns, of which those of many different values come first
SAME = 1e-9  # of the parts of a sum: rounding
FEWEST = 8  # rows: of fewer all but two may share a value by chance
DRAWS = {2: 40, 3: 80}  # of rows, of which half share the value that is looked for
SAMPLE, FIRST = 300, 40  # rows that are looked at before all are
OF_ALL, OF_OTHERS = 0.4, 0.2  # of the rows in a sample; of those that do not have the usual value of each column
DRAWS_OF_FEW, SAMPLE_OF_FEW = 6, 24  # where all rows but a few share it
NEARLY, WHOLE, MOST_PARTS = 0.05, 0.2, 12  # of a variance; of a coefficient that is a whole number; columns with one
BLOCK = 100_000  # numbers that are computed at once
MOST_HELD = 2_000  # sums that half of a sample share, how many are looked at in all rows


class Relation(NamedTuple):
    """Names columns, and tells whether a sum of them is in each row another than in all others."""

    columns: tuple[int, ...]
    off: Mask


class _Planes(NamedTuple):
    """Describes where a sum has one value.

    `columns` (q, s) and their parts `normal` (q, s), a `bound` of these before digits cancelled, and a row with this value,
    `origin`.
    """

    columns: Ints
    normal: Array
    bound: Array
    origin: Array

    def those(self, which: Mask | Ints) -> _Planes:
        """Returns some of the planes."""
        return _Planes(self.columns[which], self.normal[which], self.bound[which], self.origin[which])

    def on(self, rows: Array) -> Mask:
        """Tells (n, q) whether rows (n, d) are on each plane; not if they lack a cell."""
        away = rows[:, self.columns] - self.origin
        is_on: Mask = np.abs((self.normal * away).sum(axis=2)) <= SAME * (self.bound * np.abs(away)).sum(axis=2)
        return is_on


def in_most(n: int, column: Callable[[int, Ints], Array], many: Sequence[bool]) -> list[Relation]:
    """Returns relations of two columns or three, with one value in half of the rows or more.

    Parameters
    ----------
    n : rows
    column : cells of a column, of these rows
    many : whether each has many different values: of two columns one does, and of three two
    """
    if n < FEWEST or not many:
        return []
    random, all_rows = np.random.default_rng(0), np.arange(n)
    rows = random.permutation(n)[:SAMPLE]
    X = np.column_stack([column(j, rows) for j in range(len(many))])
    usual, relations = np.array([_usual(x) for x in X.T]), dict[tuple[tuple[int, ...], bytes], Relation]()
    for size in (2, 3):
        if len(many) < size or sum(many) < size - 1:
            break  # nor are there any of more columns
        draws = np.array([random.choice(len(X), size + 1, replace=False) for _ in range(DRAWS[size])])
        planes = _drawn(X, many, size - 1, draws)
        for few, wanted in ((FIRST, 0), (SAMPLE, size + 2)):
            planes = planes.those(_often(planes, X[:few], usual, wanted))
        for k in range(min(len(planes.normal), MOST_HELD)):
            at = tuple(planes.columns[k].tolist())
            off = _off(np.column_stack([column(j, all_rows) for j in at]), planes, k)
            if off.any() and 2 * np.count_nonzero(off) <= n + 2:
                relations.setdefault((at, off.tobytes()), Relation(at, off))
    for at, parts in _added_up(X, many):
        value = np.column_stack([column(j, all_rows) for j in at])
        bound, value = np.abs(value) @ np.abs(parts), value @ parts
        for one in _two_usual(value):
            off = ~(np.abs(value - one) <= SAME * bound)
            relations.setdefault((at, off.tobytes()), Relation(at, off))
    return [relation for relation in relations.values() if relation.off.any()]


def _added_up(X: Array, many: Sequence[bool]) -> Iterator[tuple[tuple[int, ...], Array]]:
    """Yields four columns or more of which one is the sum of the others, each times a whole number, but for rounding.

    They are found by regression of each column on all others.
    """
    at = np.flatnonzero((X.std(axis=0) > 0) & ~np.isnan(X).any(axis=0))
    if not 4 <= len(at) <= min(MOST_IN_THREES, len(X) // 3):
        return
    own, sd, seen = X[:, at] - X[:, at].mean(axis=0), X[:, at].std(axis=0), set[tuple[int, ...]]()
    inverse = np.linalg.inv(own.T @ own / np.outer(sd, sd) / len(X) + 1e-9 * np.eye(len(at)))
    for j in np.flatnonzero((np.diag(inverse) > 1 / NEARLY) & np.asarray(many)[at]):
        parts = inverse[j] / inverse[j, j] * sd[j] / sd
        whole = np.rint(parts)
        in_it = np.flatnonzero(whole)
        if 4 <= len(in_it) <= MOST_PARTS and (np.abs(parts - whole) <= WHOLE).all() and tuple(in_it) not in seen:
            seen.add(tuple(in_it))
            yield tuple(at[in_it].tolist()), whole[in_it]


def _two_usual(value: Array) -> list[float]:
    """Returns the two values that most rows have, of which half have the first; else none."""
    different, at, times = np.unique(np.round(value, 6), return_index=True, return_counts=True)
    first = np.argsort(-times * ~np.isnan(different), kind="stable")[:2]
    if 2 * times[first[0]] < len(value) - 2 or np.isnan(different[first]).any():
        return []
    return [float(value[k]) for k in at[first]]


def in_all_but(weights: Array, column: Callable[[int, Ints], Array], many: Sequence[bool], few: int) -> Iterator[Relation]:
    """Yields relations of two columns or three, those of two first, with one value in all rows but fewer than `few`.

    The rows are those that weigh most.

    Parameters
    ----------
    weights : (n,) of the rows
    column : cells of a column, of these rows
    many : whether each has many different values: of three columns two do
    """
    n, random = len(weights), np.random.default_rng(0)
    if n < FEWEST or few < 2 or not many:
        return
    every, rows = np.arange(n), random.permutation(n)
    rows = rows[np.argsort(-weights[rows], kind="stable")][: max(SAMPLE_OF_FEW, 3 * few)]
    X = np.column_stack([column(j, rows) for j in range(len(many))])
    usual = np.array([_usual(x) for x in X.T])
    for size in (2, 3):
        order = np.concatenate([random.permutation(len(X)) for _ in range(size)])
        draws = order[: min(max(DRAWS_OF_FEW, few), len(order) // (size + 1)) * (size + 1)].reshape(-1, size + 1)
        planes = _screened(_drawn(X, many, 2 if size == 3 else 0, draws), X, len(X) - few + 1)
        for k, at in enumerate(planes.columns):
            own = np.column_stack([column(j, every) for j in at])
            off = _off(own, planes, k)
            on_others = ~off & (own != usual[at]).any(axis=1)
            if off.any() and np.count_nonzero(on_others) >= size + 2:
                yield Relation(tuple(at.tolist()), off)


def _drawn(X: Array, many: Sequence[bool], wanted: int, draws: Ints) -> _Planes:
    """Returns sums, each with the same value in all rows of a draw (t, s + 1), those of the first draw first.

    A sum has as many columns as a draw has differences of rows, `wanted` of them with many different values.
    """
    size = draws.shape[1] - 1
    most = MOST_IN_PAIRS if size == 2 else MOST_IN_THREES
    order = np.sort(np.argsort(~np.asarray(many, dtype=bool), kind="stable")[:most])
    is_many, planes = np.asarray(many, dtype=np.int64)[order], list[_Planes]()
    if len(order) < size or is_many.sum() < wanted:
        return _Planes(np.empty((0, size), np.int64), *(np.empty((0, size)) for _ in range(3)))
    for some in _blocks(len(draws), size * len(order) * (len(order) - 1) // 2):
        rows, usable = draws[some], X[:, order]
        away = usable[rows[:, 1:]] - usable[rows[:, :1]]
        draw, which = _dependent(away, is_many, wanted)
        normal, bound = _normal(away.transpose(0, 2, 1)[draw[:, None], which])
        has_all = np.flatnonzero((np.abs(normal) > SAME * bound).all(axis=1))
        origin = usable[rows[draw, :1], which]
        planes.append(_Planes(order[which], normal, bound, origin).those(has_all))
    return _Planes(*(np.concatenate(part) for part in zip(*planes)))


def _blocks(n: int, each: int) -> Iterator[slice]:
    """Returns slices of n, so small that arrays of `each` numbers for every item stay in a processor's cache."""
    step = max(1, BLOCK // max(each, 1))
    return (slice(start, start + step) for start in range(0, n, step))


def _dependent(away: Array, is_many: Ints, wanted: int) -> tuple[Ints, Ints]:
    """Returns the draw (q,), in order, and the columns (q, s) of (t, s, d) whose determinant, with s - 1 before them, is 0.

    None is 0 itself, and `wanted` have many different values.
    """
    usable = (away != 0).any(axis=1) & ~np.isnan(away).any(axis=1)
    one, other = np.nonzero(np.tri(away.shape[2], k=-1, dtype=bool))  # pairs, by the later one
    both, many = usable[:, other] & usable[:, one], is_many[other] + is_many[one]
    if away.shape[1] == 2:
        left, right = away[:, 0, other] * away[:, 1, one], away[:, 1, other] * away[:, 0, one]
        near = (np.abs(left - right) <= SAME * (np.abs(left) + np.abs(right))) & both & (many >= wanted)
        draw, pair = np.nonzero(near)
        return draw, np.column_stack([other[pair], one[pair]])
    left = away[:, [1, 2, 0]][..., other] * away[:, [2, 0, 1]][..., one]
    right = away[:, [2, 0, 1]][..., other] * away[:, [1, 2, 0]][..., one]
    minors, bounds = left - right, np.abs(left) + np.abs(right)
    draws, which = list[Ints](), list[Ints]()
    for k in range(2, away.shape[2]):
        own, before = away[:, None, :, k], k * (k - 1) // 2
        near = np.abs(own @ minors[..., :before]) <= SAME * (np.abs(own) @ bounds[..., :before])
        draw, pair = np.nonzero(near[:, 0] & both[:, :before] & usable[:, k, None] & (many[:before] + is_many[k] >= wanted))
        draws.append(draw)
        which.append(np.column_stack([other[pair], one[pair], np.full(len(pair), k)]))
    draw = np.concatenate(draws)
    in_order = np.argsort(draw, kind="stable")
    return draw[in_order], np.concatenate(which)[in_order]


def _normal(away: Array) -> tuple[Array, Array]:
    """Returns the parts (q, s) of columns (q, s, s) in a sum that does not change, and a bound of these.

    Both come from those s - 1 of the rows in which they are farthest from 0.
    """
    if away.shape[1] == 2:
        every = np.stack([np.stack([away[:, 1, r], -away[:, 0, r]], axis=1) for r in (0, 1)])
        bounds = np.abs(every)
    else:
        rows = ((0, 1), (0, 2), (1, 2))
        left = np.stack([away[:, [1, 2, 0], r] * away[:, [2, 0, 1], s] for r, s in rows])
        right = np.stack([away[:, [2, 0, 1], r] * away[:, [1, 2, 0], s] for r, s in rows])
        every, bounds = left - right, np.abs(left) + np.abs(right)
    best, each = np.abs(every).min(axis=2).argmax(axis=0), np.arange(len(away))
    return every[best, each], bounds[best, each]


def _screened(planes: _Planes, rows: Array, wanted: int) -> _Planes:
    """Returns the planes on which at least `wanted` of these rows are."""
    hits, left = np.zeros(len(planes.normal), dtype=np.int64), len(rows)
    for some in _blocks(len(rows), planes.normal.size):
        hits, left = hits + planes.on(rows[some]).sum(axis=0), left - len(rows[some])
        if not (alive := hits + left >= wanted).all():
            planes, hits = planes.those(alive), hits[alive]
    return planes


def _often(planes: _Planes, rows: Array, usual: Array, wanted: int) -> Mask:
    """Tells (q,) whether many of the rows are on each plane, and many of those without each column's usual value.

    A line through (0, 0) is no relation of two columns that are mostly 0.
    """
    every, others, on_others = (np.zeros(len(planes.normal), dtype=np.int64) for _ in range(3))
    for some in _blocks(len(rows), planes.normal.size):
        on, other = planes.on(rows[some]), (rows[some] != usual)[:, planes.columns].any(axis=2)
        every, others, on_others = every + on.sum(axis=0), others + other.sum(axis=0), on_others + (on & other).sum(axis=0)
    enough: Mask = (every >= OF_ALL * len(rows)) & (on_others >= np.maximum(OF_OTHERS * others, wanted))
    return enough


def _off(X: Array, planes: _Planes, k: int) -> Mask:
    """Tells (n,) whether each row is not on the plane of number k; the rows have its columns."""
    away = X - planes.origin[k]
    is_off: Mask = ~(np.abs(away @ planes.normal[k]) <= SAME * (np.abs(away) @ planes.bound[k]))
    return is_off


def _usual(x: Array) -> float:
    """Returns the most frequent value."""
    different, times = np.unique(x[~np.isnan(x)], return_counts=True)
    return float(different[times.argmax()]) if len(different) else np.nan
