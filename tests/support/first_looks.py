"""An attacker on what `describe` tells: every number of two of them and of one job, as bounds of sums of rows in cells.

Every number that is told is a statement: a weighted sum of rows, in some cells of a column and of the groups, lies between two
numbers. The attacker has all counts of one of three clients, and each sum that this one masks: as if the server and both others
told each other all, so that no mask hides sums, squares and products. It also knows which rows one look has more than the other,
and how many. By integer programming it bounds how often each cell occurs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_array, vstack

from fedkern.algorithms.exchanges.described import AskCells, AskParts, AskSums
from fedkern.arrays import Array
from fedkern.disclosure import curves
from fedkern.disclosure.measures import MANY, OF_AN_ERROR, step
from fedkern.disclosure.rules import NEAR_ROWS, Rules
from fedkern.jobs.holding import told
from fedkern.jobs.load import config_of
from fedkern.methods.describe import keys, run
from fedkern.methods.describe.counts import Client
from fedkern.methods.describe.model import TIMES, Agreed, Counted, DescribeModel
from fedkern.methods.describe.rows import Rows
from fedkern.models import encoding
from fedkern.privacy.sketch import Sketch

Codes = NDArray[np.int64]

BY, CURVE = "by", "curve"
FIRST, SECOND, JOB = "first", "second", "job"
OF_SUMS = ("visits", "age")  # columns of many values
PAIR = "both"  # of these
NODES = (20, 500)  # that one solver looks at, first and in the end; what it has found by then is a bound all the same


class Column(NamedTuple):
    """A column of cells, of which the last one is that of missing ones."""

    codes: Codes
    cells: int
    values: Array | None = None  # of the other cells, where it is a number's


class Statement(NamedTuple):
    """A sum of rows, in cells (with their weights) of a column and in groups, lies between two numbers.

    Of both columns of sums the cells are those of the one, times those of the other, in all groups.
    """

    column: str
    groups: tuple[int, ...]
    weights: Mapping[int, float]
    least: float
    most: float
    look: str


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
            config_of(keys, raw), ("first", "second", "third")[: len(data)], encoding=encoding.Encoding(every, None)
        )
        self.clients = [self.client(own, rules, account) for own, account in zip(data, accounts, strict=True)]
        nothing = np.zeros(0)
        agreed = Agreed(self.model.public_ends, frozenset(), np.zeros((len(self.model.numeric), 2)), nothing, nothing)
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

    def tell(self, look: str, accounts: Sequence[Account], ends: Array) -> list[Statement]:
        """Returns all numbers of the first client, and notes those of all; `ends`: of intervals that the attacker knows of."""
        model, said = self.model, list[Statement]()
        own = [client.parts(AskParts(0, self.agreed.ends, self.agreed.scale)) for client in self.clients]
        told = model.common([one.first for one in own])
        sums = model.common_sums(told, [one.sums for one in own])
        counts = [client.cells(AskCells(0, model.numbers(told))).counts for client in self.clients]
        for client, account in zip(self.clients, accounts, strict=True):
            account.told |= json.loads(json.dumps(client.telling(told)))
        every, fine = tuple(range(self.data[0].columns[BY].cells)), self.data[0].with_curve(ends)
        for (name, by), of_table in model.split(counts[0]).items():
            both, cells = told[Counted(name, by)], self.cells_of(name, fine, ends)
            for first, second in product(*(both or ((), ()))):
                n, column = of_table[min(first), min(second)], CURVE if name == TIMES else name
                weights = dict.fromkeys((cell for k in first for cell in cells[k]), 1.0)
                said.append(Statement(column, second if by else every, weights, n, n, look))
        for j, name in model.summed:
            if self.scales[0].scale[j, 0]:
                mean, sd = self.scales[0].scale[j, 1:].tolist()
                # The unit is of half the sd before it is rounded, so no larger.
                said += scale(name, every, fine[name], (mean, step(sd) / 2), (sd, step(sd) / 2), look)
        if not model.tells_sums:
            return said
        moments, wanted = self.clients[0].moments(AskSums(0, sums)), model.sums(sums)[0]
        deviations = {name: np.asarray(fine[name].values) - self.agreed.scale[j, 0] for j, name in model.summed}
        for j, name in model.summed:
            x, sd = deviations[name], self.agreed.scale[j, 1]
            for group in np.flatnonzero(moments.each[j, :, 0]).tolist():
                inside = every if group == len(every) else tuple(np.flatnonzero(wanted[j, :-1] == group).tolist())
                for values, total, error in zip((x, x**2), moments.each[j, group, 1:], (sd, 2**0.5 * sd**2)):
                    said += rounded_sum(name, inside, dict(enumerate(values)), moments.each[j, group, 0], total, error, look)
        for pair, (n, *totals) in zip(model.pairs, moments.pairs.tolist()):
            if n and pair == OF_SUMS:
                (x, y), (sx, sy) = (
                    (deviations[name] for name in pair),
                    (self.agreed.scale[model.numeric.index(name), 1] for name in pair),
                )
                errors = (sx, sy, 2**0.5 * sx**2, 2**0.5 * sy**2, sx * sy)
                for values, total, error in zip(of_both(x, y), totals, errors):
                    weights = {k: value for k, value in enumerate(values.tolist()) if value == value}
                    said += rounded_sum(PAIR, every, weights, n, total, error, look)
        return said


def numbers_of(column: Column) -> Array:
    assert column.values is not None
    return np.append(column.values, np.nan)[column.codes]


def of_both(x: Array, y: Array) -> Iterator[Array]:
    """Yields two values, their squares and their product in all cells of two columns, nan where one is missing."""
    of_x, of_y = np.repeat(np.append(x, np.nan), len(y) + 1), np.tile(np.append(y, np.nan), len(x) + 1)
    lacks = 0 * of_x * of_y
    yield from (of_x + lacks, of_y + lacks, of_x**2 + lacks, of_y**2 + lacks, of_x * of_y)


def sketch_of(members: NDArray[np.uint64]) -> Sketch:
    return Sketch.of("key", members, np.ones(len(members), np.uint64))


def _near(rows: Sketch, earlier: Sequence[Sketch], least: int) -> bool:
    return any(0 < (rows.apart(before) or 0) < least for before in earlier)


def rounded_sum(
    name: str, groups: tuple[int, ...], values: Mapping[int, float], n: float, total: float, sd: float, look: str
) -> Iterator[Statement]:
    """Yields what a sum of values of so many rows says, that is rounded to a tenth of its error.

    Rows without a cell count as if they had the mean of others: so the mean of these is known to a tenth of its error.
    """
    off = step(OF_AN_ERROR * sd * n**0.5) / 2
    for bound, least, most in (((total - off) / n, 0.0, math.inf), ((total + off) / n, -math.inf, 0.0)):
        yield Statement(name, groups, {cell: value - bound for cell, value in values.items()}, least, most, look)


def scale(
    name: str, groups: tuple[int, ...], column: Column, mean: tuple[float, float], sd: tuple[float, float], look: str
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
    return [Statement(name, groups, dict(enumerate(own.tolist())), least, most, look) for own, least, most in weights]


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
    said.append(Statement(names[0], groups, dict.fromkeys(every, 1.0), n_rows, n_rows, JOB))
    for name in names:
        column = data.columns[name]
        codes = column.codes[there]
        said.append(Statement(name, groups, {column.cells - 1: 1.0}, 0, 0, JOB))
        found, times = (own.tolist() for own in np.unique(codes, return_counts=True))
        if len(found) <= MANY or column.values is None:
            words = found if column.values is None else column.values[found].tolist()
            values[name] = [([str(word)], n) for word, n in zip(words, times)]
        if column.values is not None and len(found) > 2:
            for power in (1, 2):
                total = float((column.values[codes] ** power).sum())
                said.append(Statement(name, groups, dict(enumerate((column.values**power).tolist())), total, total, JOB))
            continue
        if min(times) < least:
            return None
        counts = np.bincount(codes, minlength=column.cells - 1)
        said += [Statement(name, groups, {level: 1.0}, n, n, JOB) for level, n in enumerate(counts.tolist())]
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
        codes, cells = self.codes(statement.column)
        weight = np.zeros(cells)
        weight[list(statement.weights)] = list(statement.weights.values())
        inside = self.of_look(statement.look)[self.segment]
        return float((weight[codes] * np.isin(self.columns[BY].codes, statement.groups) * inside).sum())

    def codes(self, name: str) -> tuple[Codes, int]:
        """Returns the cell of each row in a column, or in both columns of sums, and how many cells there are."""
        if name != PAIR:
            return self.columns[name].codes, self.columns[name].cells
        x, y = (self.columns[one] for one in OF_SUMS)
        return x.codes * y.cells + y.codes, x.cells * y.cells

    def of_look(self, look: str) -> NDArray[np.bool_]:
        """Returns which segments have rows of a look."""
        return np.asarray(self.segments[:, self.looks.index(look)])

    def allowed(self, name: str) -> tuple[csr_array, Array, Array, Array]:
        """Returns `limits`, which are found once."""
        if name not in self.known:
            self.known[name] = self.limits(name)
        return self.known[name]

    def limits(self, name: str) -> tuple[csr_array, Array, Array, Array]:
        """Returns all that was told as limits of sums of rows (segment by group by cell) of a column, and of those of the job.

        The last array has the true rows. Of a column of sums the other one is there, too, and the rows with cells of both.
        """
        paired = name in OF_SUMS and any(one.column == PAIR for one in self.told)
        used = list(dict.fromkeys([name, *self.names, *OF_SUMS * paired]))
        shape = {one: (self.groups, len(self.segments), self.columns[one].cells) for one in used}
        shape |= {PAIR: (1, len(self.segments), self.codes(PAIR)[1])} if paired else {}
        starts = np.cumsum([0, *map(math.prod, shape.values())])
        places = {one: start + np.arange(math.prod(size)).reshape(size) for start, (one, size) in zip(starts, shape.items())}
        rows, least, most = list[csr_array](), list[float](), list[float]()

        def add(low: float, high: float, *terms: tuple[NDArray[np.int64], ArrayLike]) -> None:
            where = np.concatenate([place.ravel() for place, _ in terms])
            weights = np.concatenate([np.broadcast_to(weight, place.shape).ravel() for place, weight in terms])
            rows.append(csr_array((weights.astype(float), (np.zeros(len(where), int), where)), shape=(1, starts[-1])))
            least.append(low)
            most.append(high)

        for one in self.told:
            segments = np.flatnonzero(self.of_look(one.look))
            if one.column == BY:  # what is told of a group is told of all cells of its rows
                add(one.least, one.most, (places[name][np.ix_([*one.weights], segments)], 1.0))
            # Sums of another column's values say next to nothing of this one, and take the solver long.
            elif one.column in places and (one.column in (name, PAIR) or {*one.weights.values()} == {1.0}):
                slack = 1e-7 * max(1.0, abs(one.least)) if {*one.weights.values()} != {1.0} else 0.0
                where = places[one.column][np.ix_([0] if one.column == PAIR else one.groups, segments, [*one.weights])]
                add(one.least - slack, one.most + slack, (where, [*one.weights.values()]))
        for s, looks in enumerate(self.segments):
            for g in range(self.groups):
                for one in used[1:]:
                    add(0, 0, (places[name][g, s], 1.0), (places[one][g, s], -1.0))
                if BY in used:
                    add(0, 0, (np.delete(places[BY][g, s], g), 1.0))
                # Each row of the first look that the job leaves out lacks a cell that it uses.
                if self.names and looks[self.looks.index(FIRST)] and not looks[self.looks.index(JOB)]:
                    add(0, math.inf, (places[name][g, s], -1.0), *((places[one][g, s, -1:], 1.0) for one in self.names))
            if paired:
                x, y = (places[one][:, s] for one in OF_SUMS)
                of_pair = places[PAIR][0, s].reshape(x.shape[1], y.shape[1])
                for own, joint in ((x, of_pair), (y, of_pair.T)):
                    for k in range(own.shape[1]):
                        add(0, 0, (own[:, k], 1.0), (joint[k], -1.0))
        of_looks = np.delete(self.segments, [k for k, look in enumerate(self.looks) if look == JOB], axis=1)
        for pattern in np.unique(of_looks, axis=0):  # how many rows looks share is known, and not which of them a job has
            of_same = np.flatnonzero((of_looks == pattern).all(axis=1))
            n = int(np.isin(self.segment, of_same).sum())
            add(n, n, (places[name][:, of_same], 1.0))
        truth = np.zeros(starts[-1])
        for one, of_column in places.items():
            groups = np.zeros_like(self.segment) if one == PAIR else self.columns[BY].codes
            np.add.at(truth, of_column[groups, self.segment, self.codes(one)[0]], 1.0)
        return vstack(rows, format="csr"), np.array(least), np.array(most), truth

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
        "visits": Column(lacking(visits := np.minimum(rng.negative_binomial(4, 0.35, n), 17), 19, 9), 19, np.arange(18.0)),
    }
    times = np.ceil(rng.exponential(500, n) + 1)
    events = (times <= (limit := rng.uniform(100, 2500, n))).astype(np.float64)
    times = np.minimum(times, np.ceil(limit))
    times[rng.choice(n, int(rng.integers(0, 4)), replace=False)] = np.nan
    age = np.clip(np.round(3 + 0.3 * visits + rng.normal(0, 2, n)), 0, 11)
    columns["age"] = Column(lacking(age, 13, 9), 13, np.arange(12.0))
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


def attack(seed: int, rules: Rules, clients: int = 3, only: str = "") -> Found:
    """Bounds each hidden cell of two looks (of one column) by all that both and a job tell; of two clients there are no sums."""
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
    fine = data.with_curve(ends)
    attacker = Attacker(fine, looks, said, used)
    for one in said:
        assert one.least - 1e-6 <= attacker.truth(one) <= one.most + 1e-6, one
    hidden, narrow = 0, list[Narrow]()
    for look, of in ((FIRST, first), (SECOND, second)):
        bins = {name: [[k] for k in range(fine[name].cells)] for name in (BY, *of.names)}
        bins |= {CURVE: of.cells_of(TIMES, fine, ends)} | {
            name: of.cells_of(name, fine, ends) for name in OF_SUMS if name in bins
        }
        for name, cells in attacker.hidden(look, bins, least).items() if look in looks else ():
            if only not in ("", name):
                continue
            hidden += len(cells)
            narrow += attacker.narrow(look, name, cells, least)
    return Found(hidden, narrow, refused, len(said))


def attack_late(seed: int, rules: Rules, told: Rules | None = None) -> Found:
    """Bounds how many rows of each interval of entry end in which part of a curve, which is told by these or other rules.

    A row ends no earlier than it enters.
    """
    rng = np.random.default_rng([seed, 4])
    n, bins = int(rng.integers(100, 800)), 50
    group, grid = rng.integers(0, 2, n), np.arange(30, 30 * bins, 30.0)
    time, limit = np.ceil(rng.exponential(600 - 200 * group)), np.ceil(rng.uniform(0, 1500, n))
    exits = np.minimum(time, limit)
    entry = np.where(rng.random(n) < rng.choice([0, 0.3, 0.7]), 0, np.floor(exits * rng.random(n)))
    out = np.searchsorted(grid, exits) + bins * (time > limit)
    into = 2 * bins + np.where(entry > 0, 1 + np.searchsorted(grid, entry, side="right"), 0)
    counts = np.array([np.bincount(np.append(out[group == g], into[group == g]), minlength=3 * bins + 2) for g in (0, 1)])
    parts = curves.parts(counts, bins, range(len(grid)), told or rules)
    if parts is None:
        return Found(0, [], [FIRST], 0)
    hidden, narrow, part_of = 0, list[Narrow](), {cell: k for k, part in enumerate(parts) for cell in part}
    enters, leaves = (sorted({part_of[cell] for cell in cells}) for cells in (range(2 * bins, 3 * bins + 1), range(2 * bins)))
    begins = np.array([min(max(cell - 2 * bins - 1, 0) for cell in parts[k]) for k in enters])
    ends = np.array([max(cell % bins for cell in parts[k] if cell < 2 * bins) for k in leaves])
    for g in (0, 1):
        rows = np.zeros((len(enters), len(leaves)))
        np.add.at(
            rows, tuple([of.index(part_of[cell]) for cell in own[group == g]] for of, own in ((enters, into), (leaves, out))), 1
        )
        can = (begins[:, None] <= ends) & (rows.sum(axis=1) > 0)[:, None] & (rows.sum(axis=0) > 0)
        places = np.arange(rows.size).reshape(rows.shape)
        lines = np.array([np.isin(places.ravel(), line) for line in (*places, *places.T)], float)
        for at in zip(*np.nonzero(can & (rows < rules.rows_per_value)), strict=True):
            one = (places == places[at]).ravel().astype(float)
            bounds = [(0, None if may else 0) for may in can.ravel()]
            least, most = (
                sign * linprog(sign * one, A_eq=lines, b_eq=lines @ rows.ravel(), bounds=bounds).fun for sign in (1, -1)
            )
            hidden += 1
            if most - least < rules.rows_per_value - 1e-6:
                narrow.append(Narrow(FIRST, CURVE, parts[leaves[at[1]]], g, round(least), round(most)))
    return Found(hidden, narrow, [], len(parts))
