"""Lays out the counts of a job that describes columns: what all parties know of them before a row is counted.

Cells of a column are its levels, or the bins of its numbers, and behind them its missing cells. Survival times are a column like
others, of which a cell is an interval and an end. In the order of `tables` stand all columns, all of them by the group, pairs of
columns of levels, and survival times by the group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array
from ...disclosure import cells
from ...disclosure.cells import Parts
from ...disclosure.measures import MANY
from ...errors import JobError
from ...jobs import secure
from ...jobs.model import JobModel, Values
from ...models.encoding import Column, Encoding
from ...privacy.masks import FEWEST
from .keys import Config, OutputSection
from .rows import event_label

value = Values[Config]()

Ints = NDArray[np.int64]

BINS = {"apart": 25, "here": 1024, "private": 8}  # cells of a column of numbers: apart, in one process, and where they have noise
FEW = MANY  # values at most of a column whose values are its cells


class Counted(NamedTuple):
    """Names a table of counts: of one column, or of two."""

    first: str
    second: str = ""


# In the place of a column: events of each interval, censored rows, where rows enter late those of 0 and these, rows without time.
TIMES = "\n"
Both = tuple[Parts, Parts]  # of a table's two columns; of one column the other parts are one
Told = Mapping[Counted, Both | None]  # what all clients tell; None where some client tells nothing of a table, so that none does


class Agreed(NamedTuple):
    """Holds what is agreed: inner ends of bins (columns, ends), the columns whose values are their cells, about which centres
    sums are and to which sds they are rounded (columns, 2), and the numbers by which all clients tell counts, and sums."""

    ends: Array
    values: frozenset[str]
    scale: Array
    told: Array
    sums: Array


@dataclass(frozen=True)
class DescribeModel(JobModel[OutputSection]):
    """Holds a job with its clients and columns."""

    config: Config  # type: ignore[assignment]  # a description has no intercept
    encoding: Encoding = field(kw_only=True)

    def __post_init__(self) -> None:
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
    entry = value(lambda config: config.model.entry or "", "The column of times from which on rows are seen; none without.")

    event_column = value(lambda config: config.model.event or "", "The column of events; none without.")

    @property
    def event(self) -> str:
        """What an event is, in words; "" without survival times."""
        return f"{self.config.model.event} = {self.event_label}" if self.time else ""

    @property
    def event_label(self) -> str:
        """The label of an event."""
        return event_label(self.config, self.encoding)

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
        return tuple(name for name in self.columns if name not in self.config.model.times)

    @cached_property
    def summed(self) -> tuple[tuple[int, str], ...]:
        """The columns of numbers that are described by themselves, with their places among all of numbers."""
        return tuple((j, name) for j, name in enumerate(self.numeric) if name in self.shown)

    def size(self, name: str) -> int:
        """Returns the number of cells of a column, with that of missing ones; of no column 1."""
        if name in ("", TIMES):
            return 1 + (2 * self.bins + (self.bins + 1) * bool(self.entry)) * (name == TIMES)
        levels = self.columns[name].levels
        return 1 + (self.bins if levels is None else len(levels))

    def ordered(self, name: str) -> int:
        """Returns how many first cells of a column are in order."""
        return self.bins if name in self.numeric else 0

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
        return (*self.single, *self.double, *([] if self.config.model.time is None else [Counted(TIMES, self.group)]))

    def shape(self, table: Counted) -> tuple[int, int]:
        """Returns the shape of a table's counts."""
        return self.size(table.first), self.size(table.second)

    @cached_property
    def dims(self) -> dict[str, int]:
        """The sizes of messages."""
        return {
            "columns": len(self.numeric),
            "values": self.bins if self.here else FEW,
            "ends": self.bins - 1,
            "groups": self.groups,
            "pairs": len(self.pairs),
            "cells": sum(int(np.prod(self.shape(table))) for table in self.tables),
            "parts": sum(sum(self.shape(table)) for table in self.tables),
            "sums": len(self.numeric) * self.groups + len(self.pairs),
        }

    @property
    def groups(self) -> int:
        """The number of cells of groups, with that of missing ones, and behind them one of all rows."""
        return 1 + self.size(self.group) * bool(self.group)

    @property
    def tells_sums(self) -> bool:
        """Whether sums of numbers are told: in one process, or masked, over clients enough."""
        return self.here or (not self.private and secure.masks(self.config, len(self.names)))

    def sums(self, numbers: Array) -> tuple[Array, Array]:
        """Returns of the numbers of messages on sums those of columns in groups, and last in all rows, and those of pairs."""
        n = len(self.numeric) * self.groups
        return numbers[:n].reshape(-1, self.groups), numbers[n:]

    def told(self, numbers: Array) -> Told:
        """Restores what is told of the numbers of messages."""
        ends = np.cumsum([sum(self.shape(table)) for table in self.tables])[:-1]
        axes = {table: np.split(counts, [self.size(table.first)]) for table, counts in zip(self.tables, np.split(numbers, ends))}
        return {table: None if both[0][0] < 0 else (to_parts(both[0]), to_parts(both[1])) for table, both in axes.items()}

    def numbers(self, tables: Told) -> Array:
        """Returns the numbers of messages by which this is told: of each cell the first cell of its part, -1 of cells in none."""
        both = (zip(tables[table] or ((), ()), self.shape(table)) for table in self.tables)
        return np.concatenate([to_numbers(parts, n) for axes in both for parts, n in axes])

    @property
    def all_told(self) -> Told:
        """By which each cell is told by itself."""

        def each(name: str) -> Parts:
            return tuple((cell,) for cell in range(self.size(name)))

        return {table: (each(table.first), each(table.second)) for table in self.tables}

    def common(self, answers: Sequence[Array]) -> Told:
        """Returns what all clients tell, by the numbers of each: cells that any tells together are together.

        What some client does not tell nobody does: else what is printed of all rows would be of some clients' alone.
        """
        heard, found = [self.told(answer) for answer in answers], dict[Counted, Both | None]()
        for table in self.tables:
            told_parts = [both for parts_of_client in heard if (both := parts_of_client[table]) is not None]
            firsts, seconds = ([both[axis] for both in told_parts] for axis in (0, 1))
            found[table] = (cells.common(*firsts), cells.common(*seconds)) if len(told_parts) == len(heard) else None
        return found

    def common_sums(self, tables: Told, answers: Sequence[Array]) -> Array:
        """Returns which sums are told, as `AskSums` has them: sums over several clients, to which all may add their rows.

        A group's are told where all groups' may be: each is what all have less the others'.
        """
        if self.here:
            return np.array([*[*range(self.groups - 1), 0] * len(self.numeric), *[0] * len(self.pairs)], np.float64)
        may, of_pairs = (np.stack(answers_of) for answers_of in zip(*map(self.sums, answers)))  # clients first
        found = np.full(may.shape[1:], -1.0)
        for j, name in self.summed:
            found[j, -1] = _several(may[:, j, -1]) - 1.0
            both = tables.get(Counted(name, self.group)) if self.group and found[j, -1] == 0 else None
            of_parts = np.stack([_all(may[:, j, list(part)]) for part in (both or ((), ()))[1]] or [np.zeros(len(may))], axis=-1)
            if both is not None and (_several(of_parts) | ~of_parts.any(axis=0)).all():
                found[j, :-1] = to_numbers(both[1], self.groups - 1)
        of_column = {name: found[j, -1] for j, name in self.summed}
        of_both = [min(of_column[column] for column in pair) for pair in self.pairs]
        return np.concatenate([found.ravel(), np.minimum(_several(of_pairs) - 1.0, of_both)])

    def parts_of(self, tables: Told, name: str) -> Parts:
        """Returns the parts in which a column is told, without that of missing cells; of no column there is one, of all rows."""
        both = tables.get(Counted(name)) or ((), ())
        return tuple(part for part in both[0] if part != (self.size(name) - 1,)) if name else ((0,),)

    @cached_property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The columns that are correlated."""
        wanted = self.config.model.correlations and not self.config.private
        return tuple(combinations([name for _, name in self.summed], 2)) if wanted else ()

    def split(self, counts: Array) -> dict[Counted, Array]:
        """Returns each table's part of all counts."""
        shapes = [self.shape(table) for table in self.tables]
        each = np.split(counts, np.cumsum([rows * columns for rows, columns in shapes]))
        return {table: counts.reshape(shape) for table, counts, shape in zip(self.tables, each, shapes)}

    @cached_property
    def places(self) -> tuple[str, ...]:
        """The names of all cells: of public words, by which the noisy counts of a job are known again."""
        facts = self.public_ends.tolist(), [*self.columns.values()], self.time, self.config.model.event, self.entry
        return tuple(f"{facts} {table} {cell}" for table in self.tables for cell in range(int(np.prod(self.shape(table)))))

    @property
    def public_ends(self) -> Array:
        """(columns, ends) The inner ends of bins that the job file decides; zeros of others."""
        ends = np.zeros((len(self.numeric), self.bins - 1))
        for j, declared in enumerate(map(self.config.data.columns.get, self.numeric)):
            if declared is not None and declared.lower is not None and declared.upper is not None:
                ends[j] = np.linspace(declared.lower, declared.upper, self.bins + 1)[1:-1]
        return ends


def _several(may: Array) -> NDArray[np.bool_]:
    """Tells of sums whether as many clients may add their rows (1) as hide each other's, and no other has any (0)."""
    fit: NDArray[np.bool_] = (may >= 0).all(axis=0) & ((may > 0).sum(axis=0) >= FEWEST)
    return fit


def _all(may: Array) -> Array:
    """Returns whether clients may add their rows of all of some groups."""
    return np.where((may < 0).any(axis=1), -1.0, may.max(axis=1))


def to_numbers(parts: Parts, n: int) -> Array:
    """Returns (n,) the first cell of the part that each cell is in; -1 of cells in none."""
    first = np.full(n, -1.0)
    for part in parts:
        first[list(part)] = min(part)
    return first


def to_parts(first: Any) -> Parts:
    """Restores parts of `to_numbers`."""
    found: dict[int, list[int]] = {}
    for cell, number in enumerate(np.asarray(first, np.int64).tolist()):
        found.setdefault(number, []).append(cell)
    return tuple(tuple(cells) for number, cells in found.items() if number >= 0)
