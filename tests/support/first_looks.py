"""An attacker on what `describe` tells: every number of two of them and of one job, as bounds of sums of rows in cells.

Every number that is told is a statement: a weighted sum of rows, in some cells of a column and of the groups, lies between two
numbers. The attacker has all counts of three clients, of whom it looks for one's rows, and of the sums that they mask together
the means exactly, as the server does, and the standard deviations as they are printed. It also knows which rows one look has more
than the other, and how many. By integer programming it bounds how often each cell occurs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from fedkern.algorithms.exchanges.described import AskCells, AskParts
from fedkern.disclosure.measures import MANY, OF_AN_ERROR, rounded, step
from fedkern.disclosure.rules import NEAR_ROWS, Rules
from fedkern.jobs.holding import told
from fedkern.jobs.load import config_of
from fedkern.methods.describe import keys, run
from fedkern.methods.describe.counts import Client
from fedkern.methods.describe.model import TIMES, Counted, DescribeModel
from fedkern.methods.describe.rows import Rows
from fedkern.models import encoding
from fedkern.privacy.sketch import Sketch

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

BY, CURVE = "by", "curve"
FIRST, SECOND, JOB = "first", "second", "job"
OTHERS = ("second client", "third client")  # who tell the same rows in both looks
NODES = (20, 500)  # that one solver looks at, first and in the end; what it has found by then is a bound all the same


class Column(NamedTuple):
    """A column of cells, of which the last one is that of missing ones."""

    codes: Codes
    cells: int
    values: Array | None = None  # of the other cells, where it is a number's


class Statement(NamedTuple):
    """A sum of rows, in cells (with their weights) of a column and in groups, lies between two numbers."""

    column: str
    groups: tuple[int, ...]
    weights: Mapping[int, float]
    least: float
    most: float
    where: tuple[str, ...]  # whose rows


@dataclass(frozen=True)
class Data:
    """Rows: their groups, columns, and survival times."""

    columns: Mapping[str, Column]
    times: Array
    events: Array

    def take(self, rows: NDArray[np.bool_] | Codes) -> Data:
        """Returns some of the rows."""
        columns = {name: one._replace(codes=one.codes[rows]) for name, one in self.columns.items()}
        return Data(columns, self.times[rows], self.events[rows])

    def beside(self, other: Data) -> Data:
        """Returns these rows and others."""
        codes = {name: np.concatenate([one.codes, other.columns[name].codes]) for name, one in self.columns.items()}
        times, events = (np.concatenate(both) for both in ((self.times, other.times), (self.events, other.events)))
        return Data({name: one._replace(codes=codes[name]) for name, one in self.columns.items()}, times, events)

    @property
    def n_rows(self) -> int:
        return len(self.times)

    def with_curve(self, ends: Array) -> dict[str, Column]:
        """Returns the columns, with the cells of the curve as one: events of each interval, then censored rows, then others."""
        k = len(ends) + 1
        lacking = ~(np.isfinite(self.times) & np.isfinite(self.events))
        codes = np.where(lacking, 2 * k, np.searchsorted(ends, self.times) + k * (self.events == 0))
        return {**self.columns, CURVE: Column(codes, 2 * k + 1)}


@dataclass
class Account:
    """What a holder keeps: what was told of columns and tables, what jobs told, and sketches of rows."""

    told: dict[str, told.Told] = field(default_factory=dict)
    values: list[told.Values] = field(default_factory=list)
    rows: list[Sketch] = field(default_factory=list)  # of looks
    of_jobs: list[Sketch] = field(default_factory=list)


class Look:
    """What `describe` tells of clients' rows, by its own code: where its bins end, the counts of parts, and masked sums.

    Parameters
    ----------
    data, accounts : of each client
    columns : what the job file declares of columns
    """

    def __init__(
        self, data: Sequence[Data], names: Sequence[str], rules: Rules, accounts: Sequence[Account], columns: Mapping[str, Any]
    ) -> None:
        first = data[0].columns

        def levels(name: str) -> encoding.Column:
            one = first[name]
            if one.values is not None:
                return encoding.Column(name, "numeric", None, 0.0, 1.0)
            return encoding.Column(name, "categorical", tuple(map(str, range(one.cells - 1))))

        job = {"group": BY, "time": "time", "event": "event"}
        raw = {"job": {"method": "describe"}, "model": job, "data": {"columns": columns}, "disclosure": {"level": "standard"}}
        time = encoding.Column("time", "numeric", None, 0.0, 1.0)
        every = (*map(levels, (BY, *names)), time, encoding.Column("event", "categorical", ("0", "1")))
        self.data, self.names = data, names
        self.model = DescribeModel(
            config_of(keys, raw), ("first", *OTHERS[: len(data) - 1]), encoding=encoding.Encoding(every, None)
        )
        self.clients = [self.client(own, rules, account) for own, account in zip(data, accounts, strict=True)]
        nothing = np.zeros(0)
        agreed = run.Agreed(self.model.public_ends, frozenset(), np.zeros(len(self.model.numeric)), nothing, nothing)
        self.scales = [client.values() for client in self.clients]
        self.agreed = run._with_ends(agreed, self.model, self.scales)

    def client(self, data: Data, rules: Rules, account: Account) -> Client:
        columns = {name: data.columns[name] for name in (BY, *self.names)}
        numbers = {name: numbers_of(one) for name, one in columns.items() if one.values is not None}
        codes = {name: np.where(one.codes == one.cells - 1, -1, one.codes) for name, one in columns.items() if one.values is None}
        own = Rows(data.n_rows, {**numbers, "time": data.times}, codes, data.events)
        return Client(self.model, own, rules, account.told, account.values)

    def ends_of(self, name: str) -> Array:
        ends: Array = np.unique(self.agreed.ends[self.model.numeric.index(name)])
        return ends

    def cells_of(self, name: str, fine: Mapping[str, Column], ends: Array) -> list[list[int]]:
        """Returns the cells that the attacker knows of, in each cell of a column; the last is that of missing ones."""
        if name == TIMES:
            inner, bins, k = self.agreed.ends[self.model.numeric.index("time")], self.model.bins, len(ends) + 1
            at = np.searchsorted(inner, [*ends, np.inf])
            return [np.flatnonzero(at == i % bins).__add__(k * (i >= bins)).tolist() for i in range(2 * bins)] + [[2 * k]]
        column = fine[name]
        if column.values is None:
            return [[k] for k in range(column.cells)]
        at = np.searchsorted(self.agreed.ends[self.model.numeric.index(name)], column.values, "right")
        return [np.flatnonzero(at == k).tolist() for k in range(self.model.size(name) - 1)] + [[column.cells - 1]]

    def tell(self, where: str, accounts: Sequence[Account], ends: Array) -> list[Statement]:
        """Returns all numbers, and notes them; `ends`: of the intervals that the attacker knows of."""
        model, said, looks = self.model, list[Statement](), (where, *OTHERS[: len(self.data) - 1])
        own = [client.parts(AskParts(0, self.agreed.ends, self.agreed.centre)) for client in self.clients]
        told = model.common([one.first for one in own])
        sums, _ = model.sums(model.common_sums(told, [one.sums for one in own]))
        every = tuple(range(self.data[0].columns[BY].cells))
        for client, account, look, scale, data in zip(self.clients, accounts, looks, self.scales, self.data, strict=True):
            fine = data.with_curve(ends)
            account.told |= json.loads(json.dumps(client.telling(told)))
            for (name, by), counts in model.split(client.cells(AskCells(0, model.numbers(told))).counts).items():
                both, cells = told[Counted(name, by)], self.cells_of(name, fine, ends)
                for first, second in product(*(both or ((), ()))):
                    n, column = counts[min(first), min(second)], CURVE if name == TIMES else name
                    weights = dict.fromkeys((cell for k in first for cell in cells[k]), 1.0)
                    said.append(Statement(column, second if by else every, weights, n, n, (look,)))
            for j, name in model.summed:
                if scale.scale[j, 0]:
                    mean, sd = scale.scale[j, 1:].tolist()
                    # The unit is of half the sd before it is rounded, so no larger.
                    said += windows(name, every, fine[name], (mean, step(sd) / 2), (sd, step(sd) / 2), (look,))
        for j, name in model.summed:
            groups = np.unique(sums[j, :-1][sums[j, :-1] >= 0])
            parts = [tuple(np.flatnonzero(sums[j, :-1] == k).tolist()) for k in groups] + [every] * int(sums[j, -1] >= 0)
            for part in parts:
                inside = np.concatenate(
                    [numbers_of(one.columns[name])[np.isin(one.columns[BY].codes, part)] for one in self.data]
                )
                if not (n := int(np.isfinite(inside).sum())):
                    continue
                mean, sd = float(np.nanmean(inside)), float(np.nanstd(inside, ddof=1))
                error = sd / math.sqrt(2 * n)
                both = (mean, 1e-9 * (1 + abs(mean))), (rounded(sd, error), step(OF_AN_ERROR * error) / 2)
                said += windows(name, part, self.data[0].columns[name], *both, looks)
        return said


def numbers_of(column: Column) -> Array:
    assert column.values is not None
    return np.append(column.values, np.nan)[column.codes]


def sketch_of(members: NDArray[np.uint64]) -> Sketch:
    return Sketch.of("key", members, np.ones(len(members), np.uint64))


def _near(rows: Sketch, earlier: Sequence[Sketch], least: int) -> bool:
    return any(0 < (rows.apart(before) or 0) < least for before in earlier)


def windows(
    name: str,
    groups: tuple[int, ...],
    column: Column,
    mean: tuple[float, float],
    sd: tuple[float, float],
    where: tuple[str, ...],
) -> list[Statement]:
    """Returns what mean and sd, each with how far off it may be, say of the counts of values."""
    assert column.values is not None
    x, (centre, off) = column.values, mean
    low, high = max(sd[0] - sd[1] * 1.05, 0.0), sd[0] + sd[1] * 1.05  # rows, or rows less one, divide the squares
    weights = [
        (x - (centre - off), 0.0, math.inf),
        (x - (centre + off), -math.inf, 0.0),
        ((x - centre) ** 2 - low**2, -(low**2), math.inf),
        ((x - centre) ** 2 - high**2 - off**2, -math.inf, -(high**2)),
    ]
    return [Statement(name, groups, dict(enumerate(own.tolist())), least, most, where) for own, least, most in weights]


def job(
    data: Data, names: Sequence[str], rules: Rules, account: Account, members: NDArray[np.uint64]
) -> tuple[list[Statement], NDArray[np.bool_]] | None:
    """Returns what a job's summary tells of rows without a missing cell, and which these are; None where it is refused."""
    least, groups = rules.rows_per_value, tuple(range(data.columns[BY].cells))
    there = np.all([data.columns[name].codes < data.columns[name].cells - 1 for name in names], axis=0)
    rows, said, values = sketch_of(members[there]), list[Statement](), dict[str, list[tuple[list[str], int]]]()
    if there.sum() < rules.rows or _near(rows, account.rows, NEAR_ROWS):
        return None
    every, n_rows = range(data.columns[names[0]].cells), int(there.sum())
    said.append(Statement(names[0], groups, dict.fromkeys(every, 1.0), n_rows, n_rows, (JOB,)))
    for name in names:
        column = data.columns[name]
        codes = column.codes[there]
        said.append(Statement(name, groups, {column.cells - 1: 1.0}, 0, 0, (JOB,)))
        found, times = (own.tolist() for own in np.unique(codes, return_counts=True))
        if len(found) <= MANY or column.values is None:
            words = found if column.values is None else column.values[found].tolist()
            values[name] = [([str(word)], n) for word, n in zip(words, times)]
        if column.values is not None and len(found) > 2:
            for power in (1, 2):
                total = float((column.values[codes] ** power).sum())
                said.append(Statement(name, groups, dict(enumerate((column.values**power).tolist())), total, total, (JOB,)))
            continue
        if min(times) < least:
            return None
        counts = np.bincount(codes, minlength=column.cells - 1)
        said += [Statement(name, groups, {level: 1.0}, n, n, (JOB,)) for level, n in enumerate(counts.tolist())]
    if told.near(account.told, values):
        return None
    account.values.append(values)
    account.of_jobs.append(rows)
    return said, there


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
        inside = self.of_looks(statement.where)[self.segment]
        return float((weight[column.codes] * np.isin(self.columns[BY].codes, statement.groups) * inside).sum())

    def of_looks(self, looks: Sequence[str]) -> NDArray[np.bool_]:
        """Returns which segments have rows of any of these looks."""
        return np.asarray(self.segments[:, [self.looks.index(look) for look in looks]].any(axis=1))

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
            segments = np.flatnonzero(self.of_looks(one.where))
            if one.column == BY:  # what is told of a group is told of all cells of its rows
                add(one.least, one.most, (places[name][np.ix_([*one.weights], segments)], 1.0))
            # Sums of another column's values say next to nothing of this one, and take the solver long.
            elif one.column == name or (one.column in used and {*one.weights.values()} == {1.0}):
                slack = 1e-7 * max(1.0, abs(one.least)) if {*one.weights.values()} != {1.0} else 0.0
                where = places[one.column][np.ix_(one.groups, segments, [*one.weights])]
                add(one.least - slack, one.most + slack, (where, [*one.weights.values()]))
        for g in range(self.groups):
            for s, looks in enumerate(self.segments):
                for one in used[1:]:
                    add(0, 0, (places[name][g, s], 1.0), (places[one][g, s], -1.0))
                if BY in used:
                    add(0, 0, (np.delete(places[BY][g, s], g), 1.0))
                # Each row of the first look that the job leaves out lacks a cell that it uses.
                if self.names and looks[self.looks.index(FIRST)] and not looks[self.looks.index(JOB)]:
                    add(0, math.inf, (places[name][g, s], -1.0), *((places[one][g, s, -1:], 1.0) for one in self.names))
        of_looks = np.delete(self.segments, [k for k, look in enumerate(self.looks) if look == JOB], axis=1)
        for pattern in np.unique(of_looks, axis=0):  # how many rows looks share is known, and not which of them a job has
            of_both = np.flatnonzero((of_looks == pattern).all(axis=1))
            n = int(np.isin(self.segment, of_both).sum())
            add(n, n, (places[name][:, of_both], 1.0))
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
                        if (name == CURVE) <= (own & (by == g)).sum() < least and (inside & (by == g)).any()
                    ]
                    own_cells += [(tuple(cells), g) for g in some]
        return {name: cells for name, cells in out.items() if cells}


