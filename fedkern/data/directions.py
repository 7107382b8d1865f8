"""Finds sums of columns, or of products of columns, that are 0 in all rows but a few: what is told of all rows tells these.

The sums are the vectors of a space, such as that of all columns, or of all products of two. With an orthonormal basis Q (n, r)
of it, a row's leverage |Q_i|^2 is the largest share that it has of the squares of any sum, and some sum is 0 in all rows but two
if the Gram matrix of these two rows of Q has an eigenvalue 1. So of each row of high leverage the row is sought that comes, with
it, nearest to 1; from there rows and sum are chosen by turns, for more than two rows. Of many more rows than dimensions less is
to be looked at: a sum that is not 0 in fewer than k rows is 0 in one of any k groups of rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from ..arrays import Array, Indices, Mask
from ..models.weighing import effective
from .standardised import BLOCK, Design, Part

MOST_SUMMED = 300  # columns whose sums are looked at: of more no client tells more than each column's own
MOST_MULTIPLIED = 5e9  # multiplications, of smaller groups of rows first
MOST_IN_PAIRS, MOST_IN_THREES, MOST_SETS = 2_000, 100, 500  # columns, of which two or three depend on each other; such sets
MOST_DIFFERENT, MOST_VALUES = 12, 3  # values of a column that has few; of one of which each value is a factor
HELD, HELD_AT_ONCE = 2e7, 1 << 20  # numbers in memory, of rows and of searches side by side
STARTS, STEPS, TRIED = 500, 30, 20  # of a search; sums that are then looked at in all rows
ALONE, HEAVY = 1e-3, 0.9  # of squares: what all other rows may have where few are alone; of one row that is nearly alone
DIGITS = 1e-7  # of a column's length: a sum of columns that is shorter is rounding
ZERO = 1e-6  # of the largest value of a sum: 0
WELL, ENOUGH = 1e-6, 1e-9  # eigenvalues of cross-products that lose few digits, or leave some
OF_EACH = 6  # rows of each dimension
IN_A_GROUP, DEPENDENT = 16, 1e-9  # rows in which two or three columns depend on each other; 1 less the square of a correlation
DRAWS, DRAWN = 100, 5  # of rows: of which half share a value, all of one draw do but once in 25 times
OF_FEW = 3  # rows of each column, up to which sums of few columns are looked at by themselves
TOGETHER = 0.5  # a correlation of two columns whose products are looked at


class Direction(NamedTuple):
    """Names the columns of a sum, and the number of rows in which it is not 0: their effective number, rounded up.

    `far`: it is one row that has nearly all of its squares. `products`: it is a sum of products of columns.
    """

    columns: tuple[str, ...]
    n_rows: int
    far: bool = False
    products: bool = False


class Sum(NamedTuple):
    """Holds how many rows are alone in a sum, the sum's `parts` (q,), and whether it is 0, and not nearly 0, in all others."""

    n_rows: int
    parts: Array
    exact: bool


def search(columns: Design, least: int, together: int) -> Direction | None:
    """Returns a sum of columns that is (nearly) 0 in all rows but fewer than `least`; or else one of products of columns that is
    0 in all rows but fewer than `together`."""
    d, rows, found = 1 + len(columns.parts), np.flatnonzero(columns.weights > 0), None
    columns_used = np.array([0, *(j for j in range(1, d) if not _is_last(columns.parts, j, rows))])
    if least > 1 and len(columns_used) <= MOST_SUMMED:
        found = Space(columns, rows, columns_used, 0 * columns_used).named(least, nearly=True)
    if found is None and (together > 1 or len(rows) > d):  # of a linear job X'X is all rows, up to a rotation: that is said
        found = _of_few(columns, rows, columns_used, least)
    if found is None and together > 1:
        of_products = _of_products(columns, rows, columns_used, together)
        found = next((direction._replace(products=True) for direction in of_products if direction), None)
    return found


