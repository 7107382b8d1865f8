"""Counts a client's rows, as far as `disclosure` lets them be told: one function for each question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...algorithms.exchanges.described import AskCells, AskParts, AskSpread, Cells, FewValues, OwnParts, Spread
from ...disclosure import cells, curves, measures
from ...disclosure.cells import Parts
from ...disclosure.rules import Rules
from ...jobs.holding import told as kept
from .model import TIMES, Both, Counted, DescribeModel, Told
from .rows import Rows

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
LOOKED_AT = 1 << 12  # first rows, in which a column of many values shows more than are told


@dataclass
class Client:
    """Holds a client's rows, and what it has been told of cells.

    Attributes
    ----------
    model, rows, rules : the job; its rows; how many must be in what is told
    earlier : name of a column, or of a table -> what was told of it before
    jobs : what each other job told of columns
    ends : (columns, ends) of bins
    own : the parts in which it would tell each table
    cell_of : column -> (n,) the cell that each row is in, once ends are known
    """

    model: DescribeModel
    rows: Rows
    rules: Rules
    earlier: Mapping[str, kept.Told] = field(default_factory=dict)
    jobs: Sequence[kept.Values] = ()
    ends: Array = field(default_factory=lambda: np.zeros((0, 0)))
    own: dict[Counted, Both | None] = field(default_factory=dict)
    cell_of: dict[str, Ints] = field(default_factory=dict)

    # The ends of bins ----------

    def values(self) -> FewValues:
        """Returns the values of columns of numbers that have few."""
        model, most = self.model, self.model.dims["values"]
        n, values = np.zeros(len(model.numeric)), np.zeros((len(model.numeric), most))
        for j, name in enumerate(model.numeric):
            there = measures.present(self.rows.values[name])
            found, times = np.unique(there, return_counts=True)
            if not model.here and (len(found) > most or self._measured(there)) and len(found):
                n[j] = most + 1 if self._measured(there) else -1
            elif len(found) > most:
                n[j], values[j] = -1 - most, np.quantile(there, np.linspace(0, 1, most))
            else:
                enough = found[times >= self.rules.rows_per_value]
                n[j] = len(enough) if len(enough) == len(found) else -1 - len(enough)
                values[j, : len(enough)] = enough
        return FewValues(0, n, values)

    def spread(self, asked: AskSpread) -> Spread:
        """Returns means and sds of columns of numbers, which decide on ends of bins."""
        sums = [self._sums(self.rows.values[name], 0.0) for name in self.model.numeric]
        return Spread(0, np.array(sums).reshape(-1, 3) * asked.told[:, None])

    # Which cells are told ----------

    def parts(self, asked: AskParts) -> OwnParts:
        """Returns the parts in which it would tell each table: what all tell is a function of these."""
        self.ends = asked.ends
        for table in self.model.tables:
            self.own[table] = self._parts(table)
        return OwnParts(0, self.model.numbers(self.own, None if self.model.whole else np.where(self._may(), 0.0, -1.0)))

    def _may(self) -> NDArray[np.bool_]:
        """Returns which sums it may tell, or has no rows for: of columns, of columns in each group, and of pairs.

        Of joined groups they may be told if they may of each: more rows have more values, and leverages below.
        """
        of_all, of_groups = list[bool](), list[bool]()
        for name, values in ((name, self.rows.values[name]) for name in self.model.numeric):
            groups = (self.own.get(Counted(name, self.model.group)) or ((), ()))[1] if self.model.group else ()
            inside = [values[np.isin(self._cell(self.model.group), part)] for part in groups]
            of_all.append(self._measured(values))
            of_groups.append(all(map(self._measured, inside)))
        found = self.products
        firsts, seconds = np.triu_indices(len(found.rows), 1)
        of_pairs = (np.isfinite(found.r) | (found.rows == 0))[firsts, seconds] if self.model.pairs else ()
        return np.array([*of_all, *of_groups, *of_pairs], np.bool_)

    def _measured(self, values: Array) -> bool:
        return measures.measured(values, self.rules) or not np.isfinite(values).any()

    @cached_property
    def products(self) -> measures.Products:
        """The products of columns of numbers about their means."""
        columns = [self.rows.values[name] for name in self.model.numeric if name in self.model.shown]
        centred = [own - (there.mean() if len(there := measures.present(own)) else 0.0) for own in columns]
        return measures.products(np.array(centred).reshape(-1, self.rows.n).T, self.rules)

    def _parts(self, table: Counted) -> Both | None:
        """Returns the parts in which it would tell a table; None where it tells nothing of it."""
        if self.model.whole:
            return self.model.all_told[table]
        counts, least = self.counts(table), self.rules.rows_per_value
        if table.first == TIMES:
            groups = self.model.parts_of(self.own, table.second)
            times, bins = cells.added(counts, groups).T, self.model.bins
            ends = self.ends[self.model.numeric.index(self.model.time)]
            may = np.flatnonzero((ends > 0) & (np.diff(ends, prepend=-np.inf) > 0)).tolist()
            found = curves.parts(times[:, :bins], times[:, bins:-1], times[:, -1], may, self.rules) if len(groups) else None
            return None if found is None else self._again(table, counts, (found, groups))
        if not table.second:
            return self._again(table, counts, (self._of_one(table.first, counts[:, 0]), ((0,),)))
        rows, columns = ((self.own[Counted(name)] or ((), ()))[0] for name in table)
        if not rows or not columns:
            return None
        both = zip(table, (rows, columns))
        at = [[min(part) for part in parts if min(part) < self.model.ordered(name)] for name, parts in both]
        into = self._into(table.first), self._into(table.second)
        joined = cells.cross(_added(counts, (rows, columns)), least, (at[0], at[1]), into)
        return None if joined is None else self._again(table, counts, (_of_cells(joined[0], rows), _of_cells(joined[1], columns)))

    def _of_one(self, name: str, counts: Ints) -> Parts:
        """Returns the parts in which a column has enough rows.

        A part of many values has two of them: else sums would tell how many rows have each.
        """
        if not (ordered := self.model.ordered(name)):
            return cells.join(counts, self.rules.rows_per_value)
        there = measures.present(self.rows.values[name])
        values = len(np.unique(there[:LOOKED_AT]))
        if values < 2 * ordered:  # else there are two for each bin
            values = len(np.unique(there))
        most = max(values // 2, 1) if values > measures.MANY else None
        return cells.bins(counts, self.rules.rows_per_value, range(ordered), self._into(name), most)

    def _again(self, table: Counted, counts: Ints, both: Both) -> Both | None:
        """Returns parts that may be told beside what was told before: none is finer, and enough rows of each have changed.

        Parts of a column join until that is so; of two columns, and of times, nothing is told then.
        """
        least, (found, second), before = self.rules.rows_per_value, both, self.earlier.get(kept.name_of(table))
        single = not table.second and table.first != TIMES
        if before is not None:
            if (known := self._known(table, before)) is None:
                return None
            found, second = (cells.common(own, tuple(axis)) for own, axis in zip(both, known))

            def fits(parts: Parts) -> NDArray[np.bool_]:
                fit = cells.again(_added(counts, (parts, second)), _was(before, known, (parts, second)), least)
                return np.asarray(fit.all(axis=1))

            coarser = cells.coarsened(found, fits) if single or fits(found).all() else None
            if coarser is None:
                return None
            found = coarser
        for job in self.jobs if single else ():
            told = kept.in_cells(self.names_of(table.first), job.get(table.first, ()))

            def wide(parts: Parts, told: Any = told) -> NDArray[np.bool_]:
                return cells.beside(parts, cells.added(counts[:, 0], parts), told, least)

            found = cells.coarsened(found, wide) or found
        return found, second

    def _known(self, table: Counted, before: kept.Told) -> list[Mapping[tuple[int, ...], list[int]]] | None:
        """Returns of each of a table's columns the parts of cells of which something was told before; None of other times."""
        names, known = [self.names_of(name) for name in table], list[Mapping[tuple[int, ...], list[int]]]()
        if TIMES in table and names != before["cells"]:
            return None
        for now, then, own in zip(names, before["cells"], before["parts"]):
            parts = tuple(map(tuple, own))
            known.append({part: [k] for k, part in enumerate(parts)} if now == then else cells.in_cells(now, then, parts))
        return known

    # Counts ----------

    def cells(self, asked: AskCells) -> Cells:
        """Returns its rows in each part that is told, and sums of columns of numbers."""
        told = self.model.told(asked.told)
        counts = np.zeros(self.model.dims["cells"])
        for table, part in self.model.split(counts).items():
            if (both := told[table]) is not None and self.own[table] is not None:
                part[np.ix_(*([min(own) for own in parts] for parts in both))] = _added(self.counts(table), both)
        each = self._each(asked.centre, told, asked.told)
        return Cells(0, counts, each, self._pairs(asked.centre, each) * self.model.told_sums(asked.told)[2][:, None])

    def counts(self, table: Counted) -> Ints:
        """Returns the rows in all cells of one or two columns."""
        rows, columns = self.model.shape(table)
        number = self._cell(table.first) * columns + self._cell(table.second)
        return np.bincount(number, minlength=rows * columns).reshape(rows, columns)

    def exact(self, ends: Array) -> Array:
        """Returns all counts as they are, to which noise is added."""
        self.parts(AskParts(0, ends))
        return self.cells(AskCells(0, self.model.numbers(self.model.all_told), np.zeros(len(self.model.numeric)))).counts

    def telling(self, told: Told) -> dict[str, kept.Told]:
        """Returns what it is about to tell of tables, for its holder's account; nothing of what was told before."""
        new = dict[str, kept.Told]()
        for table, both in told.items():
            if both is None or self.own[table] is None:
                continue
            name, counts = kept.name_of(table), _added(self.counts(table), both)
            before, names = self.earlier.get(name), [self.names_of(one) for one in table]
            known = None if before is None else self._known(table, before)
            if before is None or known is None or (_was(before, known, both) != counts).any():
                new[name] = {"cells": names, "parts": both, "counts": counts.tolist(), "least": self.rules.rows_per_value}
        return new

    def names_of(self, name: str) -> list[Any]:
        """Returns the inner ends of a column's bins, or its levels; of no column none."""
        if name not in self.model.numeric and name != TIMES:
            return [*(self.model.columns[name].levels or ())] if name else []
        return [*self.ends[self.model.numeric.index(self.model.time if name == TIMES else name)].tolist()]

    # ----------

    def _cell(self, name: str) -> Ints:
        """Returns (n,) the cell of a column that each row is in; of no column all rows are in one."""
        if name not in self.cell_of:
            self.cell_of[name] = self._found(name)
        return self.cell_of[name]

    def _found(self, name: str) -> Ints:
        last = self.model.size(name) - 1
        if name == TIMES:
            assert self.rows.event is not None
            time, event = self.rows.values[self.model.time], self.rows.event
            interval = np.searchsorted(self.ends[self.model.numeric.index(self.model.time)], time, side="left")
            return np.where(np.isnan(time) | np.isnan(event), last, interval + self.model.bins * (event == 0))
        if name in self.rows.values:
            found = np.searchsorted(self.ends[self.model.numeric.index(name)], values := self.rows.values[name], side="right")
            return np.where(np.isnan(values), last, found)
        codes = self.rows.codes[name] if name else np.zeros(self.rows.n, np.int64)
        return np.where(codes < 0, last, codes)

    def _into(self, name: str) -> int:
        """Returns the cell that takes those which have few rows: of numbers the middle one."""
        return len(np.unique(self.ends[self.model.numeric.index(name)])) // 2 if name in self.model.numeric else 0

    # Sums ----------

    def _sums(self, values: Array, centre: float) -> tuple[float, float, float]:
        """Returns rows, sum and sum of squares about a centre, of rounded mean and sd; zeros where they may not be told."""
        if self.model.here:
            about = measures.present(values) - centre
            return float(len(about)), float(about.sum()), float(about @ about)
        lacking = int(np.isnan(values).sum())
        told = measures.moments(values, self.rules, len(values) - lacking * (lacking >= self.rules.rows_per_value))
        return (0.0, 0.0, 0.0) if told is None else _of_moments(told, centre)

    def _each(self, centre: Array, told: Told, numbers: Array) -> Array:
        """Returns sums of columns of numbers in the rows of each group that is told, and of all."""
        model = self.model
        of_all, of_groups, _ = model.told_sums(numbers)
        each = np.zeros((len(model.numeric), model.dims["groups"], 3))
        for j, name in enumerate(() if model.private else model.numeric):
            if told.get(Counted(name)) is None or self.own[Counted(name)] is None or not of_all[j]:
                continue
            values = self.rows.values[name]
            each[j, -1] = self._sums(values, centre[j])
            by_group = told.get(Counted(name, model.group))
            if by_group is None or self.own[Counted(name, model.group)] is None or not of_groups[j]:
                continue
            inside = [(part, values[np.isin(self._cell(model.group), part)]) for part in by_group[1]]
            sums = [self._sums(own, centre[j]) for _, own in inside]
            # A group is all but the others: of all that have rows, or of none.
            if all(n or not np.isfinite(own).any() for (n, *_), (_, own) in zip(sums, inside)):
                for (part, _), of_group in zip(inside, sums):
                    each[j, min(part)] = of_group if min(part) < model.dims["groups"] - 1 else each[j, -1]
        return each

    def _pairs(self, centre: Array, each: Array) -> Array:
        """Returns sums of each two columns of numbers over the rows that have both: such as give the correlation that is told."""
        model, sums = self.model, np.zeros((len(self.model.pairs), 6))
        names = [name for name in model.numeric if name in model.shown]
        if not model.pairs:
            return sums
        at = [model.numeric.index(name) for name in names]
        found = self.products
        if model.here:
            found = measures.products(np.array([self.rows.values[name] - centre[j] for name, j in zip(names, at)]).T, self.rules)
        for k, (i, j) in enumerate(combinations(range(len(names)), 2)):
            if model.here:
                of_both = [own[at] for own in (found.sums, found.squares) for at in ((i, j), (j, i))]
                sums[k] = found.rows[i, j], *of_both, found.products[i, j]
                continue
            (n, mx, sx), (my_n, my, sy) = (_moments_of(each[at[one], -1]) for one in (i, j))
            n = min(n, my_n)
            if n and np.isfinite(found.r[i, j]):
                squares = ((n - 1) * sd**2 + n * mean**2 for mean, sd in ((mx, sx), (my, sy)))
                sums[k] = n, n * mx, n * my, *squares, (n - 1) * found.r[i, j] * sx * sy + n * mx * my
        return sums


