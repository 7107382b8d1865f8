"""Finds the parties of a job that describes columns, and reads a client's rows as numbers and as levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array
from ...data.cells import Text, as_days, labels
from ...data.faults import Marks, name_column, who
from ...data.reading import categories, hot, read_numbers
from ...data.table import Table
from ...errors import JobError, OwnFault
from ...jobs import parties as jobs
from ...jobs.parties import Parties
from ...labels import OTHER, event_of, find, label
from ...models.encoding import Column, Encoding, Spec
from .keys import Config

Ints = NDArray[np.int64]


def parties(config: Config, folder: Path) -> Parties:
    """Returns the parties of a job whose paths are relative to `folder`.

    Raises
    ------
    JobError
        No file matches, or two clients have one name.
    """
    data, model = config.data, config.model
    meant = {name: Column(name, "categorical") for name in (*model.levels, model.event) if name is not None}
    meant |= {name: Column(name) for name in (model.time, model.entry) if name is not None}
    columns = meant | jobs.declared(data.columns)
    spec = Spec(
        None,
        ignore=tuple(data.ignore),
        standardise="none",
        private=config.private,
        missing=True,
        blank=True,
        columns=columns,
    )
    taking_part = jobs.from_files(config, folder, spec, spec.texts)
    return replace(taking_part, check=check_columns)


def check_columns(config: Config, table: Table, spec: Spec, client: str = "") -> None:
    """Refuses a client's file whose columns cannot be described, whatever others' are.

    Raises
    ------
    OwnFault
        A column that the job names is missing, one has dates, or another label in each row, or a time is below 0.
    """
    model, begin = config.model, who(client, table.source)
    for name in model.levels + model.times:
        if name not in table.columns:
            what, present = f"{begin}: column {name!r} is missing", ", ".join(table.names)
            raise OwnFault(f"{what}; correct the file, or [model]", f"{what}, there are {present}; correct the file, or [model]")
    if spec.private:
        return
    for name in spec.covariates(table.names):
        cells = table.columns[name]
        before = (cells.before or cells) if isinstance(cells, Text) else cells
        counts = np.zeros(0, np.int64)
        if isinstance(before, Text) and before.kind() == "categorical" and name not in config.data.columns:
            counts = np.bincount(before.codes, minlength=len(before.levels))[[level != "" for level in before.levels]]
        if name in table.dates or as_days(before) is not before:
            what, remedy = "has dates", "write days or years from a beginning, or put it into data.ignore"
        elif len(counts) > 2 and (counts == 1).all():
            what, remedy = "has as many levels as rows", "it names its rows: put it into data.ignore"
        else:
            continue
        called = name_column(name, table.names, spec.known)
        raise OwnFault(f"{begin}: {called} {what}; {remedy}", f"{begin}: column {name!r} {what}; {remedy}")
    if model.time is None:
        return
    marks = Marks(table)
    time = read_numbers(table, model.time, marks, missing=True)
    marks.mark(time < 0, model.time, "is below 0", "a row is at risk from 0 on: count time from its own beginning")
    if model.entry is not None:
        entry, late = (
            read_numbers(table, model.entry, marks, missing=True),
            f"a row is seen from {model.entry!r} to {model.time!r}",
        )
        marks.mark(entry >= time, model.entry, f"is not before {model.time!r}", f"{late}: correct one of the cells")
    marks.refuse(client, spec.known)


@dataclass(frozen=True)
class Rows:
    """Holds a client's rows.

    Attributes
    ----------
    n : their number
    values : column of numbers -> (n,), NaN where a cell is missing
    codes : column of levels -> (n,) which level each cell has, -1 where it is missing
    event : (n,) 1 where a row ends with its event, NaN where that is missing; None where rows have no times
    """

    n: int
    values: Mapping[str, Array]
    codes: Mapping[str, Ints]
    event: Array | None = None

    @classmethod
    def of(cls, config: Config, encoding: Encoding, table: Table) -> Rows:
        """Reads a client's table; cells that cannot be read are missing here, as they are refused before in an open job."""
        values, codes, marks = dict[str, Array](), dict[str, Ints](), Marks(table)
        for column in encoding.columns:
            if column.levels is None:
                numbers = read_numbers(table, column.name, marks, missing=True)
                values[column.name] = np.where(np.isfinite(numbers), numbers, np.nan)
            else:
                which = hot(categories(table, column.name, marks, levels=column.levels), column.with_blank(), marks)
                codes[column.name] = np.where(which == len(column.levels), -1, which)
        event = None
        if config.model.event is not None:
            cells = labels(table.columns[config.model.event])
            cells = cells.before or cells
            positive = event_label(config, encoding)
            is_event = [np.nan if level == "" else float(find(level, (positive,)) == positive) for level in cells.levels]
            event = np.array(is_event)[cells.codes]
        return cls(table.n_rows, values, codes, event)


def event_label(config: Config, encoding: Encoding) -> str:
    """Returns the label of an event: the job's, or the one of two that says yes, or 1 of numbers.

    Raises
    ------
    JobError
        No file has the job's, or there are more than two and the job names none.
    """
    levels = next((column.levels or () for column in encoding.columns if column.name == config.model.event), ())
    labels = f"column {config.model.event!r} has the labels {', '.join(levels)}"
    if config.model.positive is not None:
        positive = label(config.model.positive, text=True)
        if levels and positive not in levels and OTHER not in levels:
            raise JobError(f"model.positive = {config.model.positive!r}: {labels}; name one of them")
        return positive
    if len(levels) > 2:
        raise JobError(f"{labels}: set model.positive to that of an event")
    return event_of(levels) if len(levels) == 2 else "1"