def _is_last(parts: Sequence[Part], j: int, rows: Indices) -> bool:
    """Tells whether column `j` is the last level of a column, and all rows have a level: it is 1 less all others."""
    part = parts[j - 1]
    last = part.level is not None and (j == len(parts) or parts[j].name != part.name)
    return last and bool((part.values[rows] >= 0).all())


def _of_products(columns: Design, all_rows: Indices, columns_used: Indices, together: int) -> Iterator[Direction | None]:
    """Yields sums of products of all columns. If these are too many, yields those of columns of few values, of two that go
    together, and of all columns in the rows with a value of one."""
    values = [_values(part, all_rows) for part in columns.parts]
    different = np.array([0, *(number for number, _ in values)])
    many = columns_used[different[columns_used] > MOST_DIFFERENT]
    for chosen in (columns_used, np.setdiff1d(columns_used, many)):
        space = Space.of_products(columns, all_rows, chosen[:MOST_SUMMED], different)
        if space.is_small(together) and len(chosen) <= MOST_SUMMED:
            found = space.named(together)
            by_chance = found is not None and space.of(found.columns).is_alone_by_chance(many, together)
            yield None if by_chance else found
            if len(chosen) == len(columns_used) and not by_chance:
                return  # all other sums are among these
    X = columns.rows(all_rows[:BLOCK], many[:MOST_IN_THREES])
    r = (X - X.mean(axis=0)).T @ X / len(X)
    near = [many[[i, j]] for i, j in np.argwhere(np.triu((np.abs(r) > TOGETHER) & (np.abs(r) < 1 - ENOUGH), 1))]
    relations = list(_relations(columns, all_rows, np.concatenate([many, np.setdiff1d(columns_used[1:], many)]), len(many)))
    for some in (*near, *(some for some, _ in relations)):
        yield Space.of_products(columns, all_rows, np.sort([0, *some]), different).named(together)
    factors = [(tuple(dict.fromkeys(columns.parts[j - 1].name for j in some)), off) for some, off in relations]
    factors, work = sorted([*_factors(columns, all_rows, values), *factors], key=lambda factor: np.count_nonzero(factor[1])), 0.0
    for names, mask in factors:
        rows, chosen = all_rows[mask], np.array([j for j in columns_used if not j or (columns.parts[j - 1].name,) != names])
        work += len(rows) * len(chosen) ** 2
        if work > MOST_MULTIPLIED:
            return
        found = Space(columns, rows, chosen, 0 * chosen).named(together) or _of_few(columns, rows, chosen, together)
        yield found and found._replace(columns=tuple(dict.fromkeys((*names, *found.columns))))


def _values(part: Part, rows: Indices) -> tuple[int, Array]:
    """Returns how many different values a column has, and those that make factors: of few all, or one that most rows have."""
    distinct, times = np.unique(part.numbers(rows), return_counts=True)
    usual = distinct[times.argmax()] if 2 * times.max() >= len(rows) else np.nan
    return len(distinct), distinct if len(distinct) <= MOST_VALUES else np.array([usual])


