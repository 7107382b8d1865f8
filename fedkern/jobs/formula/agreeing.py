"""Brings all parties to one encoding of a formula's columns: by the job file, and by two exchanges of columns.

The first exchange is of the file's columns: labels, and the centre and scale that transformations need. Then every party knows
which columns the terms make, and the second exchange is of these: their means and standard deviations, by which they are
standardised. Both send no more than sums of columns and of their squares. A number that the first exchange has told is not asked
again, and columns of labels alone, which are not standardised, are not asked at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...algorithms.exchanges import columns as agreement
from ...data import formula as rows
from ...data.faults import Marks
from ...data.joined import as_agreed
from ...data.reading import Reader
from ...data.table import Table
from ...errors import JobError, owned
from ...finding import Finding
from ...labels import in_order
from ...models.encoding import Column, Encoding, Spec
from ...models.formula.expansion import Formula, Made
from ..keys import JobConfig
from ..run import Run
from ..stage import Stage

AGAIN = "agreement-of-terms"  # the second exchange, in ledgers
GUESSED = ("1", "2")  # labels of a column, where only rows could say which there are
WIDE = 1e12  # a scale that only rows could say: within three of it lie all knots


def opening(formula: Formula | None) -> list[Stage]:
    """Returns the stages in which the parties exchange numbers before the model is known."""
    return [Stage.of(agreement) if formula is None else replace(Stage.of(agreement), runs=2)]


def agreed(run: Run[Any], tables: Mapping[int, Table]) -> Encoding:
    """Returns the encoding of a job's columns, the same at every place; by a formula, where the job has one.

    Raises
    ------
    JobError
        As the exchanges of columns; labels that do not fit the formula, or a constant that nobody gives.
    OwnFault
        A spline of the agreed knots singles out some of a client's rows.
    """
    formula = run.parties.spec.formula
    return centred(run.config, run.agreed(tables) if formula is None else _by_formula(run, tables, formula))


def centred(config: JobConfig, encoding: Encoding) -> Encoding:
    """Returns the encoding of a job's columns, which are not centred where a row with covariates of 0 has a predictor of 0."""
    return encoding.uncentred if config.without_intercept else encoding


def _by_formula(run: Run[Any], tables: Mapping[int, Table], formula: Formula) -> Encoding:
    """Returns the encoding of the columns that a formula makes."""
    spec = run.parties.spec
    arguments = [text for text in formula.arguments if not _given(spec, text)] if spec.standardise == "exchange" else []
    first_spec = replace(
        spec, standardise=spec.standardise if arguments or spec.standardise == "public" else "none", columns=_read(spec)
    )
    first = run.agreed(_with_arguments(run, tables, spec, formula) if arguments else tables, first_spec)
    tables = {k: as_agreed(table, first) for k, table in tables.items()}
    # From here on every party knows which columns the terms make.
    formula = rows.agreed(spec, formula, {column.name: column for column in first.columns})
    _check_names(spec, formula)
    formula.refuse_without_constant()
    levels = {name: formula.known[name].levels for name in formula.variables}
    flat = [name for name, first_spec in levels.items() if first_spec is not None and len(first_spec) < 2 and formula.intercept]
    run.hooks.find([Finding.of("column-constant", column=name, where="every client") for name in flat if run.place.is_server])
    # In a private job a faulty row weighs nothing, and must not show.
    if not spec.private:
        for k, table in tables.items():
            with owned(k):
                rows.check(table, replace(spec, formula=formula), run.names[k])
    if formula.curved:
        _look_again(run, tables, replace(spec, formula=formula))
    known = {column.name: column for column in first.columns} if arguments else {}
    columns = {made.name: _constants(spec, formula, made, known) for made in formula.made}
    # Only columns whose mean and spread nobody has told yet are exchanged a second time.
    lacking = [name for name, column in columns.items() if column is None]
    if lacking:
        second = run.agreed(
            {k: _made(table, spec, formula, lacking) for k, table in tables.items()}, _of(spec, first, formula), AGAIN
        )
        columns |= {column.name: column for column in second.columns}
    return _encoding(spec, formula, columns, first)


def count_legs(spec: Spec, encoding: Encoding) -> int | None:
    """Returns how many questions these exchanges take, one after another; None where the columns say too little."""
    if spec.formula is None:
        columns = encoding.columns
        return agreement.count_legs(spec, [column.name for column in columns], [column.kind for column in columns])
    if (formula := encoding.formula) is None:
        return None
    arguments = [text for text in formula.arguments if not _given(spec, text)] if spec.standardise == "exchange" else []
    first_spec = replace(
        spec, standardise=spec.standardise if arguments or spec.standardise == "public" else "none", columns=_read(spec)
    )
    labelled = {name for name in formula.variables if formula.known[name].levels is not None}
    names = [*formula.variables, *arguments]
    legs = agreement.count_legs(first_spec, names, ["categorical" if name in labelled else "numeric" for name in names])
    known = {name: Column(name, "numeric", None, 0.0, 1.0) for name in names if name not in labelled} if arguments else {}
    lacking = [made.name for made in formula.made if _constants(spec, formula, made, known) is None]
    again = _of(spec, encoding, formula)
    return legs + (agreement.count_legs(again, lacking, ["numeric"] * len(lacking)) if lacking else 0)


