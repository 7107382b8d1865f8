"""Finds rows that a file's columns single out: sums over all of its rows are then sums over these few.

A sum of w x z over rows, with x a column that is 0 but in a few rows, is a sum over these few; and whoever has sums may add
columns and take a constant from them. So the question is whether any sum of columns is (nearly) the same in all rows but a few,
and whether two columns differ from a value of theirs together in a few. Rows count by their effective number, (sum w)^2 / sum
w^2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..models.encoding import Column
from ..models.weighing import effective
from . import relations
from .cells import MOST, Cells, Text, labels
from .incomplete import marked
from .table import Table

Array = NDArray[np.float64]
_Part = tuple[str, np.ndarray, int | None]  # a column as it is multiplied: its name, values, and of which level
_Factor = tuple[tuple[str, ...], NDArray[np.bool_]]  # columns, and whether a sum of them, less a constant, is not 0 in each row

BLOCK = 1 << 16
MOST_PAIRED = 2e8  # cells of columns of two values that are looked at in pairs
MOST_SUMMED = 300  # coefficients whose sums are looked at: of more no client tells more than each column's own
HEAVY = 0.9  # of a sum of squares: a row that has more is told with an error of a third of a standard deviation, or less
ALONE = 1e-3  # of a sum of squares, that all rows but a few may have where these are alone in it
STARTS, STEPS = 500, 30  # of the search for sums of columns
MOST_MULTIPLIED = 5e9  # products of cells, for sums among the rows with a value: of the rarer values first
MOST_DIFFERENT, MOST_PARTS, MOST_PATTERNS = 12, 40, 5_000  # values of a column; such columns and levels; patterns of them
OF_FEW = 3  # rows a coefficient, up to which sums of few columns are looked at by themselves
HELD_AT_ONCE = 1 << 20  # numbers of searches that go on side by side
HELD = 2e7  # numbers of rows and columns that are held in memory for it
ENOUGH_DIGITS = 1e-9  # of an eigenvalue of cross-products of columns of length 1: leverages are then right to 1e-5
TOGETHER, MOST_TOGETHER = 0.5, 100  # a correlation of two columns whose sums are looked at for a far row, of so many columns
NAMED = 0.05  # of the largest part of a sum of columns, in standard deviations


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
    """Returns the rows that columns single out; those of one column come first, then the fewest.

    They are fewer than `least` rows that a column singles out, or fewer than `together` rows that have a value of each of two
    columns; or fewer than `together` that have a value of one column, and of another column not the number that all others with
    this value have. If no such rows exist, those that a sum of columns singles out are sought; and if none of these, a row that
    has nearly all of the squares of a column.

    Parameters
    ----------
    columns : that are looked at, and whether each is numeric
    weights : (n,) of the rows, 0 of those that do not count; a missing cell is no value
    filled : columns whose missing cells have been filled, as a column beside them marks
    search : whether more than each column alone is looked at
    """
    if least <= 0 or not (weights > 0).any():
        return ()
    singled_out, pairs, n = list[Rare](), list[tuple[str, NDArray[np.bool_]]](), np.count_nonzero(weights)
    numbers = list[tuple[str, np.ndarray]]()
    every = [_values(table.columns[column.name], column) for column in columns]
    for column, values in zip(columns, every):
        if column.kind == "categorical":
            few, two = _of_levels(values, weights, least), _levels(values, weights)
        else:
            there = np.where(table.columns[marked(column.name)] == 1, np.nan, values) if column.name in filled else values
            few, two = _of_numbers(values, weights, least), _two_valued(there, weights)
        if few:
            singled_out.append(Rare((column.name,), few))
            continue
        before = len(pairs)
        pairs += [(column.name, one) for one in two if (len(pairs) + 1) * n < MOST_PAIRED]
        if column.kind == "numeric" and len(pairs) == before:
            numbers.append((column.name, values))
    singled_out = [one._replace(wanted=least) for one in singled_out]
    if not search:
        return tuple(sorted(singled_out, key=lambda one: one.n_rows))
    # Two columns: the cheap looks come first, and the search for sums only if they have shown nothing.
    one_column = list(_factors(pairs, numbers, weights, np.flatnonzero(weights > 0))) if together > 0 else []
    both = [*_of_pairs(pairs, weights[weights > 0], least, together), *_of_products(one_column, numbers, weights, together)]
    singled_out += (one._replace(wanted=together if one.n_rows < together else max(least, together)) for one in both)
    # A sum of all columns, and where rows are few, or columns many, of two or three of them.
    if not singled_out and (summed := _of_sums(columns, every, weights, least)) is not None:
        singled_out.append(summed._replace(wanted=least, far=summed.far or _is_far(summed, columns, every, weights)))
    parts = [] if singled_out else _different(_parts(columns, every, relations.MOST_IN_PAIRS), 2)
    told = together <= 1 and np.count_nonzero(weights > 0) <= 1 + len(parts)  # X'X is all rows, up to a rotation: that is said
    if not singled_out and not told:
        singled_out += (
            one._replace(wanted=least) for one in _of_few_columns((), parts, weights, np.flatnonzero(weights > 0), least)
        )
    if not singled_out and together > 1:
        singled_out += (one._replace(wanted=together) for one in _of_patterns(columns, every, weights, together))
        singled_out += (one._replace(wanted=together) for one in _of_two_numbers(columns, every, weights, together))
    if not singled_out and together > 1:
        factors = [*(((name,), mask) for name, mask in one_column), *_of_nested(pairs), *_of_relations(columns, every, weights)]
        singled_out += (one._replace(wanted=together) for one in _of_sums_among(columns, every, factors, weights, together))
    if not singled_out and least > 1:
        far = (c.name for c, values in zip(columns, every) if c.kind != "categorical" and heavy(values, weights))
        singled_out += (Rare((name,), 1, far=True) for name in far)
    return tuple(sorted(singled_out, key=lambda one: (len(one.columns), one.n_rows)))


class Standardised(NamedTuple):
    """Holds the columns that are looked at: (n, 1 + d) 1 and one column a level, of the rows that weigh something.

    A missing cell is at the mean; `names` and `scale` (d,) have each column's name and divisor.
    """

    X: Array
    names: tuple[str, ...]
    scale: Array


def standardised(table: Table, columns: Sequence[Column], weights: Array, most: float) -> Standardised | None:
    """Returns the standardised columns; None if their cross-products would take more than `most` multiplications."""
    every = [_values(table.columns[column.name], column) for column in columns]
    design, counted = _design(columns, every, weights), weights > 0
    d = 1 + len(design.parts)
    if d > MOST_SUMMED or np.count_nonzero(counted) * d * d > most:
        return None
    X = np.concatenate([np.zeros((0, d)), *design._replace(weights=counted.astype(np.float64)).blocks()])
    return Standardised(X, tuple(name for name, _, _ in design.parts), design.scale)


def _values(cells: Cells, column: Column) -> np.ndarray:
    """Returns a column's numbers (n,), or the number of each cell's level: -1 for an empty cell, or a level that is not
    declared.
    """
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
    own = np.asarray(values, np.float64)
    return np.where(np.abs(own) <= MOST, own, np.nan)


def _faults(values: np.ndarray) -> bool:
    """Tells whether some cell is too large, block by block: a file may be larger than memory."""
    return any(not (np.abs(values[begin : begin + BLOCK]) <= MOST).all() for begin in range(0, len(values), BLOCK))


def _few(sums: Array, squares: Array, least: int) -> int:
    """Returns the smallest effective number below `least`, rounded up; 0 if none is below."""
    there = squares > 0
    numbers = sums[there] ** 2 / squares[there]
    few = numbers[numbers < least - 1e-9]
    return int(np.ceil(few.min() - 1e-9)) if len(few) else 0


def _of_levels(codes: NDArray[np.int64], weights: Array, least: int) -> int:
    """Returns the smallest effective number of rows of a level, or 0 if none is below `least`."""
    sums, squares = (np.asarray(np.bincount(codes + 1, w)[1:], np.float64) for w in (weights, weights**2))
    return _few(sums, squares, least)


def _of_numbers(values: np.ndarray, weights: Array, least: int) -> int:
    """Returns in how many rows a number differs from the one in all others; 0 if these are `least` or more."""
    equal = bool(((weights == 0) | (weights == weights.max())).all())
    usual, sums, squares = _usual(values, weights), 0.0, 0.0
    for begin in range(0, len(values), BLOCK):
        part = np.asarray(values[begin : begin + BLOCK], np.float64)
        others = np.where((part != usual) & ~np.isnan(part), weights[begin : begin + BLOCK], 0.0)
        sums, squares = sums + float(others.sum()), squares + float((others**2).sum())
        if equal and squares > 0 and sums**2 / squares >= least:
            return 0
    return _few(np.array([sums]), np.array([squares]), least)


def _usual(values: np.ndarray, weights: Array) -> float:
    """Returns the most frequent value of a few dozen rows: if all but a few rows share a value, it is this."""
    rows = np.flatnonzero(weights[:BLOCK] > 0) if (weights[:BLOCK] > 0).any() else np.flatnonzero(weights > 0)
    head = np.asarray(values[rows[:100]], np.float64)
    different, times = np.unique(head[~np.isnan(head)], return_counts=True)
    return float(different[times.argmax()]) if len(different) else np.nan


def _levels(codes: NDArray[np.int64], weights: Array) -> Iterator[NDArray[np.bool_]]:
    """Yields, for each level that occurs, whether each row that counts has it."""
    own = codes[weights > 0]
    yield from (own == code for code in np.unique(own[own >= 0]))


def _two_valued(values: np.ndarray, weights: Array) -> Iterator[NDArray[np.bool_]]:
    """Yields, for a column of two numbers, whether it is the larger one in each row that counts; nothing for others."""
    for begin in range(0, len(values), BLOCK):
        part = np.asarray(values[begin : begin + BLOCK], np.float64)
        if len(np.unique(part[~np.isnan(part)])) > 2:
            return
    own = np.asarray(values[weights > 0], np.float64)
    missing = np.isnan(own)
    if missing.all():
        return
    low, high = np.nanmin(own), np.nanmax(own)
    if low < high and bool(((own == low) | (own == high) | missing).all()):
        yield own == high
        if missing.any():
            yield own == low


def _of_pairs(columns: Sequence[tuple[str, NDArray[np.bool_]]], weights: Array, least: int, together: int) -> Iterator[Rare]:
    """Yields pairs of columns of which three combinations occur, one of them in few rows.

    Few are fewer than `least` rows, or with any number of combinations fewer than `together`: the cross-product of the two is a
    sum over these.
    """
    if len(columns) < 2:
        return
    first = _combined(columns, weights)
    cells = [first, first * weights[0] if (weights == weights[0]).all() else _combined(columns, weights**2)]
    with np.errstate(invalid="ignore", divide="ignore"):
        number = np.where(cells[1] > 1e-12, cells[0] ** 2 / cells[1], np.inf)
    smallest, occur = number.min(axis=0), np.isfinite(number).sum(axis=0)
    short = (smallest < together - 1e-9) | ((occur == 3) & (smallest < least - 1e-9))
    for i, j in zip(*np.nonzero(np.triu(short, 1))):
        if columns[i][0] != columns[j][0]:
            yield Rare((columns[i][0], columns[j][0]), int(np.ceil(smallest[i, j] - 1e-9)))


def _of_products(
    factors: Sequence[tuple[str, NDArray[np.bool_]]], numbers: Sequence[tuple[str, np.ndarray]], weights: Array, together: int
) -> Iterator[Rare]:
    """Yields a value of one column and a number that is the same in all rows with it but fewer than `together`; or two numbers.

    The product of both, less the value that most rows have, is a sum over these rows.
    """
    if together <= 0 or not numbers:
        return
    counted = np.flatnonzero(weights > 0)
    equal = bool((weights[counted] == weights[counted[0]]).all())
    for name, mask in factors:
        rows = counted[mask]
        for other, values in numbers:
            if other != name and len(rows) and (few := _among(values, rows, weights, together, equal)):
                yield Rare((name, other), few)


def _factors(
    pairs: Sequence[tuple[str, NDArray[np.bool_]]],
    numbers: Sequence[tuple[str, np.ndarray]],
    weights: Array,
    counted: np.ndarray,
) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yields whether, in each row that is counted, a column less a constant is not 0.

    The constant is each of two values, or the number that most rows have.
    """
    for name, one in pairs:
        yield from ((name, one), (name, ~one))
    for name, values in numbers:
        own, usual = np.asarray(values[counted], np.float64), _usual(values, weights)
        one = (own != usual) & ~np.isnan(own)
        if 2 * np.count_nonzero(one) <= len(counted):
            yield name, one