def _factors(columns: Design, rows: Indices, values: Sequence[tuple[int, Array]]) -> list[tuple[tuple[str, ...], Mask]]:
    """Returns columns, and the rows in which a sum of them, less a constant, is not 0: a value of a column of few; another than
    most rows have; and the fourth combination of two that have three."""
    factors = list[tuple[tuple[str, ...], Mask]]()
    for part, (number, distinct) in zip(columns.parts, values):
        x = part.numbers(rows)
        which = (
            x == value if number <= MOST_VALUES else (x != value) & ~np.isnan(x) for value in distinct if not np.isnan(value)
        )
        factors += [((part.name,), mask) for mask in which]
    masks = np.array([mask for _, mask in factors[: int(HELD) // len(rows)]]).reshape(-1, len(rows)).T
    both, seen = masks.T.astype(np.float32) @ masks.astype(np.float32), set[bytes]()
    sizes = np.diag(both)
    for i, j in np.argwhere(np.triu((both == 0) & (2 * (sizes + sizes[:, None]) >= len(rows)), 1)):
        mask = ~masks[:, i] & ~masks[:, j]
        if factors[i][0] != factors[j][0] and mask.any() and mask.tobytes() not in seen:
            seen.add(mask.tobytes())
            factors.append(((*factors[i][0], *factors[j][0]), mask))
    return factors


def _relations(columns: Design, all_rows: Indices, chosen: Indices, many: int) -> Iterator[tuple[Indices, Mask]]:
    """Yields two columns or three of which a sum is the same in half of the rows, and the rows in which it is another.

    They depend on each other in few rows that are drawn. The first of `chosen`, which are `many`, have many different values.
    """
    X = columns.rows(all_rows, chosen[: min(MOST_IN_THREES, int(HELD) // len(all_rows))])
    random, seen = np.random.default_rng(0), set[bytes]()
    for _ in range(DRAWS if len(all_rows) > DRAWN else 0):
        drawn = random.choice(len(all_rows), DRAWN, replace=False)
        for some in islice((some for some in _dependent(X[drawn]) if min(some) < many), MOST_SETS):
            Z = np.column_stack([np.ones(len(all_rows)), X[:, some]])
            value = np.abs(Z @ np.linalg.svd(Z[drawn])[2][-1])
            off = value > ZERO * value.max()
            if 0 < 2 * np.count_nonzero(off) <= len(all_rows) + 2 and off.tobytes() not in seen:
                seen.add(off.tobytes())
                yield chosen[list(some)], off


def _of_few(columns: Design, rows: Indices, chosen: Indices, few: int) -> Direction | None:
    """Returns one column, or a sum of two or three, that is the same in all of these rows but fewer than `few`.

    It is looked for where rows are too few for sums of all columns.
    """
    chosen = chosen[chosen > 0][: min(MOST_IN_PAIRS, int(HELD) // max(len(rows), 1))]
    if few < 2 or not len(chosen) or (OF_FEW * (1 + len(chosen)) <= len(rows) and len(chosen) < MOST_SUMMED):
        return None
    X, w = columns.rows(rows, chosen), columns.weights[rows]
    off = X != np.median(X, axis=0)
    for j in np.flatnonzero(off.any(axis=0)):
        if (number := effective(np.where(off[:, j], w, 0.0))) < few - 1e-9:
            return Direction((columns.parts[chosen[j] - 1].name,), int(np.ceil(number - 1e-9)))
    for group in groups(np.arange(len(rows)), w, few, IN_A_GROUP) if len(rows) >= 5 * few else ():
        for some in islice(_dependent(X[group]), MOST_SETS):
            which = np.array([0, *chosen[list(some)]])
            if found := Space(columns, rows, which, 0 * which).named(few):
                return found
    return None


def _dependent(X: Array) -> Iterator[tuple[int, ...]]:
    """Yields pairs of columns, and threes of which two have many different values, of which some sum is the same in all rows."""
    X = X - X.mean(axis=0)
    lengths = np.linalg.norm(X, axis=0)
    X = np.where(lengths > DIGITS, X / np.maximum(lengths, DIGITS), np.nan)
    r = X.T @ X
    with np.errstate(invalid="ignore"):
        yield from map(tuple, np.argwhere(np.triu(1 - r * r < DEPENDENT, 1)).tolist())
    many = np.flatnonzero(2 * (np.diff(np.sort(X, axis=0), axis=0) > 0).sum(axis=0) > len(X))[:MOST_IN_THREES]
    away = X - X[:, many].T[:, :, None] * r[many][:, None, :]  # from each of many
    lengths = np.linalg.norm(away, axis=1)
    away = np.where(lengths > 1e-4, 1.0, np.nan)[:, None, :] * away / np.maximum(lengths, DIGITS)[:, None, :]
    r = away[:, :, many].transpose(0, 2, 1) @ away
    with np.errstate(invalid="ignore"):
        for a, b, c in np.argwhere(1 - r * r < DEPENDENT).tolist():
            if a < b and many[a] != c != many[b]:
                yield int(many[a]), int(many[b]), c


class Space(NamedTuple):
    """Describes sums of products of two columns, `left` and `right` (q,), in the rows `selected`; column 0 is 1.

    `held` has these products, if they are not too many.
    """

    design: Design
    selected: Indices
    left: Indices
    right: Indices
    held: Array | None = None

    @classmethod
    def of_products(cls, design: Design, rows: Indices, chosen: Indices, different: Indices) -> Space:
        """Returns the space of all products of some columns; of a column of two values there is no square."""
        names = ["", *((part.name if part.level is not None else "") for part in design.parts)]
        pairs = [
            (i, j)
            for k, i in enumerate(chosen.tolist())
            for j in chosen[: k + 1].tolist()
            if (i == j and different[i] != 2) or (i != j and (names[i] == "" or names[i] != names[j]))
        ]
        left, right = np.array(pairs).T
        return cls(design, rows, left, right)

    def of(self, names: Collection[str]) -> Space:
        """Returns the space of some columns."""
        chosen = np.array([True, *(part.name in names for part in self.design.parts)])
        kept = chosen[self.left] & chosen[self.right]
        return self._replace(left=self.left[kept], right=self.right[kept], held=None)

    def is_small(self, few: int) -> bool:
        """Tells whether rows allow a search, and it is no large one."""
        n, q = len(self.selected), len(self.left)
        return q < n - few and min(n, OF_EACH * few * q) * q * q <= MOST_MULTIPLIED

    def is_alone_by_chance(self, many: Indices, few: int) -> bool:
        """Tells whether a sum would be 0 in all rows but fewer than `few` if columns `many` were any others.

        So it is of a value of another column that so few rows have that some sum of the columns is always 0 in all but two.
        """
        used = np.intersect1d(many, np.concatenate([self.left, self.right])).tolist()
        parts, scale, centre = list(self.design.parts), self.design.scale.copy(), self.design.centre.copy()
        random = np.random.default_rng(0)
        for j in used:
            parts[j - 1] = Part(parts[j - 1].name, random.standard_normal(len(self.design.weights)), None)
            centre[j - 1], scale[j - 1] = 0.0, 1.0
        design = self.design._replace(parts=tuple(parts), scale=scale, centre=centre)
        return bool(used) and self._replace(design=design).fewest(few) is not None

    def rows(self, rows: Indices) -> Array:
        """Returns the products (b, q) of some rows."""
        if not self.right.any():
            return self.design.rows(rows, self.left)
        used = np.union1d(self.left, self.right)
        Z = self.design.rows(rows, used)
        return Z[:, np.searchsorted(used, self.left)] * Z[:, np.searchsorted(used, self.right)]

    def blocks(self, basis: Array | None = None) -> Iterator[tuple[Indices, Array]]:
        """Yields rows that are looked at, and sums of their products in a basis (q, p)."""
        step = max(1, 4 * HELD_AT_ONCE // len(self.left))
        for begin in range(0, len(self.selected), step):
            block = self.selected[begin : begin + step]
            Z = self.rows(block) if self.held is None else self.held[begin : begin + step]
            yield block, Z if basis is None else Z @ basis

    def named(self, few: int, *, nearly: bool = False) -> Direction | None:
        """Returns the sum of `fewest`, of as few columns as will do."""
        found = self.fewest(few, nearly=nearly)
        if found is None:
            return None
        sizes = np.abs(found.parts) * np.sqrt(sum((Z**2).sum(axis=0) for _, Z in self.blocks()))
        large = dict.fromkeys(
            self.design.parts[j - 1].name for k in np.argsort(-sizes) for j in (self.left[k], self.right[k]) if j
        )
        names = list(large)
        for k in (2**i for i in range(len(names).bit_length())):
            if k < len(names) and (fewer := self.of(names[:k]).fewest(few, nearly=nearly)) and fewer.n_rows <= found.n_rows:
                found, names = fewer, names[:k]
                break
        for name in names[::-1]:
            some = [other for other in names if other != name]
            if (fewer := self.of(some).fewest(few, nearly=nearly)) and fewer.n_rows <= found.n_rows:
                found, names = fewer, some
        columns = dict.fromkeys(part.name for part in self.design.parts if part.name in names)
        return Direction(tuple(columns), found.n_rows, far=found.n_rows == 1 and not found.exact)

    def fewest(self, few: int, *, nearly: bool = False) -> Sum | None:
        """Returns the sum that is 0 in all rows but the fewest, if these are fewer than `few`.

        `nearly`: whether it is enough that all other rows have a thousandth of its squares, or one row has nine tenths.
        """
        n, q, w = len(self.selected), len(self.left), self.design.weights[self.selected]
        many = few if n == 0 or w.min() == w.max() else 2 * few  # rows of unequal weight that count as fewer
        if nearly or n < OF_EACH * many * q:
            return self._within(None, few, few if nearly else 0)
        found = list[Sum | None]()
        for group in groups(self.selected, self.design.weights, many, OF_EACH * q):
            X = self.rows(group)
            lengths = np.linalg.norm(X, axis=0)
            lengths[lengths == 0] = 1.0
            X /= lengths
            if np.linalg.eigvalsh(X.T @ X)[0] > ENOUGH:
                continue  # no sum but 0 is 0 in these rows
            _, sizes, V = np.linalg.svd(X, full_matrices=False)
            basis = V[sizes <= DIGITS * sizes[0]].T / lengths[:, None] / np.sqrt(n / len(group))
            found.append(self._within(basis, few, 0) if basis.size else None)
        return min(filter(None, found), key=lambda found_sum: found_sum.n_rows, default=None)

    def _within(self, basis: Array | None, few: int, nearly: int) -> Sum | None:
        """Returns the sum, in a basis (q, p), that is 0, or nearly 0, in all rows but the fewest."""
        if self.held is None and len(self.selected) * len(self.left) <= HELD:
            return self._replace(held=self.rows(self.selected))._within(basis, few, nearly)
        w, back = self.design.weights[self.selected], self._whitening(basis)
        n, rank, rows = len(self.selected), back.shape[1], effective(w)
        if basis is None:
            few = min(few, n - rank - 1)  # of fewer rows some sum is 0 in all but a few, or nearly
        nearly = min(nearly, int((rows - rank) // 2)) if rows >= 2 * rank else 0
        if rank == 0 or max(few, nearly) < 2:
            return None
        Q, leverages = np.empty((0, rank)), np.empty(0)
        for block, Z in self.blocks(back):
            Z = Z * np.sqrt(self.design.weights[block])[:, None]
            Q, leverages = np.concatenate([Q, Z]), np.concatenate([leverages, (Z**2).sum(axis=1)])
            if Q.size > HELD:  # of more, the rows that tell most
                kept = np.argsort(-leverages, kind="stable")[: int(HELD) // (2 * rank)]
                Q, leverages = Q[kept], leverages[kept]
        most, heavy = max(few, nearly), HEAVY + 1 / rows if nearly and rows >= OF_EACH * rank else 1.0
        sizes = [most - 1] if w.min() == w.max() else [most - 1, most, most + 1, 2 * most - 1]  # which count as fewer
        found_by = [alone(Q, leverages, min(size, len(Q)), heavy) for size in sizes]
        numbers, u = (np.concatenate(each) for each in zip(*found_by))
        if not len(u):
            return None
        parts = back @ u.T
        values = np.concatenate([np.abs(Z) for _, Z in self.blocks(parts)])
        exact = [effective(np.where(values[:, k] > ZERO * values[:, k].max(), w, 0.0)) for k in range(len(u))]
        found = [Sum(int(np.ceil(m - 1e-9)), parts[:, k], exact=True) for k, m in enumerate(exact) if m < few - 1e-9]
        found += [Sum(int(m), parts[:, k], exact=False) for k, m in enumerate(numbers) if m < nearly]
        return min(found, key=lambda found_sum: (not found_sum.exact, found_sum.n_rows), default=None)

    def _whitening(self, basis: Array | None) -> Array:
        """Returns (q, r) such that the weighted rows times it are orthonormal."""
        w, p = self.design.weights, len(self.left) if basis is None else basis.shape[1]
        gram = np.zeros((p, p))
        for block, Z in self.blocks(basis):
            gram += (Z * w[block][:, None]).T @ Z
        lengths = np.sqrt(np.diag(gram)) if basis is None else np.ones(p)
        lengths[lengths == 0] = 1.0
        squares, V = np.linalg.eigh(gram / lengths / lengths[:, None])
        if not squares[0] > WELL:  # digits are lost in cross-products
            R = np.empty((0, p))
            for block, Z in self.blocks(basis):
                R = np.asarray(np.linalg.qr(np.concatenate([R, Z / lengths * np.sqrt(w[block])[:, None]]), mode="r"))
            _, sizes, turned = np.linalg.svd(R)
            V, squares = turned[: len(sizes)].T, sizes**2
        kept = squares > DIGITS**2
        whitening: Array = V[:, kept] / np.sqrt(squares[kept]) / lengths[:, None]
        return whitening if basis is None else basis @ whitening


def alone(Q: Array, leverages: Array, most: int, heavy: float) -> tuple[Indices, Array]:
    """Finds sums in whose squares `most` rows have nearly all, from each row of high leverage, those with the most first.

    Returns how many rows (k,) have all but a thousandth, or 1 if one has more than `heavy`, and the sums (k, r). Two rows that
    are alone in a sum are found for certain.
    """
    starts = np.argsort(-leverages, kind="stable")[:STARTS]
    starts = starts[leverages[starts] > HEAVY / (most + 1)]
    found = [(np.empty(0), np.empty(0, np.int64), np.empty((0, Q.shape[1])))]
    step = max(1, HELD_AT_ONCE // max(len(Q), most * Q.shape[1]))
    for begin in range(0, len(starts), step):
        some, before = starts[begin : begin + step], np.zeros(len(starts[begin : begin + step]))
        beside = (Q @ Q[some].T) ** 2 / np.maximum(1 - leverages, DIGITS)[:, None]
        beside[some, np.arange(len(some))] = -1.0
        top = some[None]
        for turn in range(STEPS):
            u = np.linalg.svd(Q[top.T], full_matrices=False)[2][:, 0]
            squares = (Q @ u.T) ** 2
            top = np.argpartition(-squares, most - 1, axis=0)[:most]
            largest = -np.sort(-np.take_along_axis(squares, top, axis=0), axis=0)
            number = np.where(largest[0] > heavy, 1, (np.cumsum(largest, axis=0) < 1 - ALONE).sum(axis=0) + 1)
            share = largest.sum(axis=0)
            found.append((share, number, u))
            if turn > 1 and not (share > before + 1e-9).any():
                break
            top, before = (np.stack([some, beside.argmax(axis=0)]) if turn == 0 else top), share
    share, number, u = (np.concatenate(each) for each in zip(*found))
    first = np.argsort(-share, kind="stable")
    first = first[number[first] <= most][:TRIED]
    return number[first], u[first]


def groups(rows: Indices, weights: Array, few: int, size: int) -> list[Indices]:
    """Returns groups of rows that share none, as many as `few`, of those that weigh most: one has none of any fewer rows."""
    order = np.random.default_rng(0).permutation(len(rows))
    order = rows[order[np.argsort(-weights[rows[order]], kind="stable")]]
    return [order[k::few][:size] for k in range(few)]