def _with_arguments(run: Run[Any], tables: Mapping[int, Table], spec: Spec, formula: Formula) -> dict[int, Table]:
    extended = {}
    for k, table in tables.items():
        with owned(k):
            extended[k] = rows.with_arguments(table, spec, formula, run.names[k])
    return extended


def by_names(spec: Spec, first: Encoding) -> Encoding:
    """Returns the encoding as far as a check knows it: labels and constants that only rows could tell are guessed."""
    formula = spec.formula
    if formula is None:
        return first
    labelled = {*formula.labelled, *formula.bases}
    known = {column.name: spec.columns.get(column.name, column) for column in first.columns}
    for name, column in known.items():
        if name in labelled or column.kind == "categorical":
            levels = column.levels or tuple(in_order({*formula.compared(name), *GUESSED}))
            known[name] = Column(name, "categorical", levels)
        elif column.center is None:
            known[name] = Column(name, "numeric", None, 0.0, WIDE)
    more = {text: Column(text, "numeric", None, 0.0, WIDE) for text in formula.arguments if text not in known}
    formula = rows.agreed(spec, formula, {**known, **more})
    columns = {made.name: Column(made.name, "numeric", None, 0.0, 1.0) for made in formula.made}
    return _encoding(spec, formula, columns, first)


def _encoding(spec: Spec, formula: Formula, columns: Mapping[str, Column | None], first: Encoding) -> Encoding:
    agreed_columns = tuple(column for made in formula.made if (column := columns[made.name]) is not None)
    return replace(
        spec.encoding(agreed_columns), positive=first.positive, labels=first.labels, formula=formula, joined=first.joined
    )


def _given(spec: Spec, text: str) -> bool:
    return text in spec.columns and spec.columns[text].center is not None


def _read(spec: Spec) -> dict[str, Column]:
    """Returns the job file's declarations of columns in files, without those of columns that the terms make."""
    assert spec.formula is not None
    names = {*spec.formula.variables, *spec.formula.arguments, spec.response}
    return {name: column for name, column in spec.columns.items() if name in names}


def _check_names(spec: Spec, formula: Formula) -> None:
    """Refuses a job file that declares a column that does not exist (JobError)."""
    names = {*formula.variables, *formula.arguments, *spec.roles, *(made.name for made in formula.made)}
    for name in spec.columns:
        if name not in names and not name.replace(".", "_").isidentifier():
            columns = ", ".join(repr(term.name) for term in formula.made if term.name not in formula.variables)
            raise JobError(
                f"[data.columns] {name!r}: model.formula makes no such column; it makes {columns or 'none beside yours'}"
            )


def _constants(spec: Spec, formula: Formula, made: Made, known: Mapping[str, Column]) -> Column | None:
    """Returns a column with its centre and scale; None where these are to be exchanged."""
    given = spec.columns.get(made.name)
    if spec.standardise == "none":  # columns as they are, as without a formula: a declared centre is of knots and curves alone
        return Column(made.name, "numeric", None, 0.0, 1.0)
    if given is not None and given.center is not None:
        return given
    if made.indicator:
        return Column(made.name, "numeric", None, 0.0, 1.0)
    if spec.standardise == "exchange":
        return known.get(made.name)
    both = formula.ends(made)
    if both is None or not both[0] < both[1]:
        raise JobError(
            f"model.formula: {made.name} has no bounds where its columns are between centre - scale and centre + scale: give "
            f'center and scale in [data.columns."{made.name}"]'
        )
    return Column(made.name, "numeric", None, both[0] / 2 + both[1] / 2, both[1] / 2 - both[0] / 2)


def _made(table: Table, spec: Spec, formula: Formula, names: list[str]) -> Table:
    """Returns some of the columns that the terms make, with those that are no covariates."""
    matrix = formula.matrix(Reader(table, Marks(table)), table.n_rows)
    positions = {made.name: j for j, made in enumerate(formula.made)}
    spec, copies = spec.apart([made.name for made in formula.made])
    columns = {**table.columns, **{new: table.columns[name] for new, name in copies.items()}}
    roles = [name for name in columns if name in spec.roles]
    columns = {name: columns[name] for name in roles} | {name: matrix[:, positions[name]] for name in names}
    return replace(table, names=(*roles, *names), columns=columns, matrix=None, matrix_names=())


def _of(spec: Spec, first: Encoding, formula: Formula) -> Spec:
    """Returns a declaration of these columns in which nothing is known but the response's labels."""
    columns = {name: column for name, column in spec.columns.items() if name == spec.response}
    if spec.response and first.labels:
        columns[spec.response] = Column(spec.response, "categorical", first.labels)
    spec, _ = spec.apart([made.name for made in formula.made])
    return replace(spec, formula=None, columns=columns, positive=first.positive, ignore=(), derived=formula.derived)


def _look_again(run: Run[Any], tables: Mapping[int, Table], spec: Spec) -> None:
    """Refuses rows that a spline of the agreed knots singles out (OwnFault); a client's own knots were checked before."""
    for k, table in tables.items():
        with owned(k):
            run.refuse_few(k, table, spec, ("wider-formula-knots",))
