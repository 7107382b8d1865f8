"""An attacker on what `describe` tells: every number of two of them and of one job, as bounds of sums of rows in cells.

Every number that is told is a statement: a weighted sum of rows, in some cells of a column and of the groups, lies between two
numbers. The attacker also knows which rows one look has more than the other, and how many. By integer programming it bounds how
often each cell occurs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from fedkern.disclosure.cells import Parts, added, cross, enough, in_bins, join, once
from fedkern.disclosure.curves import curve_counts
from fedkern.disclosure.measures import OF_AN_ERROR, ends, moments, step
from fedkern.disclosure.rules import NEAR_ROWS, Rules
from fedkern.privacy.sketch import Sketch

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

BY = "by"
FIRST, SECOND, JOB = "first", "second", "job"
NODES = (20, 500)  # that one solver looks at, first and in the end; what it has found by then is a bound all the same


class Column(NamedTuple):
    """A column of cells, of which the last one is that of missing ones."""

    codes: Codes
    cells: int
    values: Array | None = None  # of the other cells, where it is a number's
    inner: Array | None = None  # of bins, where it has any


class Statement(NamedTuple):
    """A sum of rows, in cells (with their weights) of a column and in groups, lies between two numbers."""

    column: str
    groups: tuple[int, ...]
    weights: Mapping[int, float]
    least: float
    most: float
    where: str


@dataclass(frozen=True)
class Data:
    """One client's rows: their groups, columns, and survival times on a grid, as cells 2 * interval + event."""

    columns: Mapping[str, Column]
    times: Array
    events: Array
    grid: Array

    def take(self, rows: NDArray[np.bool_] | Codes) -> Data:
        """Returns some of the rows."""
        columns = {name: one._replace(codes=one.codes[rows]) for name, one in self.columns.items()}
        return Data(columns, self.times[rows], self.events[rows], self.grid)

    @property
    def n_rows(self) -> int:
        return len(self.times)

    def with_curve(self) -> dict[str, Column]:
        """Returns the columns, with the cells of the curve as one."""
        k = len(self.grid) + 1
        lacking = ~(np.isfinite(self.times) & np.isfinite(self.events))
        interval = np.searchsorted(self.grid, np.where(lacking, 0, self.times))
        codes = np.where(lacking, 2 * k, 2 * interval + np.where(lacking, 0, self.events).astype(np.int64))
        return {**self.columns, "curve": Column(codes, 2 * k + 1)}


@dataclass
class Account:
    """What a holder keeps of what was told: parts and counts of columns and tables, and sketches of rows."""

    columns: dict[str, tuple[Array | None, Parts, Codes]] = field(default_factory=dict)
    tables: dict[str, tuple[Parts, Codes] | None] = field(default_factory=dict)
    curves: list[Array | None] = field(default_factory=list)
    rows: list[Sketch] = field(default_factory=list)  # of looks
    of_jobs: list[Sketch] = field(default_factory=list)
    most: dict[str, int] = field(default_factory=dict)  # parts in which a column was told, at most


def bins_of(column: Column) -> list[list[int]]:
    """Returns the fine cells of each bin, that of missing ones last; each its own where there are no bins."""
    last = column.cells - 1
    if column.inner is None or column.values is None:
        return [[k] for k in range(column.cells)]
    at = np.searchsorted(column.inner, column.values, "right")
    return [[k for k in range(last) if at[k] == bin] for bin in range(len(column.inner) + 1)] + [[last]]


def counted(codes: Codes, cells: int, bins: Sequence[Sequence[int]]) -> Codes:
    return added(np.bincount(codes, minlength=cells), tuple(map(tuple, bins)))


def numbers_of(column: Column) -> Array:
    assert column.values is not None
    return np.append(column.values, np.nan)[column.codes]


def sketch_of(members: NDArray[np.uint64]) -> Sketch:
    return Sketch.of("key", members, np.ones(len(members), np.uint64))


def _near(rows: Sketch, earlier: Sequence[Sketch], least: int) -> bool:
    return any(0 < (rows.apart(before) or 0) < least for before in earlier)


