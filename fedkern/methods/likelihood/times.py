"""Reads a client's rows with survival times.

Source: docs/spec/likelihood.md, sections 8 and 9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array, Indices
from ...data.design import Design, read_numbers
from ...data.faults import Marks, who
from ...data.reading import NAMED
from ...data.rounded import join_rounded
from ...data.table import Table
from ...errors import OwnFault
from ...finding import RuleRefusal, Value
from ...models.weighing import effective

DAY_0 = (
    "an event on day 0 was later on that day: write half of the unit (0.5), or 0 with the end of the day (1) in a column "
    "data.time_upper; a row that was last seen on day 0 says nothing, write half of the unit as well"
)
NO_TIME = (
    "times are numbers from a row's own beginning, such as days since admission, and no dates: correct or remove the row (with "
    'two columns of dates as 2024-03-01 set data.time = "end - start")'
)
YEAR_1 = 719_163.0  # days from then to 1970, where dates are counted from: among dates only differences have a meaning
BETWEEN = 10  # events between two times at which a cumulative hazard is told


class Columns(NamedTuple):
    """Names the columns of a file's times; the event is the response. `named`: the times that the job names."""

    time: str
    entry: str | None
    strata: str | None
    upper: str | None = None
    named: tuple[float, ...] = ()


@dataclass(frozen=True)
class Timed:
    """Holds the rows with times that a client's likelihood reads: it is the field of no message.

    Attributes
    ----------
    X : (n, p) the columns of the coefficients
    time, cause : (n,) when each row ends, and the number of what ends it: 0 without event, 1 of a single kind
    entry : (n,) the time from which on each was seen; None: from the beginning
    strata, labels : (n,) the number of each row's label, and the labels; None and () where there are none
    weights, offset : (n,) or None
    upper : (n,) the end of the interval after `time` in which the event was; `time` where it was seen, infinite where there was
        none
    codes, groups : (n,) the number of each row's group, and their labels; None and () where none have effects
    key : of the numbers by which effects are integrated
    """

    X: Array
    time: Array
    cause: Indices
    entry: Array | None
    strata: Indices | None
    labels: tuple[str, ...]
    weights: Array | None
    offset: Array | None
    upper: Array
    codes: Indices | None = None
    groups: tuple[str, ...] = ()
    key: int = 0

    def __len__(self) -> int:
        return len(self.time)

    @property
    def event(self) -> NDArray[np.bool_]:
        """(n,) whether each row ends with an event."""
        return self.cause > 0


class Times(NamedTuple):
    """Holds the times of rows, as `Timed` has them."""

    time: Array
    entry: Array | None
    strata: Indices | None
    labels: tuple[str, ...]
    upper: Array

    @property
    def between(self) -> NDArray[np.bool_]:
        """(n,) whether the event is in an interval."""
        return np.asarray(np.isfinite(self.upper) & (self.upper > self.time))


def read_times(columns: Columns, table: Table, event: Array, client: str = "", *, positive: bool) -> Times:
    """Returns a client's times, which do not depend on the agreement of the parties.

    Parameters
    ----------
    event : (n,) 1 where a row has its event
    positive : whether times have a density, as those of a baseline hazard that all share, and so are above 0: of a Cox model only
        their order counts, and events on day 0 are the first ones

    Raises
    ------
    OwnFault
        A time that is not above 0 (of a Cox model below it), an entry that is not before it, or an interval that is none; cells
        are for the holder.
    """
    marks = Marks(table)
    _check_dates(columns, table, client, positive=positive)
    time = read_numbers(table, columns.time, marks, instead=NO_TIME)
    entry = None if columns.entry is None else read_numbers(table, columns.entry, marks, instead=NO_TIME)
    ends = None if columns.upper is None else read_numbers(table, columns.upper, marks, missing=True, instead=NO_TIME)
    if entry is not None and columns.time in table.dates:
        time, entry = time + YEAR_1, entry + YEAR_1
    time, *others = join_rounded(columns.named, *(cells for cells in (time, entry, ends) if cells is not None))
    entry = None if entry is None else others[0]
    upper = np.where(event == 1, time, np.inf) if ends is None else _upper(columns, marks, time, others[-1], event)
    marks.mark(time < 0, columns.time, "is below 0", "a row is at risk from 0 on: count time from its own beginning")
    if positive:
        marks.mark((time == 0) & ~((upper > 0) & np.isfinite(upper)), columns.time, "is not above 0", DAY_0)
    if entry is not None:
        late = f"a row is seen from {columns.entry!r} to {columns.time!r}: correct one of the cells, or remove the row"
        # A row whose event comes later may be seen from its begin on.
        at_entry = (entry == time) & ~((upper > time) & np.isfinite(upper))
        marks.mark((entry > time) | at_entry, str(columns.entry), f"is not before {columns.time!r}", late)
    strata, labels = None, tuple[str, ...]()
    if columns.strata is not None:
        cells = [cell.strip() for cell in table.cells(columns.strata)]
        empty = np.array([not cell for cell in cells], bool)
        marks.mark(empty, columns.strata, "is empty", *NAMED)
        labels = tuple(sorted(set(cells)))
        numbers = {label: number for number, label in enumerate(labels)}
        strata = np.array([numbers[cell] for cell in cells], np.int64)
    marks.refuse(client, [name for name in (columns.time, columns.entry, columns.strata, columns.upper) if name is not None])
    return Times(time, entry, strata, labels, upper)