def _added(counts: Ints, both: Both) -> Ints:
    """Returns the rows in the parts of a table's columns."""
    return cells.added(cells.added(counts, both[1]).T, both[0]).T


def _was(before: kept.Told, known: Sequence[Mapping[tuple[int, ...], list[int]]], both: Both) -> Ints:
    """Returns how many rows were told of parts."""

    def inside(axis: Mapping[tuple[int, ...], list[int]], part: Sequence[int]) -> list[int]:
        return [k for own, told in axis.items() if {*own} <= {*part} for k in told]

    counts = np.array(before["counts"], np.int64)
    rows, columns = ([inside(axis, part) for part in parts] for parts, axis in zip(both, known))
    return np.array([[counts[np.ix_(one, other)].sum() for other in columns] for one in rows])


def _of_cells(parts: Parts, of: Parts) -> Parts:
    """Returns parts of parts as parts of cells."""
    return tuple(tuple(sorted(cell for part in own for cell in of[part])) for own in parts)


def _moments_of(sums: Array) -> tuple[float, float, float]:
    """Returns rows, mean and sd of `_of_moments`."""
    rows, first, second = sums.tolist()
    return (rows, first / rows, max((second - first**2 / rows) / (rows - 1), 0.0) ** 0.5) if rows else (0.0, 0.0, 0.0)


def _of_moments(told: measures.Moments, centre: float) -> tuple[float, float, float]:
    """Returns the sums that have this mean and this sd, whose square is a sum of squares over rows less one."""
    shift = told.mean - centre
    return told.rows, told.rows * shift, (told.rows - 1) * told.sd**2 + told.rows * shift**2
