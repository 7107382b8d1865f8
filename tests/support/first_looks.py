"""An attacker on what `describe` tells: every number of two of them and of one job, as bounds of sums of rows in cells.

Every number that is told is a statement: a weighted sum of rows, in some cells of a column and of the groups, lies between two
numbers. The attacker also knows which rows one look has more than the other, and how many. By integer programming it bounds how
often each cell occurs.
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
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from fedkern.algorithms.exchanges.described import AskCells, AskParts, AskSpread
from fedkern.disclosure.measures import MANY, OF_AN_ERROR, step
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
    where: str


@dataclass(frozen=True)
class Data:
    """One client's rows: their groups, columns, and survival times."""

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
    """What `describe` tells of one client's rows, by its own code: where its bins end, and the counts of parts.

    Parameters
    ----------
    columns : what the job file declares of columns
    """

    def __init__(self, data: Data, names: Sequence[str], rules: Rules, account: Account, columns: Mapping[str, Any]) -> None:
        def levels(name: str) -> encoding.Column:
            one = data.columns[name]
            if one.values is not None:
                return encoding.Column(name, "numeric", None, 0.0, 1.0)
            return encoding.Column(name, "categorical", tuple(map(str, range(one.cells - 1))))

        job = {"group": BY, "time": "time", "event": "event"}
        raw = {"job": {"method": "describe"}, "model": job, "data": {"columns": columns}, "disclosure": {"level": "standard"}}
        time = encoding.Column("time", "numeric", None, 0.0, 1.0)
        every = (*map(levels, (BY, *names)), time, encoding.Column("event", "categorical", ("0", "1")))
        self.data, self.names = data, names
        self.model = DescribeModel(config_of(keys, raw), ("one",), encoding=encoding.Encoding(every, None))
        numbers = {name: numbers_of(data.columns[name]) for name in names if data.columns[name].values is not None}
        codes = {name: one.codes for name, one in data.columns.items() if one.values is None}
        codes = {name: np.where(code == data.columns[name].cells - 1, -1, code) for name, code in codes.items()}
        own = Rows(data.n_rows, {**numbers, "time": data.times}, codes, data.events)
        self.client = Client(self.model, own, rules, account.told, account.values)
        agreed = run.Agreed(self.model.public_ends, frozenset(), np.zeros(0), np.zeros(len(self.model.numeric)))
        asked = AskSpread(0, np.ones(len(self.model.numeric)))
        self.agreed = run._with_ends(agreed, self.model, [self.client.values()], self.client.spread(asked).sums)

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

    def tell(self, where: str, account: Account, ends: Array) -> list[Statement]:
        """Returns all numbers, and notes them; `ends`: of the intervals that the attacker knows of."""
        client, fine, said = self.client, self.data.with_curve(ends), list[Statement]()
        parts = self.model.common([client.parts(AskParts(0, self.agreed.ends)).first])
        account.told |= json.loads(json.dumps(client.telling(self.model.told(parts))))
        answer = client.cells(AskCells(0, parts, self.agreed.centre))
        every = tuple(range(fine[BY].cells))
        for (name, by), counts in self.model.split(answer.counts).items():
            both, cells = self.model.told(parts)[Counted(name, by)], self.cells_of(name, fine, ends)
            for first, second in product(*(both or ((), ()))):
                n, column = counts[min(first), min(second)], CURVE if name == TIMES else name
                own = dict.fromkeys((cell for k in first for cell in cells[k]), 1.0)
                said.append(Statement(column, second if by else every, own, n, n, where))
        for j, name in enumerate(self.model.numeric):
            groups = (self.model.told(parts)[Counted(name, BY)] or ((), ()))[1] if name in fine else ()
            for part in (*groups, every) if name in fine else ():
                n, first, square = answer.each[j, -1 if part == every else min(part)]
                if n and (part == every or min(part) < len(every) - 1):
                    mean, sd = self.agreed.centre[j] + first / n, (max(square - first**2 / n, 0) / (n - 1)) ** 0.5
                    said += windows(name, part, fine[name], float(mean), float(sd), where, np.isin(fine[BY].codes, part))
        return said


def numbers_of(column: Column) -> Array:
    assert column.values is not None
    return np.append(column.values, np.nan)[column.codes]


def sketch_of(members: NDArray[np.uint64]) -> Sketch:
    return Sketch.of("key", members, np.ones(len(members), np.uint64))


def _near(rows: Sketch, earlier: Sequence[Sketch], least: int) -> bool:
    return any(0 < (rows.apart(before) or 0) < least for before in earlier)


def windows(
    name: str, groups: tuple[int, ...], column: Column, mean: float, sd: float, where: str, rows: NDArray[np.bool_]
) -> list[Statement]:
    """Returns what a rounded mean and standard deviation say of the counts of values."""
    assert column.values is not None
    x, n = column.values, int((column.codes[rows] < column.cells - 1).sum())
    of_mean, of_sd = (step(OF_AN_ERROR * error) / 2 * 1.01 for error in (sd * 1.05 / math.sqrt(n), sd * 1.05 / math.sqrt(2 * n)))
    low, high = max(sd - of_sd, 0.0), sd + of_sd
    weights = [
        (x - (mean - of_mean), 0.0, math.inf),
        (x - (mean + of_mean), -math.inf, 0.0),
        ((x - mean) ** 2 - low**2, -(low**2), math.inf),
        ((x - mean) ** 2 - high**2 - of_mean**2, -math.inf, -(high**2)),
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
    account, said, refused = Account(), list[Statement](), list[str]()
    own = data.take(looks[FIRST])
    first = Look(own, every, rules, account, {})
    some = [name for name in every if name != rng.choice(every)]
    # Other bins have other public limits.
    other = {"visits": {"lower": 1.0, "upper": 17.0}, "time": {"lower": 0.0, "upper": 1700.0}} if variant == VARIANTS[0] else {}
    again = data.take(looks[SECOND])
    ends = np.union1d(first.ends_of("time"), Look(again, some, rules, account, other).ends_of("time"))
    said += first.tell(FIRST, account, ends)
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
    second = Look(again, some, rules, account, other)
    if _near(sketch_of(members[looks[SECOND]]), [*account.rows, *account.of_jobs], NEAR_ROWS):
        refused.append(SECOND)
        del looks[SECOND]
    else:
        said += second.tell(SECOND, account, ends)
    fine = data.with_curve(ends)
    attacker = Attacker(fine, looks, said, used)
    for one in said:
        assert one.least - 1e-6 <= attacker.truth(one) <= one.most + 1e-6, one
    hidden, narrow = 0, list[Narrow]()
    for look, of in ((FIRST, first), (SECOND, second)):
        bins = {name: [[k] for k in range(fine[name].cells)] for name in (BY, *of.names)}
        bins |= {CURVE: of.cells_of(TIMES, fine, ends), "visits": of.cells_of("visits", fine, ends) if "visits" in bins else []}
        for name, cells in attacker.hidden(look, bins, least).items() if look in looks else ():
            hidden += len(cells)
            narrow += attacker.narrow(look, name, cells, least)
    return Found(hidden, narrow, refused, len(said))