def _check_dates(columns: Columns, table: Table, client: str, *, positive: bool) -> None:
    """Refuses dates as times, but the two between which a row of a Cox model was seen: of dates as of times only order counts."""
    dated = table.dates & {columns.time, columns.entry, columns.upper}
    if dated and (positive or dated != {columns.time, columns.entry}):
        start = "START"
        if columns.entry in dated:
            start = str(columns.entry)
        text = (
            f"{who(client, table.source)}: column {min(dated)!r} holds dates, and a time counts from a row's own beginning: take "
            f'Surv({columns.time} - {start}, ..), or data.time = "{columns.time} - {start}", with the dates on which rows begin'
        )
        raise OwnFault(text, text)


def _upper(columns: Columns, marks: Marks, time: Array, upper: Array, event: Array) -> Array:
    """(n,) ends of the intervals in which events are, as `Timed` has them.

    A cell is empty where the row has no event, the same time where the event was seen, a later one where it was between.
    """
    name = str(columns.upper)
    empty, between = np.isnan(upper), f"{columns.time!r} and {name!r}"
    seen = "write the time of the event where it was seen, and of a row without event nothing"
    marks.mark(empty & (event == 1), name, "is empty in a row that has its event", seen)
    marks.mark(~empty & (event == 0), name, "is given in a row without event", seen)
    marks.mark(upper < time, name, f"is before {columns.time!r}", f"an event is between {between}: correct one of the cells")
    return np.where(empty, np.inf, upper)


def read_timed_rows(columns: Columns, design: Design, table: Table, client: str, *, positive: bool) -> Timed:
    """Returns a client's rows with their times; raises the errors of `read_times`."""
    X = np.ascontiguousarray(design.X, np.float64)
    times = read_times(columns, table, np.minimum(design.y, 1.0), client, positive=positive)
    given = (times.entry, times.strata, times.labels, design.weights, design.offset, times.upper)
    return Timed(X, times.time, design.y.astype(np.int64), *given)


def check_between(times: Sequence[float], rows: Times, event: Array, weights: Array, client: str, where: str) -> None:
    """Refuses a client with few events between two times at which its cumulative hazard is asked for; one without events passes.

    Parameters
    ----------
    event, weights : (n,) 1 where a row has its event, and what it weighs: events count by their effective number

    Raises
    ------
    RuleRefusal
        It has few.
    """
    dying = weights * (event == 1)
    if not times or not (dying > 0).any():
        return
    ends = np.array([0.0, *times])
    which = np.searchsorted(ends, rows.time, side="left")  # an event at a time is part of the hazard there
    counts = [int(effective(dying[which == k]) + 1e-9) for k in range(1, len(ends))]
    if min(counts) < BETWEEN:
        k = int(np.argmin(counts))
        half = float(np.median(rows.time[dying > 0]))
        values: dict[str, Value] = {"events": counts[k], "low": float(ends[k]), "high": float(ends[k + 1]), "least": BETWEEN}
        values |= {"half": half, "remedies": ("other-times",)}
        raise RuleRefusal("few-events-between-times", client, "output.survival_at", where=where, **values)


def middle(rows: Timed) -> Array:
    """Returns (n,) when each row has its event, or is seen last; an event in an interval counts at its middle."""
    return np.where(np.isfinite(rows.upper), (rows.time + rows.upper) / 2, rows.time)


def exposure(rows: Timed) -> Array:
    """Returns (n,) how long each row was seen without event; an event in an interval counts at its middle."""
    end = middle(rows)
    return np.asarray(end if rows.entry is None else end - np.maximum(rows.entry, 0.0))


def describe_times(rows: Timed, *, exposed: bool) -> list[str]:
    """Returns notes for the client's own eyes; `exposed`: whether rows without event have terms of their own."""
    notes = []
    events = int(rows.event.sum())
    if not events and exposed:
        notes.append("no row has its event: this client adds how long its rows were seen without one")
    elif not events:
        notes.append("no row has its event: this client adds nothing, for who is at risk is asked at times of events alone")
    elif len(np.unique(rows.time[rows.event])) == 1 and events > 1:
        notes.append(f"all {events} events are at one time: is the time rounded too much, or is another column meant?")
    return notes