def describe(
    data: Data, names: Sequence[str], rules: Rules, where: str, account: Account, members: NDArray[np.uint64]
) -> list[Statement] | None:
    """Returns what a first look tells by the rules, and notes it; None where it is refused."""
    least, all_groups = rules.rows_per_value, tuple(range(data.columns[BY].cells))
    rows = sketch_of(members)
    if _near(rows, [*account.rows, *account.of_jobs], NEAR_ROWS):
        return None
    told, kept = list[Statement](), dict[str, Parts]()
    fine = dict[str, tuple[tuple[int, ...], ...]]()
    for name in (BY, *names):
        column = data.columns[name]
        bins = bins_of(column)
        counts = counted(column.codes, column.cells, bins)
        number = column.inner is not None
        ordered, into = (len(bins) - 1, (len(bins) - 1) // 2) if number else (0, 0)
        parts: Parts | None = join(counts, least, ordered=ordered, into=into)
        if name in account.columns:
            inner, earlier, before = account.columns[name]
            if inner is not None and column.inner is not None:
                earlier, before = in_bins(column.inner, inner, earlier, before)
            parts = once(parts, counts, earlier, before, least)
        if parts is None or not enough(counts, parts, least):
            continue
        most = account.most[name] = max(len(parts), account.most.get(name, 0))
        cells = tuple(tuple(cell for k in part for cell in bins[k]) for part in parts)
        fine[name], kept[name] = cells, parts
        account.columns[name] = (column.inner, parts, added(counts, parts))
        for part, n in zip(cells, added(counts, parts).tolist(), strict=True):
            told.append(Statement(name, all_groups, dict.fromkeys(part, 1.0), n, n, where))
        if column.values is not None and (found := moments(numbers_of(column), rules, most)) is not None:
            told += windows(name, all_groups, column, found.mean, found.sd, where)
    if BY in fine:
        for name in names:
            if name in fine:
                told += table_of(data, name, fine, kept, rules, where, account)
        told += curve_of(data, fine[BY], rules, where, account)
    account.rows.append(rows)
    return told


def windows(name: str, groups: tuple[int, ...], column: Column, mean: float, sd: float, where: str) -> list[Statement]:
    """Returns what a rounded mean and standard deviation say of the counts of values."""
    assert column.values is not None
    x, n = column.values, int((column.codes < column.cells - 1).sum())
    of_mean, of_sd = (step(OF_AN_ERROR * error) / 2 * 1.01 for error in (sd * 1.05 / math.sqrt(n), sd * 1.05 / math.sqrt(2 * n)))
    low, high = max(sd - of_sd, 0.0), sd + of_sd
    weights = [
        (x - (mean - of_mean), 0.0, math.inf),
        (x - (mean + of_mean), -math.inf, 0.0),
        ((x - mean) ** 2 - low**2, -(low**2), math.inf),
        ((x - mean) ** 2 - high**2 - of_mean**2, -math.inf, -(high**2)),
    ]
    return [Statement(name, groups, dict(enumerate(own.tolist())), least, most, where) for own, least, most in weights]


def table_of(
    data: Data, name: str, fine: Mapping[str, Parts], kept: Mapping[str, Parts], rules: Rules, where: str, account: Account
) -> list[Statement]:
    """Returns what the cross table of groups and a column tells."""
    by, column = data.columns[BY], data.columns[name]
    both = np.array([[int((np.isin(by.codes, g) & np.isin(column.codes, c)).sum()) for c in fine[name]] for g in fine[BY]])
    number = column.inner is not None
    ordered = sum(part[0] < len(column.inner) + 1 for part in kept[name]) if number and column.inner is not None else 0
    found = cross(both, rules.rows_per_value, ordered=(0, ordered), into=(0, ordered // 2))
    cells = None
    if found is not None:
        rows, columns = (
            [[cell for k in part for cell in fine[of][k]] for part in parts] for of, parts in ((BY, found[0]), (name, found[1]))
        )
        cells = tuple(tuple(sorted(g * column.cells + c for g in own for c in its)) for own in rows for its in columns)
    if name in account.tables:  # told before: these cells or none
        before = account.tables[name]
        flat = np.bincount(by.codes * column.cells + column.codes, minlength=by.cells * column.cells)
        same = cells is not None and before is not None and once(tuple(sorted(cells)), flat, *before, rules.rows_per_value)
        cells = cells if same and cells is not None and same == tuple(sorted(cells)) else None
    if cells is None:
        account.tables.setdefault(name, None)
        return []
    flat = np.bincount(by.codes * column.cells + column.codes, minlength=by.cells * column.cells)
    account.tables[name] = (tuple(sorted(cells)), added(flat, tuple(sorted(cells))))
    out = []
    for own in rows:
        for its in columns:
            n = int((np.isin(by.codes, own) & np.isin(column.codes, its)).sum())
            out.append(Statement(name, tuple(own), dict.fromkeys(its, 1.0), n, n, where))
    return out


def curve_of(data: Data, groups: Parts, rules: Rules, where: str, account: Account) -> list[Statement]:
    """Returns what the curves tell; asked again, only where they end as before."""
    by = data.columns[BY].codes
    codes = np.array([next(k for k, part in enumerate(groups) if cell in part) for cell in range(data.columns[BY].cells)])[by]
    found = curve_counts(data.times, data.events, codes, data.grid, rules, len(groups))
    account.curves.append(None if found is None else found.ends)
    if found is None or any(before is None or not np.array_equal(before, found.ends) for before in account.curves[:-1]):
        return []
    k, out, sizes = len(data.grid) + 1, [], np.bincount(codes, minlength=len(groups))
    at = np.searchsorted(data.grid, found.ends).tolist()
    for g, own in enumerate(groups):
        every = dict.fromkeys(range(2 * k), 1.0)
        whole = int(found.rows[g]) == int(sizes[g])
        if not whole:
            out.append(Statement("curve", own, every, int(found.rows[g]), int(found.rows[g]), where))
        for event, counts in ((1, found.events), (0, found.censored)):
            first, ends_told = 0, [j for j in range(len(at)) if event or counts[:, j].any()]
            for j in ends_told:  # censored rows are told at some ends alone
                cells = {2 * i + event: 1.0 for i in range(first, at[j] + 1)}
                if whole and not event and not first:
                    cells[2 * k] = 1.0
                out.append(Statement("curve", own, cells, int(counts[g, j]), int(counts[g, j]), where))
                first = at[j] + 1
    return out


def job(
    data: Data, names: Sequence[str], rules: Rules, account: Account, members: NDArray[np.uint64]
) -> tuple[list[Statement], NDArray[np.bool_]] | None:
    """Returns what a job's summary tells of rows without a missing cell, and which these are; None where it is refused."""
    least, groups = rules.rows_per_value, tuple(range(data.columns[BY].cells))
    there = np.all([data.columns[name].codes < data.columns[name].cells - 1 for name in names], axis=0)
    rows, told = sketch_of(members[there]), list[Statement]()
    if there.sum() < rules.rows or _near(rows, account.rows, NEAR_ROWS):
        return None
    every, n_rows = range(data.columns[names[0]].cells), int(there.sum())
    told.append(Statement(names[0], groups, dict.fromkeys(every, 1.0), n_rows, n_rows, JOB))
    for name in names:
        column = data.columns[name]
        codes = column.codes[there]
        told.append(Statement(name, groups, {column.cells - 1: 1.0}, 0, 0, JOB))
        values = np.unique(codes)
        if column.values is not None and len(values) > 2:
            for power in (1, 2):
                total = float((column.values[codes] ** power).sum())
                told.append(Statement(name, groups, dict(enumerate((column.values**power).tolist())), total, total, JOB))
            continue
        counts = np.bincount(codes, minlength=column.cells - 1)
        if (counts[counts > 0] < least).any():
            return None
        told += [Statement(name, groups, {level: 1.0}, n, n, JOB) for level, n in enumerate(counts.tolist())]
    account.of_jobs.append(rows)
    return told, there


class Narrow(NamedTuple):
    """A hidden cell with its bounds."""

    look: str
    column: str
    cells: tuple[int, ...]
    group: int | None
    least: int
    most: int


class Attacker:
    """Bounds rows in cells by all statements.

    Parameters
    ----------
    columns : with the codes of all rows that any look has
    inside : look -> (n,) which rows it has
    names : the columns of the job, whose other rows miss one of them; empty without one
    """

    def __init__(
        self,
        columns: Mapping[str, Column],
        inside: Mapping[str, NDArray[np.bool_]],
        told: Sequence[Statement],
        names: Sequence[str] = (),
    ) -> None:
        self.columns, self.told, self.names, self.looks = columns, list(told), tuple(names), tuple(inside)
        pattern = np.stack([inside[look] for look in self.looks], axis=1)
        self.segments = np.unique(pattern, axis=0)
        self.segment = np.array([int(np.flatnonzero((self.segments == row).all(axis=1))[0]) for row in pattern])
        self.groups = columns[BY].cells
        self.known = dict[str, tuple[csr_array, Array, Array, Array]]()

    def truth(self, statement: Statement) -> float:
        """Returns the sum of which a statement says the bounds."""
        column = self.columns[statement.column]
        weight = np.zeros(column.cells)
        weight[list(statement.weights)] = list(statement.weights.values())
        inside = self.segments[self.segment, self.looks.index(statement.where)]
        return float((weight[column.codes] * np.isin(self.columns[BY].codes, statement.groups) * inside).sum())

    def allowed(self, name: str) -> tuple[csr_array, Array, Array, Array]:
        """Returns `limits`, which are found once."""
        if name not in self.known:
            self.known[name] = self.limits(name)
        return self.known[name]

    def limits(self, name: str) -> tuple[csr_array, Array, Array, Array]:
        """Returns all that was told as limits of sums of rows (segment by group by cell) of a column, and of those of the job.

        The last array has the true rows.
        """
        used = list(dict.fromkeys([name, *self.names]))
        shape = {one: (self.groups, len(self.segments), self.columns[one].cells) for one in used}
        starts = np.cumsum([0, *(math.prod(shape[one]) for one in used)])
        places = {one: start + np.arange(math.prod(shape[one])).reshape(shape[one]) for one, start in zip(used, starts)}
        rows, least, most = list[Array](), list[float](), list[float]()

        def add(low: float, high: float, *terms: tuple[NDArray[np.int64], ArrayLike]) -> None:
            row = np.zeros(starts[-1])
            for where, weights in terms:
                row[where] += np.broadcast_to(weights, where.shape)
            rows.append(row)
            least.append(low)
            most.append(high)

        for one in self.told:
            segments = np.flatnonzero(self.segments[:, self.looks.index(one.where)])
            if one.column == BY:  # what is told of a group is told of all cells of its rows
                add(one.least, one.most, (places[name][np.ix_([*one.weights], segments)], 1.0))
            # Sums of another column's values say next to nothing of this one, and take the solver long.
            elif one.column == name or (one.column in used and {*one.weights.values()} == {1.0}):
                slack = 1e-7 * max(1.0, abs(one.least)) if one.where == JOB else 0.0
                where = places[one.column][np.ix_(one.groups, segments, [*one.weights])]
                add(one.least - slack, one.most + slack, (where, [*one.weights.values()]))
        for g in range(self.groups):
            for s, looks in enumerate(self.segments):
                for one in used[1:]:
                    add(0, 0, (places[name][g, s], 1.0), (places[one][g, s], -1.0))
                if BY in used:
                    add(0, 0, (np.delete(places[BY][g, s], g), 1.0))
                if self.names and not looks[self.looks.index(JOB)]:  # each of these rows lacks a cell that the job uses
                    add(0, math.inf, (places[name][g, s], -1.0), *((places[one][g, s, -1:], 1.0) for one in self.names))
        for s in range(len(self.segments)):  # how many rows looks share is known
            n = int((self.segment == s).sum())
            add(n, n, (places[name][:, s], 1.0))
        truth = np.zeros(starts[-1])
        for one in used:
            np.add.at(truth, places[one][self.columns[BY].codes, self.segment, self.columns[one].codes], 1.0)
        return csr_array(np.array(rows)), np.array(least), np.array(most), truth

    def target(self, look: str, name: str, cells: Sequence[int], group: int | None) -> Array:
        """Returns of which sums of rows the rows in cells are the sum."""
        out = np.zeros((self.groups, len(self.segments), self.columns[name].cells))
        groups = range(self.groups) if group is None else [group]
        out[np.ix_(groups, np.flatnonzero(self.segments[:, self.looks.index(look)]), cells)] = 1
        return np.pad(out.ravel(), (0, len(self.allowed(name)[3]) - out.size))

    def solve(self, name: str, objective: Array, nodes: int) -> Array | None:
        """Returns rows that explain all that was told, with the largest objective that is found in time."""
        matrix, least, most, truth = self.allowed(name)
        own = matrix @ truth
        solved = milp(  # from the true ones, which the solver does not have to look for
            -objective,
            constraints=LinearConstraint(matrix, np.minimum(least - own, 0), np.maximum(most - own, 0)),
            integrality=np.ones(len(truth)),
            bounds=Bounds(-truth),
            options={"node_limit": nodes, "mip_rel_gap": 0.5 if nodes == NODES[0] else 0.0},
        )
        assert solved.status not in (2, 3), solved.message
        return None if solved.x is None else np.round(truth + solved.x)

    def narrow(self, look: str, name: str, cells: Sequence[tuple[tuple[int, ...], int | None]], least: int) -> Iterator[Narrow]:
        """Yields the cells of a column of which less than `least` more or fewer rows are possible.

        Whatever rows explain all that was told, found in time or not, may be the true ones.
        """
        targets = np.array([self.target(look, name, *cell) for cell in cells])
        low = high = targets @ self.allowed(name)[3]
        for nodes in NODES:
            for sign in (1, -1):
                while len(left := np.flatnonzero(high - low < least)):
                    found = self.solve(name, sign * targets[left].sum(axis=0), nodes)
                    if found is None:
                        break
                    before, (low, high) = high - low, (np.minimum(low, targets @ found), np.maximum(high, targets @ found))
                    if (before >= high - low).all():
                        break
            for k, sign in product(np.flatnonzero(high - low < least), (1, -1)):
                found = self.solve(name, sign * targets[k], nodes) if high[k] - low[k] < least else None
                if found is not None:
                    low, high = np.minimum(low, targets @ found), np.maximum(high, targets @ found)
        for k in np.flatnonzero(high - low < least):
            yield Narrow(look, name, *cells[k], int(low[k]), int(high[k]))

    def hidden(
        self, look: str, bins: Mapping[str, Sequence[Sequence[int]]], least: int
    ) -> dict[str, list[tuple[tuple[int, ...], int | None]]]:
        """Returns the cells of a look's tables that have few rows: of a column, and of it in a group.

        That nobody dies in an interval, or is censored, is told.
        """
        inside, out = self.segments[self.segment, self.looks.index(look)], dict[str, list[tuple[tuple[int, ...], int | None]]]()
        by = self.columns[BY].codes
        for name, of_column in bins.items():
            own_cells = out.setdefault(name, [])
            for cells in of_column:
                own = inside & np.isin(self.columns[name].codes, cells)
                if 0 < own.sum() < least:
                    own_cells.append((tuple(cells), None))
                if name != BY and own.any():
                    some = [
                        g
                        for g in range(self.groups)
                        if (name == "curve") <= (own & (by == g)).sum() < least and (inside & (by == g)).any()
                    ]
                    own_cells += [(tuple(cells), g) for g in some]
        return {name: cells for name, cells in out.items() if cells}


# Data, and attacks on it --------------------


def simulated(seed: int) -> Data:
    """Returns rows of a client: a rare group, binary columns, a factor with a rare level, numbers of few and of many values."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(60, 400))
    by = rng.choice(3, n, p=[0.55, 0.45, 0.0])
    by[: rng.integers(1, 12)] = 2

    def lacking(codes: Codes, cells: int, most: int) -> Codes:
        codes = codes.astype(np.int64)
        codes[rng.choice(n, int(rng.integers(0, most)), replace=False)] = cells - 1
        return codes

    rare = rng.integers(1, 12) / n
    columns = {
        BY: Column(lacking(rng.permutation(by), 4, 3), 4),
        "sex": Column(lacking(rng.random(n) < 0.45, 3, 7), 3),
        "rare": Column(lacking(rng.random(n) < rare, 3, 12), 3),
        "stage": Column(lacking(rng.choice(4, n, p=[0.5, 0.3, 0.19 - rare / 2, 0.01 + rare / 2]), 5, 25), 5),
        "grade": Column(lacking(np.minimum(rng.poisson(0.8, n), 4), 6, 9), 6, np.arange(5.0)),
        "visits": Column(lacking(np.minimum(rng.negative_binomial(4, 0.35, n), 23), 25, 9), 25, np.arange(24.0)),
    }
    seen = columns["visits"].codes[columns["visits"].codes < 24]
    inner = ends(float(seen.mean()), float(seen.std()), 0.0, bins=int(rng.choice([6, 24])))
    columns["visits"] = columns["visits"]._replace(inner=inner)
    times = np.ceil(rng.exponential(500, n) + 1)
    events = (times <= (limit := rng.uniform(100, 2500, n))).astype(np.float64)
    times = np.minimum(times, np.ceil(limit))
    times[rng.choice(n, int(rng.integers(0, 4)), replace=False)] = np.nan
    return Data(columns, times, events, np.arange(182.5, 2000, 182.5))


class Found(NamedTuple):
    """What an attacker found: how many cells were hidden, which of them not well enough, and which looks were refused."""

    hidden: int
    narrow: list[Narrow]
    refused: list[str]
    told: int


TRIES = 12
VARIANTS = ("other bins and columns", "more rows", "fewer rows")


def naive(data: Data, names: Sequence[str], rules: Rules, where: str) -> list[Statement]:
    """Returns what a look tells that leaves out the cells with few rows, and no more: all rows, other cells, means and sds."""
    told, groups = list[Statement](), tuple(range(data.columns[BY].cells))
    by = data.columns[BY].codes
    for name in (BY, *names):
        column = data.columns[name]
        told.append(Statement(name, groups, dict.fromkeys(range(column.cells), 1.0), data.n_rows, data.n_rows, where))
        for group in (groups, *(((g,) for g in groups) if name != BY else ())):
            counts = np.bincount(column.codes[np.isin(by, group)], minlength=column.cells).tolist()
            own = [(cell, n) for cell, n in enumerate(counts) if not 0 < n < rules.rows_per_value]
            told += [Statement(name, group, {cell: 1.0}, n, n, where) for cell, n in own]
        if column.values is not None:
            there = column.codes[column.codes < len(column.values)]
            for power in (1, 2):
                total = float((column.values[there] ** power).sum())
                told.append(Statement(name, groups, dict(enumerate((column.values**power).tolist())), total, total, where))
    return told


def attack_naive(seed: int, rules: Rules) -> Found:
    """Bounds each hidden cell of one look that leaves out cells with few rows alone."""
    data = simulated(seed)
    names = [name for name in data.columns if name != BY]
    told = naive(data, names, rules, FIRST)
    attacker = Attacker(data.columns, {FIRST: np.ones(data.n_rows, bool)}, told)
    cells = attacker.hidden(
        FIRST, {name: [[k] for k in range(one.cells)] for name, one in data.columns.items()}, rules.rows_per_value
    )
    narrow = [one for name, own in cells.items() for one in attacker.narrow(FIRST, name, own, rules.rows_per_value)]
    return Found(sum(map(len, cells.values())), narrow, [], len(told))


def attack(seed: int, rules: Rules) -> Found:
    """Bounds each hidden cell of two looks by all that both and a job tell."""
    rng = np.random.default_rng([seed, 7])
    data, variant = simulated(seed), VARIANTS[seed % 3]
    members = rng.integers(0, 2**64, data.n_rows, np.uint64)
    every = [name for name in data.columns if name != BY]
    least, looks = rules.rows_per_value, dict[str, NDArray[np.bool_]]()
    away = np.zeros(data.n_rows, bool)
    away[rng.choice(data.n_rows, NEAR_ROWS, replace=False)] = True  # by one row less looks are refused
    whole = np.ones(data.n_rows, bool)
    looks[FIRST] = ~away if variant == "more rows" else whole
    looks[SECOND] = ~away if variant == "fewer rows" else whole
    account, told, refused = Account(), list[Statement](), list[str]()
    if (found := describe(data.take(looks[FIRST]), every, rules, FIRST, account, members[looks[FIRST]])) is None:
        return Found(0, [], [FIRST], 0)
    told += found
    own, used = data.take(looks[FIRST]), list[str]()
    for _ in range(TRIES):  # a job that is taken
        names = rng.choice(every, int(rng.integers(1, 4)), replace=False).tolist()
        if (answer := job(own, names, rules, account, members[looks[FIRST]])) is not None:
            break
    if answer is None:
        refused.append(JOB)
    else:
        told += answer[0]
        looks[JOB] = np.zeros(data.n_rows, bool)
        looks[JOB][np.flatnonzero(looks[FIRST])[answer[1]]] = True
        used = names
    again = data.take(looks[SECOND])
    if variant == VARIANTS[0]:
        inner = data.columns["visits"].inner
        assert inner is not None
        visits = again.columns["visits"]._replace(inner=np.unique(np.r_[inner[:2], inner[2:] + 1]))
        again = Data({**again.columns, "visits": visits}, again.times, again.events, np.arange(100.0, 2000, 100.0))
    some = [name for name in every if name != rng.choice(every)]
    if (found := describe(again, some, rules, SECOND, account, members[looks[SECOND]])) is None:
        refused.append(SECOND)
        del looks[SECOND]
    else:
        told += [one for one in found if one.column != "curve" or variant != VARIANTS[0]]
    attacker = Attacker(data.with_curve(), looks, told, used)
    for one in told:
        assert one.least - 1e-6 <= attacker.truth(one) <= one.most + 1e-6, one
    hidden, narrow = 0, list[Narrow]()
    for look, of in ((FIRST, data), (SECOND, again)):
        bins = {name: bins_of(one) for name, one in of.with_curve().items()}
        for name, cells in attacker.hidden(look, bins, least).items() if look in looks else ():
            hidden += len(cells)
            narrow += attacker.narrow(look, name, cells, least)
    return Found(hidden, narrow, refused, len(told))
