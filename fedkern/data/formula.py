"""Reads a party's rows as a formula sees them before all is agreed.

These are the numbers that the party tells for the agreement, and the columns in which rows are looked for that columns single
out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..arrays import Array
from ..errors import JobError, OwnFault
from ..models.encoding import Column, Encoding, Spec
from ..models.formula.expansion import Formula, Known
from ..models.formula.factors import Node, ends, read
from .cells import MISSING, Cells, Text, as_days, as_text, floats, labels, plain
from .design import column_of
from .faults import Marks, who
from .reading import Reader
from .table import Table


def arguments(table: Table, formula: Formula, marks: Marks | None = None) -> dict[str, Array]:
    """Returns expression -> its values for each expression that needs a centre and a scale; plain columns are left out."""
    reader = Reader(table, marks or Marks(table), missing=True)
    bare = replace(formula, known=_open(formula))
    nodes = {text: node for text, node in formula.arguments.items() if node.what != "name"}
    return {text: bare.argument(node, reader, table.n_rows) for text, node in nodes.items()}


def _open(formula: Formula) -> dict[str, Known]:
    """Returns constants that change nothing, for every argument."""
    return dict.fromkeys(formula.arguments, Known(None, 0.0, 1.0))


def with_arguments(table: Table, spec: Spec, formula: Formula, client: str) -> Table:
    """Returns the table with these as columns of their own; raises OwnFault if a row has no number of one."""
    marks = Marks(table)
    more = arguments(table, formula, marks)
    marks.refuse(client, spec.known)
    names = tuple(dict.fromkeys([*table.names, *more]))
    return replace(table, names=names, columns={**table.columns, **more}, matrix=None, matrix_names=())


def agreed(spec: Spec, formula: Formula, columns: Mapping[str, Column]) -> Formula:
    """Returns the formula with all that is known, by the job file and by columns that were agreed (or are this file's own).

    Constants of the job file go before others. If nothing of an expression is exchanged they are the middle and half the width of
    its range, by the job file's words on its columns.
    """
    known: dict[str, Known] = {}
    for name in formula.variables:
        column = columns[name]
        given = spec.columns.get(name, column)
        center, scale = (given.center, given.scale) if given.center is not None else (column.center, column.scale)
        known[name] = Known(column.levels, center, scale, formula.bounds.get(name))
    bare = replace(formula, known=known)
    for text, node in formula.arguments.items():
        if node.what == "name":
            continue
        own_known, agreed_column = spec.columns.get(text), columns.get(text)
        if own_known is not None and own_known.center is not None:
            known[text] = Known(None, own_known.center, own_known.scale, formula.bounds.get(text))
        elif agreed_column is not None and agreed_column.center is not None:
            known[text] = Known(None, agreed_column.center, agreed_column.scale)
        else:
            known[text] = _between(bare, node)
        bare = replace(formula, known=known)
    return formula.knowing(known)


def _between(formula: Formula, node: Node) -> Known:
    """Returns the constants of an expression from the range of its values."""
    both = ends(node, formula.ends_of, formula.constants)
    if both is None or not both[0] < both[1]:
        return Known()
    return Known(None, both[0] / 2 + both[1] / 2, both[1] / 2 - both[0] / 2, both)


def of_both(successes: str, failures: str) -> str:
    """Returns the name of the trials that these two columns make."""
    return f"{successes} + {failures}"


def failures_of(known: Spec | Encoding, names: Collection[str]) -> str | None:
    """Returns the column of failures that makes the trials with the successes; None where trials are a column themselves.

    Only a formula names such a column, for without one it would be a covariate.
    """
    if known.trials is None or known.trials in names or known.formula is None:
        return None
    return next((name for name in names if known.trials == of_both(str(known.response), name)), None)


def since(end: str, start: str) -> str:
    """Returns the name of the time from one column's to another's."""
    return f"{end} - {start}"


def _with_days(table: Table, known: Spec | Encoding) -> Table:
    """Returns the table with dates that are written as texts as days, as columns whose type is of dates are.

    In a private job they stay texts: a cell that is no date would make the whole column one of labels, and touch other rows.
    """
    if isinstance(known, Spec):
        if known.private:
            return table
        numbers: set[str | None] = {*known.covariates(table.names), *known.times, known.upper}
    else:
        numbers = {column.name for column in known.columns}
        if known.formula is not None:
            numbers |= {*known.formula.variables}
    numbers -= {*known.texts, known.response}
    texts = {name: cells for name, cells in table.columns.items() if isinstance(cells, Text) and name in numbers}
    read = {name: days for name, cells in texts.items() if (days := as_days(cells)) is not cells}
    if not read:
        return table
    columns, dates, others = {**table.columns, **read}, table.dates | {*read}, table.texts - {*read}
    return replace(table, columns=columns, dates=dates, texts=others, matrix=None, matrix_names=())


def _with_times(table: Table, spec: Spec) -> Table:
    """Returns the table with times from one column to another as columns of their own."""
    made = {name: _difference(table, *name.split(" - ")) for name in made_times(spec, table.names)}
    if not made:
        return table
    columns = {**table.columns, **made}
    return replace(table, names=tuple(columns), columns=columns, matrix=None, matrix_names=())


def _difference(table: Table, end: str, start: str) -> Cells:
    """Returns the time from one column to another; texts, which are faults of their rows, where cells are there and it is not."""
    lived = floats(as_days(table.columns[end])) - floats(as_days(table.columns[start]))
    rows: list[int] = np.flatnonzero(np.isnan(lived)).tolist()
    both = [*zip(table.cells(end), table.cells(start))] if rows else []
    wrong = {row: " - ".join(both[row]) for row in rows if not MISSING & {cell.lower() for cell in both[row]}}
    if not wrong:
        return lived
    return as_text([wrong.get(row, plain(value)) for row, value in enumerate(lived.tolist())])


def made_times(spec: Spec, names: Collection[str]) -> list[str]:
    """Returns the times that are from one of these columns to another."""
    times = [name for name in (*spec.times, spec.upper) if name is not None and name not in names]
    return [name for name in times if len(both := name.split(" - ")) == 2 and {*both} <= {*names}]


def joined_columns(group: str, names: Collection[str]) -> tuple[str, ...]:
    """Returns the columns whose labels together name a group, as in (1 | ward:bed); none where it is a column itself."""
    parts = tuple(group.split(":"))
    return parts if group not in names and len(parts) > 1 and all(part in names for part in parts) else ()


def with_group(table: Table, group: str) -> Table:
    """Returns the table with a group that several columns name as a column of its own; empty where one of these is."""
    parts = joined_columns(group, table.names)
    if not parts:
        return table
    columns = [labels(table.columns[part]) for part in parts]
    cells = zip(*([column.levels[code] for code in column.codes] for column in columns))
    joined = replace(as_text([":".join(row) if all(row) else "" for row in cells]), category=True)
    return replace(table, names=(*table.names, group), columns={**table.columns, group: joined}, matrix=None, matrix_names=())


def with_calculated(table: Table, known: Spec | Encoding) -> Table:
    """Returns the table with an offset, trials and groups that are made from its columns as columns of their own, and with
    intervals of events as they are read."""
    table = _with_days(table, known)
    if isinstance(known, Spec):
        for group in known.groups:
            table = with_group(table, group)
        table = _with_ends(_with_times(table, known), known)
    table, failures = with_offset(table, known.offset), failures_of(known, table.names)
    if failures is None or known.response not in table.names:
        return table
    reader, trials = Reader(table, Marks(table), missing=True), str(known.trials)
    columns = {**table.columns, trials: reader.numbers(str(known.response)) + reader.numbers(failures)}
    return replace(table, names=(*table.names, trials), columns=columns, matrix=None, matrix_names=())


def of_end(upper: str) -> str:
    """Returns the name of the event that the ends of intervals tell."""
    return f"is.finite({upper})"


def _with_ends(table: Table, spec: Spec) -> Table:
    """Returns the table with intervals as R's interval2 has them.

    An empty time, or -Inf, is 0 where the row has the end of its interval, for it began before; an infinite end is none. Whether
    there is an end is a column of its own.
    """
    time, upper = spec.times[0] if spec.times else None, spec.upper
    if time not in table.names or upper not in table.names:
        return table
    begins, ends = floats(table.columns[time]), floats(table.columns[upper])
    cells, columns = table.columns[time], {**table.columns}
    empty = np.array([cell == "" for cell in table.cells(time)]) if isinstance(cells, Text) else np.isnan(begins)
    open_left = (empty | (begins == -np.inf)) & np.isfinite(ends)
    if open_left.any():
        columns[time] = np.where(open_left, 0.0, begins)
    if (ends == np.inf).any():
        columns[upper] = np.where(ends == np.inf, np.nan, ends)
    if made := {of_end(upper)} & {spec.response} - {*table.names}:
        columns |= dict.fromkeys(made, np.isfinite(ends).astype(np.float64))
    return replace(table, names=(*table.names, *made), columns=columns, matrix=None, matrix_names=())


def with_offset(table: Table, offset: str | None) -> Table:
    """Returns the table with an offset that is calculated from one of its columns as a column of its own.

    It is infinite where the cell has a number and the expression none, which is a fault of the row as in any column.
    """
    node = offset_node(offset, table.names)
    if offset is None or node is None:
        return table
    reader = Reader(table, Marks(table), missing=True)
    x = Formula(()).argument(node, reader, table.n_rows)
    finite_rows = np.isfinite(reader.numbers(next(node.text for node in node.walk() if node.what == "name")))
    x[finite_rows & ~np.isfinite(x)] = np.inf
    columns = {**table.columns, offset: x}
    return replace(table, names=(*table.names, offset), columns=columns, matrix=None, matrix_names=())


def offset_node(offset: str | None, names: Sequence[str]) -> Node | None:
    """Returns the expression of an offset whose column is among these names; None of an offset that is a column."""
    if offset is None or offset in names:
        return None
    try:
        factor = read(offset)
    except JobError:  # the name of a column that is missing
        return None
    return factor.node if len(factor.variables) == 1 and factor.variables[0] in names else None


def of_file(spec: Spec, table: Table) -> Encoding:
    """Returns the encoding that this file's own columns make, numbers as they are."""
    if spec.formula is None:
        return spec.encoding(tuple(column_of(spec, table, name) for name in spec.covariates(table.names)))
    formula = own(spec, spec.formula, table)
    return replace(spec.encoding(tuple(Column(made.name, "numeric", None, 0.0, 1.0) for made in formula.made)), formula=formula)


def own(spec: Spec, formula: Formula, table: Table) -> Formula:
    """Returns the formula as this file's own rows would have it, or the agreed one once it is known."""
    if formula.known:
        return formula
    more, columns = arguments(table, formula), dict[str, Column]()
    for name in formula.variables:
        column = column_of(spec, table, name)
        if column.levels is not None:
            # A client may lack the label that others are compared with.
            column = replace(column, levels=(*column.levels, *sorted(formula.compared(name) - {*column.levels})))
        if name in formula.arguments and (name not in spec.columns or spec.columns[name].center is None):
            column = _moments(name, Reader(table, Marks(table), missing=True).numbers(name))
        columns[name] = column
    return agreed(spec, formula, columns | {text: _moments(text, values) for text, values in more.items()})


def _moments(name: str, values: Array) -> Column:
    """Returns a numeric column with the mean and standard deviation of these values."""
    finite_values = values[np.isfinite(values)]
    scale = float(finite_values.std()) if len(finite_values) else 1.0
    return Column(name, "numeric", None, float(finite_values.mean()) if len(finite_values) else 0.0, scale if scale > 0 else 1.0)


def looked_at(table: Table, spec: Spec, client: str = "") -> tuple[Table, Spec]:
    """Returns the table and columns in which rows are looked for that columns single out.

    Labels are as they stand in the file, and a formula's columns are made; without a formula both are returned unchanged. Raises
    OwnFault: the formula calculates with a column of texts.
    """
    formula = spec.formula
    if formula is None or not set(formula.variables) <= set(table.columns):
        return table, spec
    _check(table, formula, client)
    formula = own(spec, formula, table)
    made = formula.matrix(Reader(table, Marks(table), missing=True), table.n_rows)
    labels = [name for name in formula.variables if formula.known[name].levels is not None]
    columns: dict[str, Cells] = {name: cells for name, cells in table.columns.items() if name not in formula.variables}
    columns |= {name: table.columns[name] for name in labels}
    known_columns: dict[str, Column] = {name: Column(name, "categorical", formula.known[name].levels) for name in labels}
    for j, term in enumerate(formula.made):
        if not (term.indicator and len(term.of) == 1):
            columns[term.name] = made[:, j]
            known_columns[term.name] = Column(term.name, "numeric", None, 0.0, 1.0)
    spec, copies = spec.apart(known_columns)
    columns |= {name: table.columns[copies.get(name, name)] for name in (*table.names, *copies) if name in spec.roles}
    names = (*(name for name in columns if name in spec.roles), *known_columns)
    whole = spec.intercept + len(formula.made)
    response = {str(spec.response): spec.columns[str(spec.response)]} if spec.response in spec.columns else {}
    return (
        replace(table, names=names, columns={name: columns[name] for name in names}, matrix=None, matrix_names=()),
        replace(spec, formula=None, columns={**known_columns, **response}, ignore=(), coefficients=whole),
    )


def check(table: Table, spec: Spec, client: str = "") -> None:
    """Raises OwnFault if the formula makes no number of a cell, or a cell lies outside of a spline's bounds.

    Empty cells are no faults here.
    """
    if spec.formula is not None and set(spec.formula.variables) <= set(table.columns):
        marks = Marks(table)
        own(spec, spec.formula, table).matrix(Reader(table, marks, missing=True), table.n_rows)
        marks.refuse(client, spec.known)


def _check(table: Table, formula: Formula, client: str) -> None:
    """Refuses columns of texts with which a formula calculates."""
    for name in sorted(formula.numeric):
        cells = table.columns[name]
        if isinstance(cells, Text) and cells.kind() == "categorical" and not (cells.truths or cells.coded):
            remedy = "correct the cells, or take the column as it stands, or in C(..)"
            text = f"{who(client, table.source)}: model.formula calculates with column {name!r}, which holds texts; {remedy}"
            raise OwnFault(text, text)