# Data, and attacks on it --------------------


def simulated(seed: int | tuple[int, int]) -> Data:
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
    times = np.ceil(rng.exponential(500, n) + 1)
    events = (times <= (limit := rng.uniform(100, 2500, n))).astype(np.float64)
    times = np.minimum(times, np.ceil(limit))
    times[rng.choice(n, int(rng.integers(0, 4)), replace=False)] = np.nan
    return Data(columns, times, events)


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
        told.append(Statement(name, groups, dict.fromkeys(range(column.cells), 1.0), data.n_rows, data.n_rows, (where,)))
        for group in (groups, *(((g,) for g in groups) if name != BY else ())):
            counts = np.bincount(column.codes[np.isin(by, group)], minlength=column.cells).tolist()
            own = [(cell, n) for cell, n in enumerate(counts) if not 0 < n < rules.rows_per_value]
            told += [Statement(name, group, {cell: 1.0}, n, n, (where,)) for cell, n in own]
        if column.values is not None:
            there = column.codes[column.codes < len(column.values)]
            for power in (1, 2):
                total = float((column.values[there] ** power).sum())
                told.append(Statement(name, groups, dict(enumerate((column.values**power).tolist())), total, total, (where,)))
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


def attack(seed: int, rules: Rules, clients: int = 3) -> Found:
    """Bounds each hidden cell of two looks by all that both and a job tell; of one client, or two, there are no sums."""
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
    accounts, said, refused = [Account() for _ in range(clients)], list[Statement](), list[str]()
    others, account = [simulated((seed, k)) for k in range(1, clients)], accounts[0]
    own = data.take(looks[FIRST])
    first = Look([own, *others], every, rules, accounts, {})
    some = [name for name in every if name != rng.choice(every)]
    # Other bins have other public limits.
    other = {"visits": {"lower": 1.0, "upper": 17.0}, "time": {"lower": 0.0, "upper": 1700.0}} if variant == VARIANTS[0] else {}
    again = [data.take(looks[SECOND]), *others]
    ends = np.union1d(first.ends_of("time"), Look(again, some, rules, accounts, other).ends_of("time"))
    said += first.tell(FIRST, accounts, ends)
    account.rows.append(sketch_of(members[looks[FIRST]]))
    used, answer = list[str](), None
    for _ in range(TRIES):  # a job that is taken
        names = rng.choice(every, int(rng.integers(1, 4)), replace=False).tolist()
        if (answer := job(own, names, rules, account, members[looks[FIRST]])) is not None:
            break
    if answer is None:
        refused.append(JOB)
    else:
        said += answer[0]
        looks[JOB] = np.zeros(data.n_rows, bool)
        looks[JOB][np.flatnonzero(looks[FIRST])[answer[1]]] = True
        used = names
    second = Look(again, some, rules, accounts, other)
    if _near(sketch_of(members[looks[SECOND]]), [*account.rows, *account.of_jobs], NEAR_ROWS):
        refused.append(SECOND)
        del looks[SECOND]
    else:
        said += second.tell(SECOND, accounts, ends)
    everybody = reduce(Data.beside, others, data)
    fine, whose = everybody.with_curve(ends), np.repeat(range(clients), [data.n_rows, *(one.n_rows for one in others)])
    of_all = {look: np.append(inside, np.zeros(len(whose) - data.n_rows, bool)) for look, inside in looks.items()}
    of_all |= {look: whose == k + 1 for k, look in enumerate(OTHERS[: clients - 1])}
    # Other clients' rows say something where sums are of all.
    pooled = {one.column for one in said if len(one.where) > 1}
    attackers = [
        Attacker(data.with_curve(ends), looks, [one for one in said if not {*OTHERS} & {*one.where}], used),
        Attacker(fine, of_all, [one for one in said if one.column in (BY, *pooled) or not {*OTHERS} & {*one.where}], used),
    ]
    for one in attackers[1].told:
        assert one.least - 1e-6 <= attackers[1].truth(one) <= one.most + 1e-6, one
    hidden, narrow = 0, list[Narrow]()
    for look, of in ((FIRST, first), (SECOND, second)):
        bins = {name: [[k] for k in range(fine[name].cells)] for name in (BY, *of.names)}
        bins |= {CURVE: of.cells_of(TIMES, fine, ends), "visits": of.cells_of("visits", fine, ends) if "visits" in bins else []}
        for name, cells in attackers[0].hidden(look, bins, least).items() if look in looks else ():
            hidden += len(cells)
            narrow += attackers[name in pooled].narrow(look, name, cells, least)
    return Found(hidden, narrow, refused, len(said))
