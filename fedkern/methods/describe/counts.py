"""Counts a client's rows, as far as `disclosure` lets them be told: one function for each question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...algorithms.exchanges.described import AskCells, AskParts, AskSums, Cells, FewValues, Moments, OwnParts
from ...arrays import Array
from ...disclosure import cells, curves, measures
from ...disclosure.cells import Parts
from ...disclosure.rules import Rules
from ...jobs.holding import told as kept
from .model import TIMES, Both, Counted, DescribeModel, Told
from .rows import Rows

Ints = NDArray[np.int64]


class Before(NamedTuple):
    """Holds what was told of a table: rows (cells of both columns), each at the first cell of its part, and the parts."""

    counts: Ints
    parts: Both


@dataclass
class Client:
    """Holds a client's rows, and what it has been told of cells.

    Attributes
    ----------
    model, rows, rules : the job; its rows; how many must be in what is told
    earlier : name of a column, or of a table -> what was told of it before
    jobs : what each other job told of columns
    ends, scale : (columns, ends) of bins; (columns, 2) about which sums are taken, and the sds to which they are rounded
    own : the parts in which it would tell each table
    told : those in which all clients do
    cell_of : column -> (n,) the cell that each row is in, once ends are known
    """

    model: DescribeModel
    rows: Rows
    rules: Rules
    earlier: Mapping[str, kept.Told] = field(default_factory=dict)
    jobs: Sequence[kept.Values] = ()
    ends: Array = field(default_factory=lambda: np.zeros((0, 0)))
    scale: Array = field(default_factory=lambda: np.zeros((0, 2)))
    own: dict[Counted, Both | None] = field(default_factory=dict)
    told: Told = field(default_factory=dict)
    cell_of: dict[str, Ints] = field(default_factory=dict)

    # The ends of bins ----------

    def values(self) -> FewValues:
        """Returns the values of columns of numbers that have few, and mean and sd of others to about one sd."""
        model, most = self.model, self.model.dims["values"]
        n, values, scale = np.zeros(len(model.numeric)), np.zeros((len(model.numeric), most)), np.zeros((len(model.numeric), 3))
        for j, name in enumerate(model.numeric):
            numbers = measures.present(self.rows.values[name])
            if may := measures.measured(numbers, self.rules):
                scale[j] = measures.scale(numbers)
            if not model.here and measures.n_values(numbers, most + 1) > most:
                n[j] = most + 1 if may else -1
                continue
            found, times = np.unique(numbers, return_counts=True)
            if len(found) > most:
                n[j], values[j] = -1 - most, np.quantile(numbers, np.linspace(0, 1, most))
                continue
            enough = found[times >= self.rules.rows_per_value]
            n[j] = len(enough) if len(enough) == len(found) else -1 - len(enough)
            values[j, : len(enough)] = enough
        return FewValues(0, n, values, scale)

    # Which cells are told ----------

    def parts(self, question: AskParts) -> OwnParts:
        """Returns the parts in which it would tell each table: what all tell is a function of these."""
        self.ends, self.scale = question.ends, question.scale
        for table in self.model.tables:
            self.own[table] = self._parts(table)
        return OwnParts(0, self.model.numbers(self.own), self.may)

    @cached_property
    def may(self) -> Array:
        """Of each sum 1 where its rows may be added to those of several clients, 0 where it has none, else -1.

        Of joined groups they may be if they may of each: more rows have more values, and leverages below.
        """
        model, found = self.model, np.zeros(self.model.dims["sums"])
        each, pairs = model.sums(found)
        for j, name in model.summed if model.tells_sums and not model.here else ():
            values = self.rows.values[name]
            each[j, -1] = self._flag(values)
            for part in (self.own[Counted(name, model.group)] or ((), ()))[1] if model.group else ():
                each[j, list(part)] = self._flag(values[np.isin(self._cell(model.group), part)])
        if model.tells_sums and len(pairs):
            rows = self.products[:, 0]
            pairs[:] = np.where(rows >= max(self.rules.rows, 2), 1.0, -1.0 * (rows > 0))
        return found

    @cached_property
    def products(self) -> Array:
        """Sums of pairs of columns, as `Moments` has them."""
        return measures.products([self.rows.values[name] - self.scale[j, 0] for j, name in self.model.summed])

    def _flag(self, values: Array) -> int:
        return 1 if measures.measured(values, self.rules) else -int(np.isfinite(values).any())

    def _parts(self, table: Counted) -> Both | None:
        """Returns the parts in which it would tell a table; None where it tells nothing of it."""
        if self.model.whole:
            return self.model.all_told[table]
        counts, least = self.counts(table), self.rules.rows_per_value
        if table.first == TIMES:
            groups = self.model.parts_of(self.own, table.second)
            ends = self.ends[self.model.numeric.index(self.model.time)]
            may = np.flatnonzero((ends > 0) & (np.diff(ends, prepend=-np.inf) > 0)).tolist()
            found = curves.parts(cells.added(counts, groups).T, self.model.bins, may, self.rules) if len(groups) else None
            return None if found is None else self._again(table, counts, (found, groups))
        if not table.second:
            return self._again(table, counts, (self._of_one(table.first, counts[:, 0]), ((0,),)))
        rows, columns = ((self.own[Counted(name)] or ((), ()))[0] for name in table)
        if not rows or not columns:
            return None
        both = zip(table, (rows, columns))
        firsts = [[min(part) for part in parts if min(part) < self.model.ordered(name)] for name, parts in both]
        into = self._into(table.first), self._into(table.second)
        joined = cells.cross(_added(counts, (rows, columns)), least, (firsts[0], firsts[1]), into)
        return None if joined is None else self._again(table, counts, (_of_cells(joined[0], rows), _of_cells(joined[1], columns)))

    def _of_one(self, name: str, counts: Ints) -> Parts:
        """Returns the parts in which a column has enough rows.

        A part of many values has two of them: else sums would tell how many rows have each.
        """
        if not (ordered := self.model.ordered(name)):
            return cells.join(counts, self.rules.rows_per_value)
        values = measures.n_values(measures.present(self.rows.values[name]), 2 * ordered)
        most = max(values // 2, 1) if values > measures.MANY else None
        return cells.bins(counts, self.rules.rows_per_value, range(ordered), self._into(name), most)

    def _again(self, table: Counted, counts: Ints, both: Both) -> Both | None:
        """Returns parts that may be told beside what was told before: none is finer, and enough rows of each have changed.

        Parts of a column join until that is so; of two columns, and of times, nothing is told then.
        """
        least, (found, second), before = self.rules.rows_per_value, both, self._before(table)
        single = not table.second and table.first != TIMES
        if before is not None:
            if not before.parts[0]:
                return None
            found, second = (cells.common(*parts) for parts in zip(both, before.parts))

            def fits(parts: Parts) -> NDArray[np.bool_]:
                now, then = (_added(rows, (parts, second)) for rows in (counts, before.counts))
                return np.asarray(cells.again(now, then, least).all(axis=1))

            coarser = cells.coarsened(found, fits) if single or fits(found).all() else None
            if coarser is None:
                return None
            found = coarser
        for job in self.jobs if single else ():
            earlier_cells = kept.in_cells(self.names_of(table.first), job.get(table.first, ()))

            def wide(parts: Parts, told: Any = earlier_cells) -> NDArray[np.bool_]:
                return cells.beside(parts, cells.added(counts[:, 0], parts), told, least)

            found = cells.coarsened(found, wide) or found
        return found, second

    def _before(self, table: Counted) -> Before | None:
        """Returns what was told of a table before, in cells as they are now; of other times no parts, None where nothing was."""
        if (before := self.earlier.get(kept.name_of(table))) is None:
            return None
        parts, rows = list[Parts](), np.array(before["counts"], np.int64)
        for axis, (column, then, parts_then) in enumerate(zip(table, before["cells"], before["parts"])):
            now, of_then = self.names_of(column), tuple(map(tuple, parts_then))
            if now != then and table.first == TIMES:
                return Before(rows, ((), ()))
            known = {part: [k] for k, part in enumerate(of_then)} if now == then else cells.in_cells(now, then, of_then)
            moved = np.zeros((rows.shape[1 - axis], self.model.size(column)), np.int64)
            for inside, earlier in known.items():
                moved[:, inside[0]] = np.take(rows, earlier, axis=axis).sum(axis=axis)
            rows = moved if axis else moved.T
            parts.append(tuple(known))
        return Before(rows, (parts[0], parts[1]))

    # Counts ----------

    def cells(self, question: AskCells) -> Cells:
        """Returns its rows in each part that is told."""
        self.told = self.model.told(question.told)
        counts = np.zeros(self.model.dims["cells"])
        for table, part in self.model.split(counts).items():
            if (both := self.told[table]) is not None and self.own[table] is not None:
                part[np.ix_(*([min(cells_of) for cells_of in parts] for parts in both))] = _added(self.counts(table), both)
        return Cells(0, counts)

    def counts(self, table: Counted) -> Ints:
        """Returns the rows in all cells of one or two columns."""
        rows, columns = self.model.shape(table)
        number = self._cell(table.first) * columns + self._cell(table.second)
        return np.bincount(number.ravel(), minlength=rows * columns)[: rows * columns].reshape(rows, columns)

    def exact(self, ends: Array) -> Array:
        """Returns all counts as they are, to which noise is added."""
        self.parts(AskParts(0, ends, np.zeros((len(ends), 2))))
        return self.cells(AskCells(0, self.model.numbers(self.model.all_told))).counts

    def telling(self, tables: Told) -> dict[str, kept.Told]:
        """Returns what it is about to tell of tables, for its holder's account; nothing of what was told before."""
        new = dict[str, kept.Told]()
        for table, both in tables.items():
            if both is None or self.own[table] is None:
                continue
            name, counts = kept.name_of(table), _added(self.counts(table), both)
            before, names = self._before(table), [self.names_of(column) for column in table]
            if before is None or (_added(before.counts, both) != counts).any():
                new[name] = {"cells": names, "parts": both, "counts": counts.tolist(), "least": self.rules.rows_per_value}
        return new

    def names_of(self, name: str) -> list[Any]:
        """Returns the inner ends of a column's bins, or its levels; of no column none."""
        if name not in self.model.numeric and name != TIMES:
            return [*(self.model.columns[name].levels or ())] if name else []
        if name == TIMES:
            return [*self.names_of(self.model.time), self.model.entry]
        return [*self.ends[self.model.numeric.index(name)].tolist()]

    # ----------

    def _cell(self, name: str) -> Ints:
        """Returns (n,) the cell of a column that each row is in, of times (1 or 2, n); of no column all rows are in one."""
        if name not in self.cell_of:
            self.cell_of[name] = self._found(name)
        return self.cell_of[name]

    def _found(self, name: str) -> Ints:
        last = self.model.size(name) - 1
        if name == TIMES:
            assert self.rows.event is not None
            time, event, bins = self.rows.values[self.model.time], self.rows.event, self.model.bins
            entry = self.rows.values[self.model.entry] if self.model.entry else np.zeros(self.rows.n)
            ends, lacking = self.ends[self.model.numeric.index(self.model.time)], np.isnan(time + event + entry)
            exits = np.where(lacking, last, np.searchsorted(ends, time, side="left") + bins * (event == 0))
            # Who enters at an end is at risk from the next interval on; a row that lacks something is in no such cell.
            enters = 2 * bins + np.where(entry > 0, 1 + np.searchsorted(ends, entry, side="right"), 0)
            enters = np.where(lacking, last + 1, enters)
            return np.stack([exits, enters] if self.model.entry else [exits])
        if name in self.rows.values:
            found = np.searchsorted(self.ends[self.model.numeric.index(name)], values := self.rows.values[name], side="right")
            return np.where(np.isnan(values), last, found)
        codes = self.rows.codes[name] if name else np.zeros(self.rows.n, np.int64)
        return np.where(codes < 0, last, codes)

    def _into(self, name: str) -> int:
        """Returns the cell that takes those which have few rows: of numbers the middle one."""
        return len(np.unique(self.ends[self.model.numeric.index(name)])) // 2 if name in self.model.numeric else 0

    # Sums ----------

    def moments(self, question: AskSums) -> Moments:
        """Returns sums of columns of numbers about centres, in all rows and in those of groups, and of pairs of columns.

        They are rounded here, so that also whoever knows the others' sums has no digits that give single cells back.
        """
        model, (wanted, of_pairs) = self.model, self.model.sums(np.where(self.may < 0, -1.0, question.told))
        each, sd = np.zeros((*wanted.shape, 3)), self.scale[:, 1]
        for j, name in model.summed:
            values = self.rows.values[name] - self.scale[j, 0]
            for group in np.unique(wanted[j, :-1][wanted[j, :-1] >= 0]).astype(int).tolist():
                inside = np.isin(self._cell(model.group), np.flatnonzero(wanted[j, :-1] == group))
                each[j, group] = self._sums(values[inside], Counted(name, model.group))
            if wanted[j, -1] >= 0:
                each[j, -1] = self._sums(values, Counted(name))
        pairs = np.zeros((len(model.pairs), 6))
        if (of_pairs >= 0).any():
            pairs = self.products * (of_pairs >= 0)[:, None]
            if not model.here:  # as if all rows had both cells: how many lack one is not told
                pairs *= self.rows.n / np.maximum(pairs[:, :1], 1)
        x, y = sd[np.array([[model.numeric.index(name) for name in pair] for pair in model.pairs], int).reshape(-1, 2)].T
        of_each = _rounded(each, (0 * sd, sd, 2**0.5 * sd**2))
        return Moments(0, of_each, _rounded(pairs, (0 * x, x, y, 2**0.5 * x**2, 2**0.5 * y**2, x * y)))

    def _sums(self, values: Array, table: Counted) -> tuple[float, float, float]:
        """Returns the rows of a column that are told, sum, and sum of squares.

        Where missing cells are told with others these count, as if they had the mean of the others.
        """
        numbers, (parts, _) = measures.present(values), self.told[table] or ((), ())
        rows = len(numbers) if (self.model.size(table.first) - 1,) in parts else len(values)
        weight = rows / max(len(numbers), 1)
        return len(numbers) * weight, float(numbers.sum()) * weight, float(numbers @ numbers) * weight


def _rounded(sums: Array, sds: Sequence[Array]) -> Array:
    """Returns (k, .., m) sums, of which the first is their rows, to a tenth of their standard errors; `sds`: m of (k,)."""
    errors = np.sqrt(sums[..., :1]) * np.stack(sds, axis=-1).reshape(len(sums), *[1] * (sums.ndim - 2), len(sds))
    return np.vectorize(measures.rounded, otypes=[float])(sums, errors) if errors.any() else sums


def _added(counts: Ints, both: Both) -> Ints:
    """Returns the rows in the parts of a table's columns."""
    return cells.added(cells.added(counts, both[1]).T, both[0]).T


def _of_cells(parts: Parts, of: Parts) -> Parts:
    """Returns parts of parts as parts of cells."""
    return tuple(tuple(sorted(cell for part in own for cell in of[part])) for own in parts)
