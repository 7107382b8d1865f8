"""Counts a client's rows, as far as `disclosure` lets them be told: one function for each question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...algorithms.exchanges.described import AskCells, AskParts, Cells, FewValues, OwnParts, Spread
from ...disclosure import cells, curves, measures
from ...disclosure.cells import Parts
from ...disclosure.rules import Rules
from . import kept
from .model import TIMES, Counted, DescribeModel, Told, to_numbers
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
    earlier : column -> what was told of it before
    ends : (columns, ends) of bins
    cell_of : column -> (n,) the cell that each row is in, once ends are known
    """

    model: DescribeModel
    rows: Rows
    rules: Rules
    earlier: Mapping[str, kept.Told] = field(default_factory=dict)
    ends: Array = field(default_factory=lambda: np.zeros((0, 0)))
    cell_of: dict[str, Ints] = field(default_factory=dict)

    # The ends of bins ----------

    def values(self) -> FewValues:
        """Returns the values of columns of numbers that have few."""
        model, most = self.model, self.model.dims["values"]
        n, values, ends = np.zeros(len(model.numeric)), np.zeros((len(model.numeric), most)), np.zeros((len(model.numeric), 2))
        for j, name in enumerate(model.numeric):
            there = self._there(name)
            if len(there) and model.here:
                ends[j] = there.min(), there.max()
            if len(np.unique(there[:LOOKED_AT])) > most:
                continue
            found, times = np.unique(there, return_counts=True)
            if len(found) <= most and (model.here or not measures.measured(self.rows.values[name], self.rules)):
                enough = found[times >= self.rules.rows_per_value]
                n[j] = len(enough) if len(enough) == len(found) else -1 - len(enough)
                values[j, : len(enough)] = enough
        return FewValues(0, n, values, ends)

    def spread(self) -> Spread:
        """Returns means and sds of columns of numbers, which decide on ends of bins."""
        sums = [self._sums(self.rows.values[name], 0.0) for name in self.model.numeric]
        return Spread(0, np.array(sums).reshape(-1, 3))

    # Which cells are told ----------

    def parts(self, asked: AskParts) -> OwnParts:
        """Returns the parts in which it would tell each column."""
        self.ends, model = asked.ends, self.model
        first = [to_numbers(self._joined(table.first), model.size(table.first)) for table in model.single]
        return OwnParts(0, np.concatenate([np.append(one, 0.0) for one in first]))

    def parts_of_two(self, asked: AskParts) -> OwnParts:
        """Returns the parts in which it would tell each two columns, and the ends of its survival times."""
        told, first = self.model.told(asked.told), list[Array]()
        for table in self.model.double:
            both = self._joined_two(table, told) or ((), ())
            if (before := self.earlier.get(kept.name_of(table))) is not None and all(both):
                rows, columns = (tuple(map(tuple, parts)) for parts in before["parts"])
                both = cells.common(both[0], rows), cells.common(both[1], columns)
            first += [to_numbers(parts, self.model.size(name)) for name, parts in zip(table, both)]
        return OwnParts(0, np.concatenate([*first, self._kept_ends(told.groups)]))

    # Counts ----------

    def cells(self, asked: AskCells) -> Cells:
        """Returns its rows in each part that is told, and sums of columns of numbers."""
        told = self.model.told(asked.told)
        counts = np.zeros(self.model.dims["cells"])
        for table, part in self.model.split(counts):
            if table is TIMES:
                part[:] = self._times(told)
            elif (parts := told.of[table]) is not None and (not table.second or self._may_tell_two(table, told)):
                first = [to_numbers(own, size).astype(np.int64) for own, size in zip(parts, part.shape)]
                np.add.at(part, np.ix_(*first), self.counts(table))
        each = self._each(asked.centre, told)
        return Cells(0, counts, each, self._pairs(asked.centre, each))

    def counts(self, table: Counted) -> Ints:
        """Returns the rows in all cells of one or two columns."""
        rows, columns = self.model.shape(table)
        number = self._cell(table.first) * columns + (self._cell(table.second) if table.second else 0)
        return np.bincount(number, minlength=rows * columns).reshape(rows, columns)

    def exact(self, ends: Array) -> Array:
        """Returns all counts as they are, to which noise is added."""
        self.ends = ends
        return self.cells(AskCells(0, self.model.all_told, np.zeros(len(self.model.numeric)))).counts

    # ----------

    def _there(self, name: str) -> Array:
        values = self.rows.values[name]
        return values[~np.isnan(values)]

    def _cell(self, name: str) -> Ints:
        """Returns (n,) the cell of a column that each row is in."""
        if name not in self.cell_of:
            if name in self.rows.codes:
                found, missing = self.rows.codes[name], self.rows.codes[name] < 0
            else:
                values = self.rows.values[name]
                found, missing = (
                    np.searchsorted(self.ends[self.model.numeric.index(name)], values, side="right"),
                    np.isnan(values),
                )
            self.cell_of[name] = np.where(missing, self.model.size(name) - 1, found)
        return self.cell_of[name]

    def _joined(self, name: str) -> Parts:
        counts = self.counts(Counted(name))[:, 0]
        if self.model.whole:
            return tuple((cell,) for cell in range(len(counts)))
        least = self.rules.rows_per_value
        parts = cells.join(counts, least, ordered=self.model.ordered(name), into=self._into(name))
        if (before := self.earlier.get(name)) is None:
            return parts
        return cells.once(parts, counts, *kept.as_now(self.cells_of(name), before), least) or ()

    def cells_of(self, name: str) -> list[Any]:
        """Returns the inner ends of a column's bins, or its levels."""
        levels = self.model.columns[name].levels
        return [*levels] if levels is not None else self.ends[self.model.numeric.index(name)].tolist()

    def telling(self, told: Told) -> dict[str, kept.Told]:
        """Returns what it is about to tell of columns, for its holder's account; nothing of what was told before."""
        new = dict[str, kept.Told]()
        for name in self.model.shown:
            parts = (told.of[Counted(name)] or ((), ()))[0]
            if parts and (name not in self.earlier or self._changed(name, parts)):
                counts = cells.added(self.counts(Counted(name))[:, 0], parts).tolist()
                new[name] = {"cells": self.cells_of(name), "parts": parts, "counts": counts, "most": self._most(name, parts)}
        new |= {kept.name_of(table): self._of_two(table, told) for table in self.model.double if self._may_tell_two(table, told)}
        if self.model.time and (curve := self._curve(told)) is not None:
            new[kept.name_of(TIMES)] = curve[1]
        return new

    def _most(self, name: str, parts: Parts) -> int:
        """Returns in how many parts a column was told at most, now or before."""
        before = self.earlier.get(name, {})
        return max(len(parts), int(before.get("most", len(before.get("parts", ())))))

    def _of_two(self, table: Counted, told: Told) -> kept.Told:
        """Returns what a table of two columns says."""
        parts = told.of[table] or ((), ())
        counts = cells.added(cells.added(self.counts(table), parts[1]).T, parts[0]).T
        return {"cells": [self.cells_of(name) for name in table], "parts": parts, "counts": counts.tolist()}

    def _may_tell_two(self, table: Counted, told: Told) -> bool:
        """Tells whether a table of two columns may be told: enough rows are in its parts, now and since it was told before."""
        if told.of[table] is None or self._joined_two(table, told) is None:
            return False
        return kept.may_be_told(self.earlier.get(kept.name_of(table)), self._of_two(table, told), self.rules.rows_per_value)

    def _changed(self, name: str, parts: Parts) -> bool:
        """Tells whether the rows of parts are others than were told."""
        earlier, told = kept.as_now(self.cells_of(name), self.earlier[name])
        before = [sum(n for own, n in zip(earlier, told.tolist()) if set(own) <= set(part)) for part in parts]
        return bool(before != cells.added(self.counts(Counted(name))[:, 0], parts).tolist())

    def _into(self, name: str) -> int:
        """Returns the cell that takes those which have few rows: of numbers the middle one."""
        return len(np.unique(self.ends[self.model.numeric.index(name)])) // 2 if name in self.model.numeric else 0

    def _joined_two(self, table: Counted, told: Told) -> tuple[Parts, Parts] | None:
        """Returns the parts of a table of two columns, each of which is told in parts; None where it tells nothing of it."""
        rows, columns = ((told.of[Counted(name)] or ((), ()))[0] for name in table)
        if self.model.whole:
            return rows, columns
        counts = cells.added(cells.added(self.counts(table), columns).T, rows).T
        both = [*zip(table, (rows, columns))]
        ordered = [sum(min(part) < self.model.ordered(name) for part in own) for name, own in both]
        into = [next(k for k, part in enumerate(own) if self._into(name) in part) for name, own in both]
        found = cells.cross(counts, self.rules.rows_per_value, ordered=(ordered[0], ordered[1]), into=(into[0], into[1]))
        return None if found is None else (_of_cells(found[0], rows), _of_cells(found[1], columns))

    def _sums(self, values: Array, centre: float, parts: int = 0) -> tuple[float, float, float]:
        """Returns rows, sum and sum of squares about a centre, of rounded mean and sd; zeros where they may not be told.

        `parts`: in which the column is told beside them.
        """
        if self.model.here:
            about = values[~np.isnan(values)] - centre
            return float(len(about)), float(about.sum()), float(about @ about)
        told = measures.moments(values, self.rules, parts, self._rows_told(values))
        return (0.0, 0.0, 0.0) if told is None else _of_moments(told, centre)

    def _each(self, centre: Array, told: Told) -> Array:
        """Returns sums of columns of numbers in the rows of each group that is told, and of all."""
        model = self.model
        each = np.zeros((len(model.numeric), model.dims["groups"], 3))
        group = self._cell(model.group) if model.group else np.zeros(self.rows.n, np.int64)
        for j, name in enumerate(() if model.private else model.numeric):
            if (parts := told.of.get(Counted(name))) is None:
                continue
            values = self.rows.values[name]
            each[j, -1] = self._sums(values, centre[j], self._most(name, parts[0]))
            by_group = told.of.get(Counted(name, model.group)) if model.group else None
            for part in by_group[1] if by_group is not None else ():
                if max(part) < model.size(model.group) - 1:
                    each[j, min(part)] = self._sums(values[np.isin(group, part)], centre[j], len((by_group or parts)[0]))
        return each

    def _rows_told(self, values: Array) -> float:
        """Returns how many rows have a number, or where few lack one all rows."""
        lacking = int(np.isnan(values).sum())
        return float(len(values) - (lacking if lacking >= self.rules.rows_per_value else 0))

    def _pairs(self, centre: Array, each: Array) -> Array:
        """Returns sums of each two columns of numbers over the rows that have both: such as give the correlation that is told."""
        model, sums, at = self.model, np.zeros((len(self.model.pairs), 6)), {name: j for j, name in enumerate(self.model.numeric)}
        about = {name: self.rows.values[name] - centre[at[name]] for name in dict.fromkeys(chain(*model.pairs))}
        may = {name: model.here or measures.correlation(values, values, self.rules) is not None for name, values in about.items()}
        has = {name: ~np.isnan(values) for name, values in about.items()}
        # Of columns that lack no cell correlations are products of these.
        unit = {name: (values - values.mean()) / (values.std() or 1.0) for name, values in about.items() if may[name]}
        for k, pair in enumerate(model.pairs):
            (n, mx, sx), (my_n, my, sy) = (_moments_of(each[at[name], -1]) for name in pair)
            n = min(n, my_n)
            if not (n and all(may[name] for name in pair)):
                continue
            product = float(unit[pair[0]] @ unit[pair[1]])
            if np.isfinite(product) and not model.here:
                r: float | None = measures.rounded(product / self.rows.n, self.rows.n**-0.5)
            else:
                there = has[pair[0]] & has[pair[1]]
                x, y = (about[name][there] for name in pair)
                if model.here:
                    sums[k] = len(x), x.sum(), y.sum(), x @ x, y @ y, x @ y
                    continue
                r = measures.correlation(x, y, self.rules)
            if r is not None:
                squares = ((n - 1) * sd**2 + n * mean**2 for mean, sd in ((mx, sx), (my, sy)))
                sums[k] = n, n * mx, n * my, *squares, (n - 1) * r * sx * sy + n * mx * my
        return sums

    def _survived(self, groups: Parts) -> tuple[Array, Array, Ints]:
        """Returns times, events and groups of the rows whose group is told: its place among those."""
        model = self.model
        assert self.rows.event is not None
        place = np.full(model.size(model.group), -1)
        for at, part in enumerate(groups):
            place[list(part)] = at
        group = place[self._cell(model.group)] if model.group else np.zeros(self.rows.n, np.int64)
        there = group >= 0
        return self.rows.values[model.time][there], self.rows.event[there], group[there]

    def _kept_ends(self, groups: Parts) -> Array:
        """Returns 1 for ends of survival times that it would tell, else 0; -1 for all where it tells none."""
        kept, time = np.zeros(self.model.bins - 1), self.model.time
        if not time or self.model.whole:
            return kept + 1
        grid, own = self.ends[self.model.numeric.index(time)], self._survived(groups)
        ends, told = np.unique(grid[grid > 0]), list[float]()
        # From the middle on, by halves: so clients' ends have much in common. Ends behind all times come last.
        order = [end for k in range(len(ends).bit_length() - 1, -1, -1) for end in ends[2**k - 1 :: 2 ** (k + 1)].tolist()]
        for behind in (False, True):
            for end in order:
                tried = sorted({*told, end})
                counts = curves.curve_counts(*own, tried, self.rules, len(groups))
                if counts is not None and len(counts.ends) == len(tried) and (behind or counts.at_risk[:, -1].any()):
                    told = tried
        return np.isin(grid, told).astype(np.float64) if told else kept - 1

    def _curve(self, told: Told) -> tuple[curves.Counts, kept.Told] | None:
        """Returns its counts of survival times at the ends that are told, and what they say; None where it tells none."""
        grid = np.unique(self.ends[self.model.numeric.index(self.model.time or "")][told.ends])
        grid = grid[grid > 0]
        if not len(grid):
            return None
        found = curves.curve_counts(*self._survived(told.groups), grid, self.rules, len(told.groups))
        if found is None or not np.array_equal(found.ends, grid):
            return None
        counts = np.concatenate([found.events, found.censored, found.at_risk[:, -1:]], axis=1)
        now: kept.Told = {"cells": grid.tolist(), "parts": told.groups, "counts": counts.tolist()}
        may = kept.may_be_told(self.earlier.get(kept.name_of(TIMES)), now, self.rules.rows_per_value)
        return (found, now) if may else None

    def _times(self, told: Told) -> Array:
        """Returns, by group, events of each interval, censored rows of each, and rows with later times; 0 where not told."""
        model, ends = self.model, self.model.bins - 1
        counts = np.zeros((model.size(model.group), 2 * ends + 1))
        grid, place = np.unique(self.ends[model.numeric.index(model.time)], return_index=True)
        use = told.ends[place] & (grid > 0)
        grid, place = grid[use], place[use]
        time, event, group = self._survived(told.groups)
        first = np.array([min(part) for part in told.groups])
        if not model.whole:
            if (curve := self._curve(told)) is not None:
                own = curve[0]
                counts[np.ix_(first, place)], counts[np.ix_(first, place + ends)] = own.events, own.censored
                counts[first, -1] = own.at_risk[:, -1]
            return counts
        there = ~(np.isnan(time) | np.isnan(event))
        interval = np.searchsorted(grid, time[there], side="left")
        cell = np.where(interval == len(grid), 2 * ends, np.append(place, 0)[interval] + ends * (event[there] == 0))
        np.add.at(counts, (first[group[there]], cell), 1)
        return counts


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
