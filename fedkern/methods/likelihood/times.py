"""Rows with survival times, as a client reads them. Source: docs/methods/likelihood.md, sections 8 and 9."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...data.cells import MISSING
from ...data.design import Design, read_numbers
from ...data.faults import Marks
from ...data.table import Table

Array = NDArray[np.float64]
Indices = NDArray[np.int64]


class Columns(NamedTuple):
    """Names of a file's columns, beside that of the event, which is the response."""

    time: str
    entry: str | None
    strata: str | None


@dataclass(frozen=True)
class Timed:
    """What a client's likelihood reads of rows with times: it is the field of no message.

    Attributes
    ----------
    X : (n, p) the columns of the coefficients
    time, event : (n,) when each row ends, and whether that is by its event
    entry : (n,) from when on each was seen; None: from the beginning
    strata, labels : (n,) the number of each row's label, and the labels; None and () where there are none
    weights, offset : (n,) or None
    """

    X: Array
    time: Array
    event: NDArray[np.bool_]
    entry: Array | None
    strata: Indices | None
    labels: tuple[str, ...]
    weights: Array | None
    offset: Array | None

    def __len__(self) -> int:
        return len(self.time)


class Times(NamedTuple):
    """Of rows: as `Timed` has them."""

    time: Array
    entry: Array | None
    strata: Indices | None
    labels: tuple[str, ...]


def read(columns: Columns, table: Table, client: str = "") -> Times:
    """A client's times, which do not depend on what the parties agree on.

    Raises
    ------
    OwnFault
        A time that is not above 0, or an entry that is not before it; cells are for the holder.
    """
    marks = Marks(table)
    time = read_numbers(table, columns.time, marks)
    remedy = "a row is at risk from 0 on: count time from its own beginning, or remove the row"
    marks.mark(time <= 0, columns.time, "is not above 0", remedy)
    entry = None
    if columns.entry is not None:
        entry = read_numbers(table, columns.entry, marks)
        late = f"a row is seen from {columns.entry!r} to {columns.time!r}: correct one of the cells, or remove the row"
        marks.mark(entry >= time, columns.entry, f"is not before {columns.time!r}", late)
    strata, labels = None, tuple[str, ...]()
    if columns.strata is not None:
        cells = [cell.strip() for cell in table.cells(columns.strata)]
        empty = np.array([not cell or cell.lower() in MISSING for cell in cells], bool)
        marks.mark(empty, columns.strata, "is empty", 'remove the row, or give missing cells a name ("?")')
        labels = tuple(sorted(set(cells)))
        numbers = {label: number for number, label in enumerate(labels)}
        strata = np.array([numbers[cell] for cell in cells], np.int64)
    marks.refuse(client, [name for name in (columns.time, columns.entry, columns.strata) if name is not None])
    return Times(time, entry, strata, labels)


def timed(columns: Columns, design: Design, table: Table, client: str) -> Timed:
    """A client's rows with their times; raises what `read` does."""
    X, found = np.ascontiguousarray(design.X, np.float64), read(columns, table, client)
    given = (found.entry, found.strata, found.labels, design.weights, design.offset)
    return Timed(X, found.time, design.y > 0.5, *given)


def notes(rows: Timed) -> list[str]:
    """For the client's own eyes."""
    found = []
    events = int(rows.event.sum())
    if not events:
        found.append("no row has its event: this client adds nothing, for who is at risk is asked at times of events alone")
    elif len(np.unique(rows.time[rows.event])) == 1 and events > 1:
        found.append(f"all {events} events are at one time: is the time rounded too much, or is another column meant?")
    return found
