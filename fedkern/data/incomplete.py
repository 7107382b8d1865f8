"""Leaves out rows that lack a cell, or fills them and marks them by a column of their own.

A row whose line cannot be read at all is neither left out nor filled: it stays a fault (`faults`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from ..arrays import Mask
from ..errors import JobError
from ..models.encoding import Spec
from .cells import MISSING, Cells, Text, floats, number, written
from .dialect import Dialect
from .faults import name_column, who
from .table import Table

MARK = "[missing]"
NO_LABEL = frozenset({"NA", "<NA>", "NaN", "nan", "NaT"})  # as R, pandas and NumPy write a label that is missing


def marked(name: str) -> str:
    """Returns the name of the 0/1 column that says where another one has no value."""
    return f"{name}{MARK}"


def with_empty(table: Table, dialect: Dialect, levels: Mapping[str, Collection[str]]) -> Table:
    """Returns the table with those cells empty that stand for no value.

    These are the job's words for a missing value, in tables with types as in files of text, and labels that are written as R,
    pandas and NumPy write a missing one. `dialect`: has the words; `levels`: columns in which labels may be missing, and the
    levels that the job declares of them, which are none such.
    """
    columns = dict(table.columns)
    values = [value for value in map(number, dialect.missing) if value == value]
    for name, cells in table.columns.items():
        if isinstance(cells, Text):
            none = NO_LABEL.difference(levels[name]) if name in levels else frozenset[str]()
            columns[name] = written(cells, ["" if level in none else level for level in dialect.cells(cells.levels)])
        elif values and (empty := np.isin(cells, values)).any():
            columns[name] = np.where(empty, np.nan, np.asarray(cells, np.float64))
    if all(columns[name] is cells for name, cells in table.columns.items()):
        return table
    return replace(table, columns=columns, matrix=None, matrix_names=())


def levels_of(table: Table, spec: Spec) -> dict[str, tuple[str, ...]]:
    """Returns the columns that a job uses, each with the levels that it declares; none where it declares none."""
    declared = {name: column.levels or () for name, column in spec.columns.items()}
    if spec.response is not None:
        declared[spec.response] = spec.declared_labels or ()
    return {name: declared.get(name, ()) for name in sorted(_used(table, spec))}


def _used(table: Table, spec: Spec) -> set[str]:
    """Returns the columns that a job uses, if the table has them."""
    roles = (spec.response, spec.offset, spec.weight, spec.trials, *spec.groups, *spec.times, spec.repeats, spec.strata)
    return {name for name in (*spec.covariates(table.names), *roles) if name is not None and name in table.columns}


def without(table: Table, spec: Spec, client: str = "", roles: Collection[str] = ()) -> Table:
    """Returns the table without its rows that lack a cell which the job uses, or end before they are seen; it knows how many.
    Raises JobError: no row has all of its cells: the emptiest column is named. With a `client` the column is not named, for that
    counts rows: an open job refuses a client without any row as one that has too few.

    Parameters
    ----------
    spec : which columns the job uses, and their kinds
    client : whose table it is, for an error
    roles : further columns that the job uses, if the table has them
    """
    used = _used(table, spec) | ({*roles} & {*table.names})
    empty = {n: _empty(table.columns[n], _numeric(table.columns[n], n, spec)) for n in sorted(used)}
    lacking = np.any([*empty.values(), _never_seen(table, spec)], axis=0)
    lacking[[*table.broken]] = False
    if table.n_rows and lacking.all() and not client:
        emptiest = max(empty, key=lambda name: int(empty[name].sum()))
        column, many = name_column(emptiest, table.names, spec.columns), int(empty[emptiest].sum())
        raise JobError(
            f'{who("", table.source)}: model.missing = "drop" leaves none of its {table.n_rows} rows; {column} is empty in '
            f"{many} of them: ignore it in [data], or remove the client from [data] clients"
        )
    if not lacking.any():
        return replace(table, incomplete=0)
    kept = table.select(np.flatnonzero(~lacking))
    return replace(kept, columns={k: _compact(v) for k, v in kept.columns.items()}, incomplete=int(lacking.sum()))


def _never_seen(table: Table, spec: Spec) -> Mask:
    """Returns which rows (n,) have a time that is not after their entry, as R's Surv has it; an event may be later, in an
    interval."""
    if len(spec.times) < 2 or not set(spec.times) <= set(table.columns):
        return np.zeros(table.n_rows, dtype=bool)
    time, entry = (floats(table.columns[name]) for name in spec.times)
    ends = table.columns.get(spec.upper or "")
    upper = np.full(table.n_rows, np.nan) if ends is None else floats(ends)
    return np.asarray((entry > time) | ((entry == time) & ~(upper > time)))


def fill_cells(table: Table, centers: Mapping[str, float]) -> Table:
    """Returns the table with every empty cell of some columns filled, and a 0/1 column for each that says where.

    The table knows in how many rows. `centers`: name of a numeric column -> the number that fills it; columns that the table
    lacks are passed over. Raises JobError: a column has already the name of such a 0/1 column.
    """
    columns, lacking = dict(table.columns), np.zeros(table.n_rows, dtype=bool)
    present = [name for name in centers if name in table.columns]
    readable = np.ones(table.n_rows, dtype=bool)
    readable[[*table.broken]] = False
    for name in present:
        empty = _empty(table.columns[name], True) & readable
        columns[name] = filled(table.columns[name], empty, centers[name])
        columns[marked(name)] = empty.astype(np.float64)
        lacking |= empty
    names = with_marks(table.names, centers)
    return replace(table, names=names, columns=columns, matrix=None, matrix_names=(), incomplete=int(lacking.sum()))


def with_marks(names: tuple[str, ...], centers: Mapping[str, float]) -> tuple[str, ...]:
    """Returns the header of a table that `fill_cells` has made."""
    present = frozenset(names)
    more = tuple(marked(name) for name in centers if name in present)
    for name in more:
        if name in present:
            raise JobError(f'column {name!r} is there already, and model.missing = "indicator" makes one of this name; rename it')
    return (*names, *more)


def _numeric(cells: Cells, name: str, spec: Spec) -> bool:
    """Tells whether words such as "NA" are empty cells of this column, and no levels of it."""
    if name == spec.response:
        return not spec.labelled
    if name in spec.groups:
        return False
    if name in (spec.offset, spec.weight, spec.trials) or not isinstance(cells, Text):
        return True
    declared = spec.columns.get(name)
    return (declared.kind if declared is not None else cells.kind()) == "numeric"


def _empty(cells: Cells, numeric: bool) -> Mask:
    """Returns which cells (n,) are empty."""
    if not isinstance(cells, Text):
        return np.isnan(np.asarray(cells, np.float64))
    empty = [level == "" or (numeric and level.lower() in MISSING) for level in cells.levels]
    return np.array(empty, dtype=bool)[cells.codes]


def lacking_cells(cells: Cells, known: Collection[str] | None) -> Mask:
    """Returns which cells (n,) of a column are empty; `known`: its levels, None of a column of numbers."""
    if known is None or not isinstance(cells, Text):
        return _empty(cells, True)
    return np.array([level in {"", *NO_LABEL.difference(known)} for level in cells.levels], dtype=bool)[cells.codes]


def filled(cells: Cells, empty: Mask, value: float | str) -> Cells:
    """Returns cells with the empty ones filled."""
    if not isinstance(cells, Text):
        return np.where(empty, value, np.asarray(cells, np.float64))
    written = value if isinstance(value, str) else repr(float(value)).replace(".", cells.decimal)
    return replace(cells, codes=np.where(empty, len(cells.levels), cells.codes), levels=(*cells.levels, written))


def _compact(cells: Cells) -> Cells:
    """Returns cells with only the levels that a row still has, in their type's order, or by first appearance as in a file."""
    if not isinstance(cells, Text):
        return cells
    used, first, codes = np.unique(cells.codes, return_index=True, return_inverse=True)
    order = np.arange(len(used)) if cells.ordered else np.argsort(first)
    place = np.empty(len(used), np.int64)
    place[order] = np.arange(len(used))
    return replace(cells, codes=place[codes], levels=tuple(cells.levels[used[k]] for k in order))