def _among(values: np.ndarray, rows: np.ndarray, weights: Array, least: int, equal: bool) -> int:
    """Returns in how many of these rows a number differs from the one in all others of them; 0 if these are `least` or more."""
    head = np.asarray(values[rows[:100]], np.float64)
    usual = _usual(head, np.ones(len(head)))
    if equal and np.count_nonzero((head != usual) & ~np.isnan(head)) >= least:
        return 0
    return _of_numbers(np.asarray(values[rows], np.float64), weights[rows], least)


def _combined(columns: Sequence[tuple[str, NDArray[np.bool_]]], weights: Array) -> Array:
    """Returns the weights (4, k, k) of the rows that have both, the one, the other and none of two columns."""
    both = np.zeros((len(columns), len(columns)))
    for begin in range(0, len(weights), BLOCK):
        part = np.column_stack([column[begin : begin + BLOCK] for _, column in columns]).astype(np.float64)
        both += (part * weights[begin : begin + BLOCK, None]).T @ part
    ones, total = np.diag(both), float(weights.sum())
    every = np.stack([both, ones[:, None] - both, ones[None, :] - both, total - ones[:, None] - ones[None, :] + both])
    return np.where(np.abs(every) > 1e-9 * total / max(len(weights), 1), every, 0.0)


def heavy(values: np.ndarray, weights: Array) -> bool:
    """Tells whether one row has nearly all of the sum of squares of a column about its mean."""
    centre, moments, ends = _middle(_numbers(values[:BLOCK], None)), np.zeros(3), [0.0, 0.0, 0.0]
    for begin in range(0, len(weights), BLOCK):
        own, w = _numbers(values[begin : begin + BLOCK], None) - centre, weights[begin : begin + BLOCK]
        there = (w > 0) & ~np.isnan(own)
        own, w = own[there], w[there]
        moments += [w.sum(), (w * own).sum(), (w * own * own).sum()]
        for at in {int(own.argmin()), int(own.argmax())} if len(own) else ():
            if w[at] * own[at] ** 2 > ends[0]:
                ends = [float(w[at] * own[at] ** 2), float(w[at]), float(own[at])]
    total, first, second = moments
    squares = second - first**2 / total if total > 0 else 0.0
    return bool(squares > 0 and ends[1] * (ends[2] - first / total) ** 2 > HEAVY * squares)


