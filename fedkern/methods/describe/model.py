"""Lays out the counts of a job that describes columns: what all parties know of them before a row is counted.

Cells of a column are its levels, or the bins of its numbers, and behind them its missing cells. In the order of `Layout.tables`
stand all columns, all of them by the group, pairs of columns of levels, and survival times: events of each group and interval,
then censored rows, then rows with later times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...disclosure import cells
from ...disclosure.cells import Parts
from ...disclosure.measures import MANY
from ...errors import JobError
from ...jobs.model import JobModel, Values
from ...models.encoding import Column, Encoding
from .keys import Config, OutputSection

value = Values[Config]()

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

BINS = {"apart": 25, "here": 1024, "private": 8}  # cells of a column of numbers: apart, in one process, and where they have noise
FEW = MANY  # values at most of a column whose values are its cells


class Counted(NamedTuple):
    """Names a table of counts: of one column, or of two."""

    first: str
    second: str = ""


TIMES = Counted("times")  # by the group: no column's


class Told(NamedTuple):
    """Says what all clients tell.

    Attributes
    ----------
    of : table of one or two columns -> the parts of their cells; None where nobody tells it
    ends : (ends,) which ends of survival times
    groups : the parts of the group's levels; one of all rows without a group
    """

    of: Mapping[Counted, tuple[Parts, Parts] | None]
    ends: NDArray[np.bool_]
    groups: Parts


@dataclass(frozen=True)
class DescribeModel(JobModel[OutputSection]):
    """Holds a job with its clients and columns."""

    config: Config  # type: ignore[assignment]  # a description has no intercept
    encoding: Encoding = field(kw_only=True)

    def __post_init__(self) -> None:
        model, there = self.config.model, {column.name for column in self.encoding.columns}
        for name in (model.group, model.time, model.event, *(name for pair in model.cross for name in pair)):
            if name is not None and name not in there:
                raise JobError(f"[model] names column {name!r}, and no file has it; there are {', '.join(sorted(there))}")
        if not self.shown:
            raise JobError("no column is left to be described: take some out of data.ignore")
        pair = None if self.whole else cells.ring([(table.first, table.second) for table in self.double])
        if pair is not None:
            raise JobError(
                f"model.cross has {pair[0]!r} and {pair[1]!r}, and both are counted with a third column: three tables of three "
                "columns may tell one row; leave model.group out, or this pair"
            )

    private = value(lambda config: config.private, "Whether counts have noise.")
    privacy = value(lambda config: config.privacy, "The keys of [privacy]; None without.")
    time = value(lambda config: config.model.time or "", "The column of survival times; none without.")

    @property
    def here(self) -> bool:
        """Whether all is told as it is: all rows are in one process."""
        return self.config.level == "none" and not self.config.private

    @property
    def whole(self) -> bool:
        """Whether each cell is told by itself: all rows are in one process, or counts have noise."""
        return self.config.level == "none"

    @property
    def bins(self) -> int:
        """The number of cells of a column of numbers."""
        if self.config.private:
            return BINS["private"]
        return BINS["here" if self.here else "apart"]

    @cached_property
    def columns(self) -> Mapping[str, Column]:
        """The columns by their names."""
        return {column.name: column for column in self.encoding.columns}

    @cached_property
    def numeric(self) -> tuple[str, ...]:
        """The columns of numbers."""
        return tuple(column.name for column in self.encoding.columns if column.levels is None)

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """The columns that are described by themselves: times and events are told by curves alone."""
        hidden = (self.config.model.time, self.config.model.event)
        return tuple(name for name in self.columns if name not in hidden)

    def size(self, name: str) -> int:
        """Returns the number of cells of a column, with that of missing ones; of no column 1."""
        if not name:
            return 1
        levels = self.columns[name].levels
        return 1 + (self.bins if levels is None else len(levels))

    def ordered(self, name: str) -> int:
        """Returns how many first cells of a column are in order."""
        return self.bins if name and self.columns[name].levels is None else 0

    @property
    def group(self) -> str:
        """The column of groups; "" without."""
        return self.config.model.group or ""

    @cached_property
    def single(self) -> tuple[Counted, ...]:
        """The tables of one column."""
        return tuple(map(Counted, self.shown))

    @cached_property
    def double(self) -> tuple[Counted, ...]:
        """The tables of two columns."""
        beside = [name for name in self.shown if self.group not in ("", name)]
        return tuple(Counted(name, self.group) for name in beside) + tuple(Counted(*pair) for pair in self.config.model.cross)

    @cached_property
    def tables(self) -> tuple[Counted, ...]:
        """All tables."""
        return (*self.single, *self.double, *([] if self.config.model.time is None else [TIMES]))

    def shape(self, table: Counted) -> tuple[int, int]:
        """Returns the shape of a table's counts; of survival times each group has events, censored rows and the rest."""
        if table is TIMES:
            return self.size(self.group), 2 * (self.bins - 1) + 1
        return self.size(table.first), self.size(table.second)

    @cached_property
    def dims(self) -> dict[str, int]:
        """The sizes of messages."""
        return {
            "columns": len(self.numeric),
            "values": self.bins if self.here else FEW,
            "ends": self.bins - 1,
            "groups": self.size(self.group),
            "pairs": len(self.pairs),
            "cells": sum(int(np.prod(self.shape(table))) for table in self.tables),
        }

    @cached_property
    def parts_of_one(self) -> int:
        """The numbers by which parts of columns are told."""
        return sum(sum(map(self.size, table)) for table in self.single)

    @cached_property
    def parts_of_two(self) -> int:
        """The numbers by which parts of each two columns are told, and behind them which ends of times are."""
        return sum(sum(map(self.size, table)) for table in self.double) + self.bins - 1

    def told(self, first: Array) -> Told:
        """Restores what is told of messages' numbers: of columns, and behind these of two columns and times."""
        of, begin = dict[Counted, tuple[Parts, Parts] | None](), 0
        for table in (*self.single, *(self.double if len(first) > self.parts_of_one else ())):
            own = np.split(first[begin : begin + sum(map(self.size, table))], [self.size(table.first)])
            begin += len(own[0]) + len(own[1])
            of[table] = None if min(own[0].min(), own[1].min()) < 0 else (to_parts(own[0]), to_parts(own[1]))
        groups, missing = of.get(Counted(self.group)), self.size(self.group) - 1
        inside = ((0,),) if groups is None else tuple(part for part in groups[0] if part != (missing,))
        return Told(of, np.asarray(first[begin:]) > 0, inside)

    @property
    def all_told(self) -> Array:
        """The numbers by which each cell is told by itself, and each end."""
        cells_of = [np.arange(self.size(name), dtype=np.float64) for table in (*self.single, *self.double) for name in table]
        return np.concatenate([*cells_of, np.ones(self.bins - 1)])

    def common(self, answers: Sequence[Array], before: Array) -> Array:
        """Returns the numbers of what all clients tell: cells that any tells together are together, ends are those of all.

        `before`: the numbers of what is told already; of the first question none.
        """
        told, numbers = [self.told(np.concatenate([before, one])) for one in answers], [before]
        for table in self.double if len(before) else self.single:
            heard = [own for one in told if (own := one.of[table]) is not None]
            for axis, name in enumerate(table):
                parts = cells.common(*(one[axis] for one in heard)) if heard else ()
                numbers.append(to_numbers(parts, self.size(name)))
        if len(before):
            ends = [one[-(self.bins - 1) :] for one in answers if one[-1] >= 0]
            numbers.append(np.all(ends, axis=0) * bool(ends) * np.ones(self.bins - 1))
        return np.concatenate(numbers)

    @cached_property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The columns that are correlated."""
        wanted = self.config.model.correlations and not self.config.private
        return tuple(combinations([name for name in self.numeric if name in self.shown], 2)) if wanted else ()

    def split(self, cells: Array) -> Iterator[tuple[Counted, Array]]:
        """Yields each table with its part of all counts."""
        begin = 0
        for table in self.tables:
            shape = self.shape(table)
            end = begin + shape[0] * shape[1]
            yield table, cells[begin:end].reshape(shape)
            begin = end

    @cached_property
    def places(self) -> tuple[str, ...]:
        """The names of all cells: of public words, by which the noisy counts of a job are known again."""
        facts = self.public_ends.tolist(), [*self.columns.values()], self.config.model.time, self.config.model.event
        return tuple(f"{facts} {table} {cell}" for table in self.tables for cell in range(int(np.prod(self.shape(table)))))

    @property
    def public_ends(self) -> Array:
        """(columns, ends) The inner ends of bins that the job file decides; zeros of others."""
        ends = np.zeros((len(self.numeric), self.bins - 1))
        for j, declared in enumerate(map(self.config.data.columns.get, self.numeric)):
            if declared is not None and declared.lower is not None and declared.upper is not None:
                ends[j] = np.linspace(declared.lower, declared.upper, self.bins + 1)[1:-1]
        return ends


def to_numbers(parts: Parts, n: int) -> Array:
    """Returns (n,) the first cell of the part that each cell is in; -1 for all without parts."""
    first = np.full(n, -1.0)
    for part in parts:
        first[list(part)] = min(part)
    return first


def to_parts(first: Any) -> Parts:
    """Restores parts of `to_numbers`."""
    found: dict[int, list[int]] = {}
    for cell, number in enumerate(np.asarray(first, np.int64).tolist()):
        found.setdefault(number, []).append(cell)
    return tuple(tuple(cells) for cells in found.values())