# Sums of columns: those that a few rows are alone in are found from the rows of which the columns tell most.


class _Design(NamedTuple):
    """Holds columns as they are multiplied: one each, or one a level, less its mean and over its standard deviation."""

    parts: tuple[_Part, ...]
    weights: Array
    centre: Array
    scale: Array

    def blocks(self) -> Iterator[Array]:
        """Yields rows (b, 1 + d), times the roots of their weights; a missing cell is at the mean."""
        for begin in range(0, len(self.weights), BLOCK):
            w = self.weights[begin : begin + BLOCK]
            rows = np.flatnonzero(w > 0)
            Z = np.ones((len(rows), 1 + len(self.parts)))
            for j, (_, values, level) in enumerate(self.parts):
                part = values[begin : begin + BLOCK][rows]
                Z[:, 1 + j] = (_numbers(part, level) - self.centre[j]) / self.scale[j]
            yield np.nan_to_num(Z) * np.sqrt(w[rows])[:, None]


def _numbers(part: np.ndarray, level: int | None) -> Array:
    return np.asarray(part, np.float64) if level is None else (part == level).astype(np.float64)


def _of_sums(columns: Sequence[Column], every: Sequence[np.ndarray], weights: Array, least: int) -> Rare | None:
    """Returns the sum of columns that is nearly the same in all rows but the fewest, if these are fewer than `least`."""
    design = _design(columns, every, weights)
    d = 1 + len(design.parts)
    if d == 1 or d > MOST_SUMMED:
        return None
    gram = np.zeros((d, d))
    for Z in design.blocks():
        gram += Z.T @ Z
    values, vectors = np.linalg.eigh(gram)
    kept = values > 1e-12 * values[-1]
    root = vectors[:, kept] / np.sqrt(values[kept])  # Z root has orthonormal columns
    rows, rank = effective(weights), root.shape[1]
    least = min(least, int((rows - rank) // 2))  # of few rows a sum is always the same, or nearly, in all but a few more
    if rows < 2 * rank or least < 2:
        return None
    turned = _turned(design, root)
    # Rows that are alone in a sum have a high leverage, so the search begins at such rows.
    starts = _high_leverage(turned, least)
    best: tuple[int, Array] | None = None
    step = max(1, HELD_AT_ONCE // max(min(len(weights), BLOCK), least * rank))
    for begin in range(0, len(starts), step):
        for n_alone, direction in zip(*_alone(turned, np.array(starts[begin : begin + step]), least)):
            if n_alone < least and (best is None or n_alone < best[0]):
                best = int(n_alone), root @ direction
    if best is None:
        return _far_apart(design, gram)
    parts = np.abs(best[1][1:])
    names = [design.parts[j][0] for j in np.flatnonzero(parts > NAMED * parts.max())]
    return Rare(tuple(dict.fromkeys(names)), best[0])


def _is_far(one: Rare, columns: Sequence[Column], every: Sequence[np.ndarray], weights: Array) -> bool:
    """Tells whether rows that one column singles out are a lone cell far from all others: a slip of typing, mostly."""
    if one.n_rows > 1 or len(one.columns) > 1:
        return False
    found = ((column, values) for column, values in zip(columns, every) if column.name == one.columns[0])
    return any(column.kind != "categorical" and heavy(values, weights) for column, values in found)


def _of_sums_among(
    columns: Sequence[Column],
    every: Sequence[np.ndarray],
    factors: Collection[_Factor],
    weights: Array,
    together: int,
) -> Iterator[Rare]:
    """Yields a value of one column, or of a sum of two or three, with a sum of others that nearly all rows with it share.

    The other rows are fewer than `together`: insulin only where there is diabetes, and among those who were transferred one with
    diabetes and without; a dose that was not given as planned to one of them.
    """
    work, counted, parts = 0.0, np.flatnonzero(weights > 0), _different(_parts(columns, every), MOST_DIFFERENT)
    for names, mask in sorted(factors, key=lambda factor: np.count_nonzero(factor[1])):
        rows = counted[mask]
        work += len(rows) * len(columns) ** 2
        # The smallest groups came first, for the work is bounded.
        if work > MOST_MULTIPLIED:
            return
        if not len(rows):
            continue
        for more, other in factors:
            if len(more) > 1 and other is not mask and 0 < (few := effective(weights[rows[other[mask]]])) < together - 1e-9:
                yield Rare(tuple(dict.fromkeys((*names, *more))), int(np.ceil(few - 1e-9)))
        for (name, values, level), _ in parts if len(names) > 1 else ():
            if few := _of_numbers(_numbers(values[rows], level), weights[rows], together):
                yield Rare(tuple(dict.fromkeys((*names, name))), few)
        at = [k for k, column in enumerate(columns) if len(names) > 1 or column.name != names[0]]
        one = _of_sums([columns[k] for k in at], [np.asarray(every[k][rows]) for k in at], weights[rows], together)
        if one is not None and not one.far:
            yield Rare(tuple(dict.fromkeys((*names, *one.columns))), one.n_rows)
        else:
            others = [part for part in parts if len(names) > 1 or part[0][0] != names[0]]
            yield from _of_few_columns(names, others, weights, rows, together)


def _of_few_columns(
    names: tuple[str, ...],
    parts: Sequence[tuple[_Part, bool]],
    weights: Array,
    rows: np.ndarray,
    least: int,
) -> Iterator[Rare]:
    """Yields a sum of two columns or three that is the same in all of these rows but fewer than `least`.

    The rows have something `names` in common. Such sums are sought if rows are too few for sums of all columns, or columns too
    many.
    """
    if OF_FEW * (1 + len(parts)) <= len(rows) and len(parts) < MOST_SUMMED:
        return

    def column(j: int, at: NDArray[np.int64]) -> Array:
        return _numbers(parts[j][0][1][rows[at]], parts[j][0][2])

    for relation in relations.in_all_but(weights[rows], column, [many for _, many in parts], least):
        few = effective(weights[rows[relation.off]])
        if 0 < few < least - 1e-9:
            yield Rare(tuple(dict.fromkeys((*names, *(parts[j][0][0] for j in relation.columns)))), int(np.ceil(few - 1e-9)))
            return


def _of_nested(columns: Sequence[tuple[str, NDArray[np.bool_]]]) -> Iterator[_Factor]:
    """Yields two columns of two values with three combinations.

    A sum of them is not 0 in one of these only: in intensive care and not on ventilation.
    """
    if len(columns) < 2:
        return
    n, seen = len(columns[0][1]), set[bytes]()
    occur = _combined(columns, np.ones(n)) > 0
    for i, j in zip(*np.nonzero(np.triu(occur.sum(axis=0) == 3, 1))):
        (one, a), (other, b) = columns[i], columns[j]
        opposite = (~a & ~b, ~a & b, a & ~b, a & b)[int(occur[:, i, j].argmin())]
        if one != other and 2 * np.count_nonzero(opposite) <= n and opposite.tobytes() not in seen:
            seen.add(opposite.tobytes())
            yield (one, other), opposite


def _of_relations(columns: Sequence[Column], every: Sequence[np.ndarray], weights: Array) -> list[_Factor]:
    """Returns sums of two columns or three with a value that most rows have, and the rows that count where they have another."""
    at, parts = np.flatnonzero(weights > 0), _different(_parts(columns, every), MOST_DIFFERENT)

    def column(j: int, rows: NDArray[np.int64]) -> Array:
        return _numbers(parts[j][0][1][at[rows]], parts[j][0][2])

    sums = relations.in_most(len(at), column, [many for _, many in parts])
    return [(tuple(dict.fromkeys(parts[j][0][0] for j in one.columns)), one.off) for one in sums]


def _different(parts: Sequence[_Part], most: int) -> list[tuple[_Part, bool]]:
    """Returns each part with whether it has more than `most` different values."""
    return [(part, part[2] is None and not _is_few(part[1], most)) for part in parts]


def _of_patterns(columns: Sequence[Column], every: Sequence[np.ndarray], weights: Array, together: int) -> Iterator[Rare]:
    """Yields patterns of columns of few different values, in fewer than `together` rows, that some sum of their products has to
    itself.

    X'WX tells each such sum: two references of dummy-coded columns, the third of three values. A pattern has a sum to itself if
    its leverage among all that occur is 1.
    """
    few = [at for at, (column, values) in enumerate(zip(columns, every)) if column.kind == "categorical" or _is_few(values)]
    own, there = weights[weights > 0], [np.nan_to_num(np.asarray(every[at][weights > 0], np.float64), nan=np.pi) for at in few]
    if not few:
        return
    # The work is in the number of patterns, not of rows.
    patterns, at = np.unique(np.column_stack(there), axis=0, return_inverse=True)
    if not 1 < len(patterns) <= MOST_PATTERNS:
        return
    at = at.ravel()
    relative = own / own.max()
    # Weighted rows count as their effective number.
    number = np.bincount(at, relative) ** 2 / np.maximum(np.bincount(at, relative**2), 1e-300)
    if number.min() >= together - 1e-9:
        return
    parts = list[Array]()
    for j, k in enumerate(few):
        different = np.unique(patterns[:, j])
        categorical = columns[k].kind == "categorical"
        parts += [(patterns[:, j] == level).astype(np.float64) for level in different] if categorical else [patterns[:, j]]
    if len(parts) > MOST_PARTS:
        return
    linear = [np.ones(len(patterns)), *((part - part.mean()) / (part.std() or 1.0) for part in parts)]
    squares = np.column_stack([linear[i] * linear[j] for i in range(len(linear)) for j in range(i + 1)])
    alone = (_leverage(squares) > 1 - 1e-7) & (number < together - 1e-9)
    if alone.any():
        yield Rare(tuple(columns[k].name for k in few), int(np.ceil(number[alone].min() - 1e-9)))


def _of_two_numbers(columns: Sequence[Column], every: Sequence[np.ndarray], weights: Array, together: int) -> Iterator[Rare]:
    """Yields two columns of numbers that go together, of which a sum of squares and products is 0 in all rows but a few.

    An example is a dose that was given whole, or three quarters of it, and once half.
    """
    at = np.flatnonzero(weights > 0)
    numbers = [k for k, column in enumerate(columns) if column.kind != "categorical"]
    if len(at) > MOST_TOGETHER * 1_000 or len(numbers) > MOST_TOGETHER:
        return
    own = np.column_stack([np.asarray(every[k][at], np.float64) for k in numbers]) if numbers else np.empty((len(at), 0))
    known = ~np.isnan(own)
    # Centred columns of length 1, with 0 for a missing value: their products are correlations.
    own = np.nan_to_num(own - np.nansum(own, axis=0) / np.maximum(known.sum(axis=0), 1))
    lengths = np.sqrt((own**2).sum(axis=0))
    own = own / np.where(lengths > 0, lengths, 1.0)
    r = np.abs(np.triu(own.T @ own, 1))
    pairs = np.argwhere((r > TOGETHER) & (r < 1 - 1e-9))
    # In blocks of pairs, so that memory is bounded.
    step = max(1, BLOCK // (6 * max(len(at), 1)))
    for begin in range(0, len(pairs), step):
        some = pairs[begin : begin + step]
        a, b = own.T[some[:, 0]], own.T[some[:, 1]]
        squares = np.stack([np.ones_like(a), a, b, a * a, a * b, b * b], axis=2)
        squares /= np.linalg.norm(squares, axis=1, keepdims=True)
        may = _may_be_alone(squares)
        for (i, j), those in zip(some[may], squares[may]):
            alone = _leverage(those) > 1 - 1e-6
            if alone.any():
                yield Rare((columns[numbers[i]].name, columns[numbers[j]].name), int(alone.sum()))


def _may_be_alone(squares: Array) -> NDArray[np.bool_]:
    """Tells (q,) whether a row's leverage among columns (q, n, 6) of length 1 may be nearly 1.

    It is judged by their cross-products, at a tenth of the work, if these have digits enough to say that none is.
    """
    values, vectors = np.linalg.eigh(squares.transpose(0, 2, 1) @ squares)
    leverage = ((squares @ vectors) ** 2 / np.maximum(values, ENOUGH_DIGITS)[:, None, :]).sum(axis=2)
    may: NDArray[np.bool_] = (values[:, 0] <= ENOUGH_DIGITS) | ~(leverage.max(axis=1) < 1 - 1e-3)
    return may


def _leverage(columns: Array) -> Array:
    """Returns the leverage (n,) of each row; 1 for one that a sum of the columns (n, d) has to itself."""
    left, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    leverage: Array = (left[:, sizes > 1e-9 * sizes[0]] ** 2).sum(axis=1)
    return leverage


def _is_few(values: np.ndarray, most: int = MOST_DIFFERENT) -> bool:
    """Tells whether a column of numbers has few different values."""
    different = np.unique(np.asarray(values[:BLOCK], np.float64))
    return len(different) <= most and len(np.unique(np.asarray(values, np.float64))) <= most


def _far_apart(design: _Design, gram: Array) -> Rare | None:
    """Returns two columns that go together, and of which one row has nearly all of the sum of squares of some sum: before and
    after.
    """
    numbers = [j for j, (_, _, level) in enumerate(design.parts, 1) if level is None]
    lengths = np.sqrt(np.diag(gram))
    pairs = [
        (i, j, gram[i, j] / (lengths[i] * lengths[j]))
        for at, i in enumerate(numbers[:MOST_TOGETHER])
        for j in numbers[at + 1 : MOST_TOGETHER]
        if lengths[i] > 0 and lengths[j] > 0
    ]
    pairs = [(i, j, r) for i, j, r in pairs if TOGETHER < abs(r) < 1 - 1e-9]
    most = np.zeros(len(pairs))
    for Z in design.blocks() if pairs else ():
        Z = Z / np.where(lengths > 0, lengths, 1.0)
        for k, (i, j, r) in enumerate(pairs):
            share = (Z[:, i] ** 2 + Z[:, j] ** 2 - 2 * r * Z[:, i] * Z[:, j]) / (1 - r * r)  # the largest over all sums
            most[k] = max(most[k], float(share.max(initial=0.0)))
    if not (most > HEAVY).any():
        return None
    i, j, _ = pairs[int(most.argmax())]
    return Rare((design.parts[i - 1][0], design.parts[j - 1][0]), 1, far=True)


def _design(columns: Sequence[Column], every: Sequence[np.ndarray], weights: Array) -> _Design:
    parts = _parts(columns, every)
    total, moments = float(weights.sum()), np.zeros((2, len(parts)))
    centre = np.array([_middle(_numbers(values[:BLOCK], level)) for _, values, level in parts])
    for j, (_, values, level) in enumerate(parts):
        for begin in range(0, len(weights), BLOCK):
            own = np.nan_to_num(_numbers(values[begin : begin + BLOCK], level) - centre[j])
            moments[:, j] += [(weights[begin : begin + BLOCK] * own**power).sum() for power in (1, 2)]
    mean, square = moments / total
    scale = np.sqrt(np.maximum(square - mean**2, 0))
    return _Design(tuple(parts), weights, centre + mean, np.where(scale > 0, scale, 1.0))


def _parts(columns: Sequence[Column], every: Sequence[np.ndarray], most: int = MOST_SUMMED) -> list[_Part]:
    parts = list[_Part]()
    for column, values in zip(columns, every):
        levels = np.unique(values).tolist() if column.kind == "categorical" else [None]
        parts += [(column.name, values, level) for level in levels if level is None or level >= 0]
        if len(parts) >= most:
            break
    return parts


def _middle(values: Array) -> float:
    """Returns a number among those of a column, about which no digits are lost."""
    known = values[~np.isnan(values)]
    if not (half := len(known) // 2):
        return float(known[0]) if len(known) else 0.0
    known.partition((half - 1, half))  # np.median, which takes four times as long, has the same bits
    return float(known[half] if len(known) % 2 else (known[half - 1] + known[half]) / 2)


def _turned(design: _Design, root: Array) -> Callable[[], Iterable[Array]]:
    """Returns the rows as directions, block by block, since thousands of looks at them are made.

    They are kept in memory if they are few.
    """
    if len(design.weights) * root.shape[1] > HELD:
        return lambda: (Z @ root for Z in design.blocks())
    held = [Z @ root for Z in design.blocks()]
    return lambda: held


def _high_leverage(turned: Callable[[], Iterable[Array]], least: int) -> list[Array]:
    """Returns the rows, as directions, of which one at least is in any group of fewer than `least` that are alone in a sum."""
    directions, sizes = list[Array](), list[float]()
    for rows in turned():
        leverage = (rows**2).sum(axis=1)
        for i in np.flatnonzero(leverage > 0.9 / least):
            directions.append(rows[i])
            sizes.append(float(leverage[i]))
    return [directions[i] for i in np.argsort(-np.array(sizes), kind="stable")[:STARTS]]


def _alone(turned: Callable[[], Iterable[Array]], starts: Array, least: int) -> tuple[NDArray[np.int64], Array]:
    """Finds, from each of some rows (k, d), a sum of columns in whose squares `least` - 1 rows have the largest share.

    Rows and sum are chosen by turns. Returns how many rows (k,) are alone in it, and its direction (k, d).
    """
    u, before = np.array([start / np.linalg.norm(start) for start in starts]), np.zeros(len(starts))
    going = np.arange(len(starts))
    for _ in range(STEPS):
        _, rows = _largest(turned, u[going], least - 1)
        u[going] = np.linalg.svd(rows, full_matrices=False)[2][:, 0]
        share = ((rows @ u[going][:, :, None])[..., 0] ** 2).sum(axis=1)  # of all, which are 1
        more = share >= before[going] + 1e-9
        going = going[more]
        if not len(going):
            break
        before[going] = share[more]
    squares, _ = _largest(turned, u, least - 1)
    return (np.cumsum(squares, axis=1) < 1 - ALONE).sum(axis=1) + 1, u


def _largest(turned: Callable[[], Iterable[Array]], u: Array, many: int) -> tuple[Array, Array]:
    """Returns the largest squares (k, many) in each of some sums of columns (k, d), falling, and their rows as directions."""
    squares, rows = np.zeros((len(u), 0)), np.zeros((len(u), 0, u.shape[1]))
    for part in turned():
        own = (part @ u[:, :, None])[..., 0] ** 2
        at = np.argpartition(-own, min(many, own.shape[1]) - 1, axis=1)[:, :many]
        squares = np.concatenate([squares, np.take_along_axis(own, at, axis=1)], axis=1)
        rows = np.concatenate([rows, part[at]], axis=1)
        first = np.argsort(-squares, axis=1, kind="stable")[:, :many]
        squares, rows = np.take_along_axis(squares, first, axis=1), np.take_along_axis(rows, first[:, :, None], axis=1)
    return squares, rows
