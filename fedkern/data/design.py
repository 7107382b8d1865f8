"""Turns a table into the arrays that kernels read, and decides the fate of rows that cannot be used.

In a job that is not private a bad row ends the job: its holder is told which, other parties how many (`faults`). In a private job
a stop that depends on a row would itself be a leak: the row becomes NaN, which every kernel skips, and only the client's own side
is told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms.exchanges.columns import TWO_LABELS, Abreast, Summary
from ..errors import JobError, OwnFault
from ..finding import RuleRefusal, Value
from ..kernels.families import COUNTS, FAMILIES
from ..labels import OTHER, event_of, find, in_order
from ..models.encoding import Column, Encoding, Spec
from ..models.formula.expansion import Formula
from .cells import (
    FEW,
    LEAST,
    MISSING,
    MOST_COUNTED,
    TOO_FAR,
    TOO_LARGE,
    TOO_SMALL,
    Text,
    floats,
    labels,
    no_number,
    number,
    too_far,
    too_large,
)
from .faults import HINT, LABEL, LEFT_OUT, NO_VALUE, Fault, Faults, Marks, Refusals, name_column, who
from .header import check_header
from .joined import as_agreed
from .joined import notes as notes_of_joined
from .reading import INFINITE, UNNAMED, Reader, categories, ends, hot, read_numbers, some
from .table import Table

__all__ = ["Column", "Design", "Encoding", "Fault", "Faults", "Spec", "check_header", "describe", "encode", "read_numbers"]

LEAST_OF_LEVEL = 3  # rows of a site that have a level, if any has: of fewer a sum tells too much, and the level who they are
MOST_LEVELS = 50  # of such a column
BLOCK = 1 << 12  # rows that are read at once, so that they stay near the processor
SAME_LABELS = "correct the cell, or the file that differs: all write the same two labels"
_Values = NDArray[np.float64]


@dataclass(frozen=True)
class Design:
    """Holds the arrays of one party's rows that kernels read.

    X (n, d) float64 (or the memory map itself, float64 or float32), y (n,), offset and weights (n,) or None, row_ids (n,) or
    None: 64-bit hashes of the row ids' texts. `notes` and `faults` stay with the client. `units`: if rows are successes of
    trials, (n,) the row of the file that each comes from: such a row is up to two, its successes and its failures, with their
    numbers as weights.
    """

    X: np.ndarray
    y: NDArray[np.float64]
    offset: NDArray[np.float64] | None = None
    weights: NDArray[np.float64] | None = None
    row_ids: NDArray[np.uint64] | None = None
    faults: Faults = field(default_factory=Faults)
    notes: tuple[str, ...] = ()
    units: NDArray[np.int64] | None = None


UNITS = (
    "has numbers with a unit or % behind them, or other marks (1,234 or $5), which would be labels: write plain numbers into "
    'the files, or, where they are labels, set kind = "categorical" in [data.columns.NAME]'
)


def describe(table: Table, spec: Spec, client: str = "", *, least_of_level: int | None = LEAST_OF_LEVEL) -> Summary:
    """Returns the facts that a client's part in the agreement needs: names, kinds, levels, and its numeric columns as one array.

    In a private job these are the names alone: kinds come from the job file. No row is looked at, not even the type in which a
    column is stored, for one cell may decide it. `least_of_level`: rows that a level of an undeclared column must have: a column
    whose levels tell who its rows are is refused; None: it is taken. Raises JobError: faults of the file; in a job that is not
    private also bad rows, and columns that name their rows: all of them together.
    """
    check_header(table.names, spec, table.source, client)
    names = spec.covariates(table.names)
    if spec.private:
        return Summary(names, tuple(spec.columns[name].kind for name in names))
    begin, known, in_matrix = who(client, table.source), spec.known, frozenset(table.matrix_names)
    # All faults are raised together. Those of whole columns would be faults of cells in every row.
    refusals, stored = Refusals(table.n_rows), set[str]()
    for name in sorted(table.texts & spec.columns.keys() & set(names)):
        if spec.columns[name].kind == "numeric":
            stored.add(name)
            remedy = f"give levels = [...] in [data.columns.{name}], ignore it in [data], or store numbers"
            refusals.errors.append(JobError(f"{begin}: column {name!r} is stored as text, not as numbers; {remedy}"))
    if not table.n_rows:
        lacking = f"no rows beside {table.incomplete} that lack a cell" if table.incomplete else "no rows"
        raise JobError(f"{begin}: {lacking}; remove the client from [data] clients, or give it data")
    marks = Marks(table)
    of_file = with_event(spec, table)
    y, offset, weights = _roles(table, of_file.encoding(()), marks, spec.missing)
    _mark_offset(offset, spec, marks)
    if table.matrix is not None and spec.standardise == "exchange":
        _mark_matrix(table, marks)
    # Kinds and levels of each covariate; cells at fault are marked, to be refused together.
    kinds_found, levels, numeric, open_ones, mixed = [], {}, [], dict[str, Text](), set()
    for name in names:
        column = table.columns[name]
        declared = spec.columns.get(name)
        kind = declared.kind if declared else column.kind() if isinstance(column, Text) else "numeric"
        kinds_found.append(kind)
        if kind == "numeric":
            if name not in in_matrix and name not in stored:
                numeric.append(read_numbers(table, name, marks, spec.missing))
        else:
            cells = categories(table, name, Marks(table) if spec.blank else marks)
            if declared is not None and declared.levels is not None:
                known_levels = column_of(spec, table, name)
                hot(cells, known_levels.with_blank() if spec.blank else known_levels, marks)
                continue
            if declared is None and cells.marked:
                called = name_column(name, table.names, known)
                refusals.errors.append(OwnFault(f"{begin}: {called} {UNITS}", f"{begin}: column {name!r} {UNITS}"))
            levels[name] = _levels(cells)
            if declared is None and isinstance(column, Text) and column.mixed:
                mixed.add(name)
            if declared is None and least_of_level is not None:
                open_ones[name] = cells
    of_response = _labels_of(table, spec)
    with refusals.collecting():
        marks.refuse(client, known)
    # Levels are counted as they are once faulty rows have gone.
    good = np.flatnonzero(~marks.bad) if not marks.bad.all() else slice(None)
    left = {name: replace(cells, codes=cells.codes[good]) for name, cells in open_ones.items()}
    refusals.errors += _identifying(left, least_of_level or 0, client, table.source)
    with refusals.collecting():
        _check_labels(of_response, of_file, begin)
    with refusals.collecting():
        _check_constants(names, kinds_found, spec, table.names, begin)
    refusals.refuse()  # before checks that need good cells
    values = _abreast(table, names, kinds_found, numeric)
    tiny = _tiny(values, [name for name, kind in zip(names, kinds_found) if kind == "numeric"])
    if spec.response is not None and FAMILIES[spec.family].measured:
        tiny += _tiny(y[:, np.newaxis], [spec.response])
    if tiny:
        what = f"too close together; {TOO_SMALL}"
        called = ", ".join(name_column(name, table.names, known) for name in tiny)
        raise OwnFault(f"{begin}: values of {called} are {what}", f"{begin}: values of {', '.join(map(repr, tiny))} are {what}")
    # Rows of weight 0 must not enter the sums that are exchanged.
    counts = weights if spec.trials is not None or weights is None else _counting(weights)
    numbers = values if spec.standardise == "exchange" else None
    levels_of = partial(_levels_of_numbers, table, known, client, least_of_level)
    return Summary(names, tuple(kinds_found), levels, of_response, numbers, counts, frozenset(mixed), levels_of=levels_of)


def _levels_of_numbers(table: Table, known: Collection[str], client: str, least: int | None, name: str) -> tuple[str, ...]:
    """Returns the levels of a numeric column that is one of categories at another client, where a cell is no number. Raises
    OwnFault: it has more values than a column of categories, or one in few rows."""
    cells, begin = labels(table.columns[name]), who(client, table.source)
    levels, what = _levels(cells), f"{name_column(name, table.names, known)} is a category, for at another client it has words"
    remedy = f'correct the cells there, or set kind = "numeric" in [data.columns.{name if name in known else "NAME"}]'
    if len(levels) > FEW:
        holders_text = f"{what}, and here {len(levels)} numbers"
        raise OwnFault(f"{begin}: {what}, and here too many numbers; {remedy}", f"{begin}: {holders_text}; {remedy}")
    if least is not None:
        for refusal in _identifying({name: cells}, least, client, table.source):
            raise refusal
    return levels


def with_event(spec: Spec, table: Table) -> Spec:
    """Returns the facts with the label that counts as 1, where labels of all clients decide, as far as this file tells it.

    A file with both labels tells it as all do; of a single label it is not known yet, and it is taken for the event.
    """
    labels = _labels_of(table, spec) if spec.undecided else ()
    return replace(spec, positive=event_of(labels)) if labels else spec


def encode_alone(table: Table, spec: Spec, client: str) -> Design:
    """Returns the rows of the only file with the response, whose labels alone decide which one counts as 1."""
    of_file = with_event(spec, table)
    if spec.undecided:
        _check_labels(_labels_of(table, of_file), of_file, who(client, table.source))
    return encode(table, of_file.encoding(()), client=client)


def _labels_of(table: Table, spec: Spec) -> tuple[str, ...]:
    """Returns the labels of a response that all clients are to agree on; none where they are 0 and 1, or truth values."""
    cells = table.columns.get(spec.response or "")
    if cells is None or spec.declared_labels is not None or not (spec.undecided or spec.positive is not None):
        return ()
    if spec.undecided and not isinstance(cells, Text) and bool(((cells == 0) | (cells == 1)).all()):
        return ()
    cells = labels(cells)
    present = {cells.levels[code] for code in np.unique(cells.codes)} - {""}
    if not spec.undecided:
        return tuple(sorted(present))
    numbers = {level for level in present if not np.isnan(number(level))}
    present -= {level for level in present if numbers and level.lower() in MISSING}
    faulty = bool(numbers) and (len(present) > 2 or numbers != present)
    if faulty or present <= {"0", "1", "True", "False"}:
        return ()
    return tuple(level for level in _levels(cells) if level in present)


def _counting(weights: _Values) -> NDArray[np.float64] | None:
    """Returns 1 for rows that weigh something and 0 for others, of which nothing may be told; None if all do, or none."""
    present = weights > 0
    return None if present.all() or not present.any() else present.astype(np.float64)


def column_of(spec: Spec, table: Table, name: str) -> Column:
    """Returns a column as far as it is public, and else as this file has it."""
    cells = table.columns[name]
    declared = spec.columns.get(name) or Column(name, cells.kind() if isinstance(cells, Text) and not spec.private else "numeric")
    if declared.kind == "categorical":
        if declared.levels is None:
            return replace(declared, levels=_levels(labels(cells)))
        if isinstance(cells, Text) and cells.before is not None and OTHER not in declared.levels:
            return replace(declared, levels=(*declared.levels, OTHER))
        return declared
    return declared if declared.center is not None else replace(declared, center=0.0, scale=1.0)


def _levels(cells: Text) -> tuple[str, ...]:
    """Returns the levels of a column that some cell has: in their own order, or else sorted."""
    present = [level for level in cells.levels if level]
    return tuple(present if cells.ordered else in_order(present))


def _identifying(columns: Mapping[str, Text], least: int, client: str, where: str) -> list[RuleRefusal]:
    """Returns the refusal of text columns whose levels would tell who the rows are; `least`: rows of each level."""
    levels, words = list[tuple[str, int]](), ""
    for name, cells in columns.items():
        counts = np.bincount(cells.codes, minlength=len(cells.levels)) * [level != "" for level in cells.levels]
        n, rare = int((counts > 0).sum()), int(((counts > 0) & (counts < least)).sum())
        if n > MOST_LEVELS or rare:
            levels.append((name, n))
            words = words or no_number(cells)
    if not levels:
        return []
    values: dict[str, Value] = {"levels": levels, "most": MOST_LEVELS, "least": least, "words": words}
    remedies = ("join-rare", "ignore-columns", "declare-levels")
    return [RuleRefusal("identifying-levels", client, "disclosure.rare", where=where, remedies=remedies, **values)]


def _check_labels(own_labels: tuple[str, ...], spec: Spec, begin: str) -> None:
    """Refuses, before labels leave, a response without two labels of which one is positive."""
    if len(own_labels) > 2 or (len(own_labels) == 2 and spec.positive not in own_labels):
        what = f"{begin}: column {spec.response!r}"
        remedy = f"positive = {spec.positive!r}; {TWO_LABELS}"
        holders_text = f"{what} has {len(own_labels)} different labels ({some(own_labels)}), and {remedy}"
        raise OwnFault(f"{what} has other labels than a response may have, and {remedy}", holders_text, look=HINT)


def _check_constants(names: tuple[str, ...], kinds: list[Any], spec: Spec, header: tuple[str, ...], begin: str) -> None:
    """Refuses numeric columns without constants if the job file must give them."""
    numeric = [name for name, kind in zip(names, kinds) if kind == "numeric"]
    lacking = [name for name in numeric if not spec.complete(name)] if spec.standardise == "public" else []
    if lacking:
        remedy = (
            'standardise = "public" needs their constants: give center and scale (or lower and upper) in [data.columns.NAME], '
            'levels = [...] if it is categorical, or set [data] standardise = "none"'
        )
        known = spec.known
        columns = ", ".join(name_column(name, header, known) for name in lacking)
        raise OwnFault(f"{begin}: {columns}: {remedy}", f"{begin}: {', '.join(map(repr, lacking))}: {remedy}")


def _abreast(table: Table, names: tuple[str, ...], kinds: list[Any], numeric: list[NDArray[np.float64]]) -> np.ndarray | Abreast:
    """Returns the numeric columns as (n, p): the file's own array if it holds just these."""
    wanted = tuple(name for name, kind in zip(names, kinds) if kind == "numeric")
    if table.matrix is not None and wanted == table.matrix_names:
        return table.matrix
    rest, in_matrix = iter(numeric), frozenset(table.matrix_names)
    columns = [np.asarray(table.columns[name]) if name in in_matrix else next(rest) for name in wanted]
    return Abreast(tuple(columns), table.n_rows)


def _tiny(values: np.ndarray | Abreast, names: Sequence[str]) -> list[str]:
    """Returns the columns of (n, p) whose values differ by so little that they would be taken for one."""
    low, high = np.full(values.shape[1], np.inf), np.full(values.shape[1], -np.inf)
    parts: Iterable[tuple[Any, np.ndarray]]
    if isinstance(values, Abreast):
        parts = enumerate(values.columns)
    else:
        parts = ((slice(None), values[k : k + BLOCK]) for k in range(0, len(values), BLOCK))
    for part_columns, part in parts:
        if part.dtype.itemsize == 8 and len(part):
            low[part_columns], high[part_columns] = (
                np.fmin(low[part_columns], np.fmin.reduce(part)),
                np.fmax(high[part_columns], np.fmax.reduce(part)),
            )
    return [name for name, least, most in zip(names, low.tolist(), high.tolist()) if least < most < least + LEAST]


def _mark_offset(offset: _Values | None, spec: Spec | Encoding, marks: Marks) -> None:
    """Marks offsets that no rate or probability can have, in jobs that are not private."""
    if offset is not None and spec.offset is not None:
        marks.mark(too_far(offset, FAMILIES[spec.family].link), spec.offset, "is too far from 0", TOO_FAR)


def encode(table: Table, encoding: Encoding, *, private: bool = False, missing: bool = False, client: str = "") -> Design:
    """Returns the arrays of one party's rows.

    Parameters
    ----------
    table
        As loaded with `text=encoding.texts`.
    encoding
        The encoding on which all parties agreed.
    private
        Whether a bad row becomes NaN (and nothing else changes) instead of ending the job.
    missing
        Whether an empty numeric cell, or one of the response, is NaN and no fault.
    client
        For the texts of errors, and for a coefficient of its own.

    Returns
    -------
    Design
        X (n, d) C-order, in the order of `encoding.names`. Where all covariates are one array already in this order and nothing
        is to be standardised or added, X is that array itself, memory-mapped or not.

    Raises
    ------
    JobError
        A needed column is missing; if not private, bad rows: not finite, no number, an unknown level, a label outside the domain,
        a weight below zero, or no rows at all.
    """
    check_header(table.names, encoding, table.source, client)
    table = as_agreed(table, encoding)
    marks = Marks(table)
    if not table.n_rows and not private:
        remedy = "remove the client from [data] clients, or give it data" if client else "give it rows"
        raise JobError(f"{who(client, table.source)}: no rows; {remedy}")
    y, offset, weights = _roles(table, encoding, marks, missing)
    with np.errstate(all="ignore"):
        X = _matrix(table, encoding, marks, missing)
    if not private:
        _mark_offset(offset, encoding, marks)
        marks.refuse(client, encoding.needed)
    y[marks.bad] = np.nan
    for values in (offset, weights):
        if values is not None:
            values[marks.bad] = 0.0
    if X is not table.matrix:  # a map is read-only, and NaN in y alone makes every kernel skip the row
        X[marks.bad] = np.nan
    shares = y if encoding.trials is None or weights is None else y / np.maximum(weights, 1)
    faults, notes = marks.faults(), _notes(shares, encoding)
    notes += [*_lost_orders(table, encoding), *notes_of_joined(table)]
    if encoding.trials is not None and weights is not None and (none := int((weights == 0).sum()) - int(marks.bad.sum())) > 0:
        notes.append(f"rows without a trial, which weigh nothing: {none}")
    if table.n_rows and marks.bad.all():
        notes += _useless(table, encoding)
    if encoding.formula is not None:
        clipped = encoding.formula.clipped(Reader(table, Marks(table)), table.n_rows)
        notes += [f"{text}: {many} rows lie outside of its bounds, and count as at a bound" for text, many in clipped.items()]
    design = Design(X, y, offset, weights, _row_ids(table, encoding), faults, tuple(notes))
    return design if encoding.trials is None else _of_trials(design)


def _of_trials(design: Design) -> Design:
    """Returns successes and failures of each row as rows of their own, y = 1 and y = 0, weighted by their numbers.

    A row without successes, or without failures, has no such row of them.
    """
    successes, trials = design.y, design.weights
    assert trials is not None
    counts = np.column_stack([successes, trials - successes]).ravel()  # a row's two stand together
    present = np.flatnonzero(counts > 0)
    rows = present // 2
    return replace(
        design,
        X=design.X[rows],
        y=(1 - present % 2).astype(np.float64),
        offset=None if design.offset is None else design.offset[rows],
        weights=counts[present],
        row_ids=None if design.row_ids is None else design.row_ids[rows],
        units=rows.astype(np.int64),
    )


def _roles(
    table: Table, encoding: Encoding, marks: Marks, missing: bool = False
) -> tuple[_Values, _Values | None, _Values | None]:
    """Returns y, offset and weights (n,), each an array of its own. If y is a number of successes the weights are the trials."""
    y = _response(table, encoding, marks, missing).copy()
    offset = None if encoding.offset is None else read_numbers(table, encoding.offset, marks).copy()
    weights = None
    if encoding.weight is not None:
        weights = read_numbers(table, encoding.weight, marks).copy()
        marks.mark(weights < 0, encoding.weight, "is below zero", "weights must be >= 0")
    if encoding.trials is not None and encoding.response is not None:
        weights = read_numbers(table, encoding.trials, marks).copy()
        whole = "a number of trials is whole, and not below 0: correct the cell, or remove the row"
        marks.mark(~((weights >= 0) & (weights == np.floor(weights))), encoding.trials, "is no number of trials", whole)
        marks.mark(weights > MOST_COUNTED, encoding.trials, "is too large for a count", "beyond 2^53 whole numbers have gaps")
        more = f"{encoding.response!r} is a number of successes of {encoding.trials!r} trials: correct one of the cells"
        marks.mark(y > weights, encoding.response, "is more than the number of trials", more)
    return y, offset, weights


def check_precisions(table: Table, name: str, client: str = "") -> None:
    """Refuses weights that are precisions and not above 0; raises as `check_counts`."""
    marks = Marks(table)
    none = read_numbers(table, name, marks) <= 0
    marks.mark(none, name, "is no precision, which is above 0", "correct the cell, or leave the row out, which says nothing")
    marks.refuse(client, [name])


def check_counts(table: Table, name: str, client: str = "") -> None:
    """Refuses weights that are counts of equal rows and have a fraction, or are below 0. Raises OwnFault: one has; cells are for
    the holder."""
    marks = Marks(table)
    weights = read_numbers(table, name, marks)
    remedy = "correct the cell, or say what weights are by data.weight_kind"
    odd = (weights != np.floor(weights)) | (weights < 0)
    marks.mark(odd, name, "is no number of rows, which data.weight_kind says it is", remedy)
    marks.refuse(client, [name])


def describe_counts(table: Table, name: str) -> list[str]:
    """Returns the same as a note for the holder, in a private job, which no cell ends."""
    weights = read_numbers(table, name, Marks(table))
    odd = np.flatnonzero(np.isfinite(weights) & (weights != np.floor(weights)))
    if not len(odd):
        return []
    return [
        f"column {name!r}: rows with a weight that is no number of rows, which data.weight_kind says it is: {len(odd)}, "
        f"the first in {table.place(int(odd[0]))}; they weigh what is written: correct these cells, or divide the weights by "
        'their mean, in a job without data.weight_kind = "frequency"'
    ]


def _matrix(table: Table, encoding: Encoding, marks: Marks, missing: bool = False) -> np.ndarray:
    """Returns X; bad cells are marked, and the values in their place do not matter."""
    if encoding.formula is not None:
        return _of_formula(table, encoding, encoding.formula, marks, missing)
    names = tuple(column.name for column in encoding.columns)
    # A matrix that nothing would change is used itself: a copy would double the memory.
    unchanged = not encoding.intercept and not encoding.standardised and all(column.levels is None for column in encoding.columns)
    if (
        unchanged
        and not missing
        and table.matrix is not None
        and table.matrix.dtype in (np.float64, np.float32)
        and names == table.matrix_names
    ):
        _mark_matrix(table, marks)
        return table.matrix
    X = np.empty((table.n_rows, encoding.size))
    j, numbers = int(encoding.intercept), list[tuple[int, NDArray[np.float64], float, float]]()
    X[:, :j] = 1.0
    for column in encoding.columns:
        if column.levels is None:
            center, scale = column.constants
            values = read_numbers(table, column.name, marks, missing)
            if not np.isfinite((ends(values) - center) / scale).all():
                too_far_out = ~np.isfinite((values - center) / scale) & ~(missing & np.isnan(values))
                marks.mark(too_far_out, column.name, "is too large", "correct the cell, or the column's scale")
            numbers.append((j, values, center, scale))
            j += 1
            continue
        # One indicator for each level; a bad cell, marked, has none.
        which = hot(categories(table, column.name, marks, levels=column.levels), column, marks)
        block = X[:, j : j + len(column.levels)]
        block[:] = 0.0
        known = np.flatnonzero(which >= 0)
        block[known, which[known]] = 1.0
        j += len(column.levels)
    for begin in range(0, len(X), BLOCK):  # a column at a time X would go through the processor once for each
        rows = slice(begin, begin + BLOCK)
        for j, values, center, scale in numbers:
            X[rows, j] = (values[rows] - center) / scale
    return X


def _of_formula(table: Table, encoding: Encoding, formula: Formula, marks: Marks, missing: bool) -> np.ndarray:
    """Returns X of a formula's columns."""
    first = int(encoding.intercept)
    X = np.ones((table.n_rows, encoding.size))
    center, scale = np.array([column.constants for column in encoding.columns]).reshape(-1, 2).T
    X[:, first : first + len(center)] = (formula.matrix(Reader(table, marks, missing), table.n_rows) - center) / scale
    return X


def _mark_matrix(table: Table, marks: Marks, block: int = 16384) -> None:
    """Marks rows of the whole array that are not finite, block by block: the array may be larger than memory."""
    matrix = table.matrix
    assert matrix is not None
    for begin in range(0, len(matrix), block):
        part = np.asarray(matrix[begin : begin + block])
        for wrong, reason, *remedies in (
            (np.isnan(part), "is not finite", "correct or remove the row", NO_VALUE),
            (np.isinf(part), "is not finite", INFINITE),
            (too_large(part), "is too large", TOO_LARGE),
        ):
            for j in np.flatnonzero(wrong.any(axis=0)):
                bad = np.zeros(len(matrix), dtype=bool)
                bad[begin : begin + block] = wrong[:, j]
                marks.mark(bad, table.matrix_names[j], reason, *remedies)


def _response(table: Table, encoding: Encoding, marks: Marks, missing: bool = False) -> NDArray[np.float64]:
    if encoding.response is None:
        return np.zeros(table.n_rows)
    if missing and encoding.positive is None and FAMILIES[encoding.family].linear:
        return read_numbers(table, encoding.response, marks, missing)
    name, column = encoding.response, table.columns[encoding.response]
    if encoding.positive is not None:
        cells = categories(table, name, marks, UNNAMED, (encoding.positive, *encoding.labels))
        if encoding.labels:
            known = np.array([level in encoding.labels for level in cells.levels], dtype=bool)[cells.codes]
            marks.mark(~known, name, "is not a label", f"the labels are {some(encoding.labels)}; {SAME_LABELS}")
        return np.array([level == encoding.positive for level in cells.levels], dtype=np.float64)[cells.codes]
    if FAMILIES[encoding.family].leveled:
        numbers = level_numbers(categories(table, name, marks, UNNAMED, encoding.labels), encoding.labels)
        keys = "[data] levels (of survival times events and censored), which all parties must agree on"
        remedy = f"the levels are {some(encoding.labels)}; correct the cell, or {keys}"
        marks.mark(numbers < 0, name, "is none of the job's levels", remedy)
        return numbers.astype(np.float64)
    # Numbers: their domain is that of the family, or counts if there are trials. TRUE and FALSE are 1 and 0 in a binary response.
    record, of_trials = FAMILIES[encoding.family], encoding.trials is not None
    if record.binary and not of_trials and isinstance(column, Text):
        column = replace(labels(column), truths=True)
    y = floats(column)
    empty = np.isnan(y)
    if isinstance(column, Text):
        empty = np.array([level.lower() in MISSING for level in column.levels], dtype=bool)[column.codes]
    marks.mark(empty, name, "is missing", "fill in the value or remove the row", LEFT_OUT)
    domain = COUNTS if of_trials else record.domain
    if record.binary and not of_trials:
        marks.mark(~domain.has(y), name, f"is not {domain.words}", "correct the cell", LABEL)
    elif record.counted or of_trials:
        remedy = "correct the cell" if of_trials else "correct the cell, or choose another [model] family"
        marks.mark(~domain.has(y), name, f"is not {domain.words}", remedy)
        marks.mark(y > MOST_COUNTED, name, "is too large for a count", "correct the cell: beyond 2^53 whole numbers have gaps")
    else:
        marks.mark(~domain.has(y), name, f"is not {domain.words}", domain.remedy)
        marks.mark(too_large(y), name, "is too large", TOO_LARGE)
    return y


def level_numbers(cells: Text, levels: Sequence[str]) -> NDArray[np.int64]:
    """Returns which of the levels each cell (n,) is, as it is written or as a number ("2.0" is "2"), -1 for a cell that is
    none.
    """
    cells = labels(cells, levels)
    texts = {level: k for k, level in enumerate(levels)}
    numbers = {value: k for k, level in enumerate(levels) if not np.isnan(value := number(level))}
    which = [texts.get(find(cell, levels), numbers.get(value, -1)) for cell, value in zip(cells.levels, cells.values.tolist())]
    return np.array(which, dtype=np.int64)[cells.codes]


def _row_ids(table: Table, encoding: Encoding) -> NDArray[np.uint64] | None:
    """Returns 64-bit hashes of the row ids' texts."""
    if encoding.row_id is None:
        return None
    cells = labels(table.columns[encoding.row_id])
    digests = b"".join(blake2b(level.encode("utf-8", "replace"), digest_size=8).digest() for level in cells.levels)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)[cells.codes]


def _notes(y: NDArray[np.float64], encoding: Encoding) -> list[str]:
    """Returns notes for the client's own side on legitimate facts that are worth knowing."""
    present = y[np.isfinite(y)]
    notes = []
    if not present.size:
        return ["no usable rows: this client adds nothing"]
    if present.size == 1:
        notes.append("one usable row")
    elif encoding.response is not None and FAMILIES[encoding.family].binary and set(present) in ({0.0}, {1.0}):
        notes.append(f"one class only: every {encoding.response} is {int(present[0])}")
    elif encoding.response is not None and FAMILIES[encoding.family].leveled and len(set(present)) == 1:
        notes.append(f"one level only: every {encoding.response} is {encoding.labels[int(present[0])]!r}")
    if present.size < encoding.size:
        notes.append(f"fewer usable rows ({present.size}) than coefficients ({encoding.size}): the prior decides the rest")
    return notes


def _lost_orders(table: Table, encoding: Encoding) -> list[str]:
    """Returns notes on columns whose type gives their levels another order than the job has."""
    agreed = {column.name: column.levels for column in encoding.columns if column.levels is not None}
    if encoding.formula is not None:
        agreed |= {
            name: known_column.levels for name, known_column in encoding.formula.known.items() if known_column.levels is not None
        }
    if encoding.response is not None and FAMILIES[encoding.family].leveled:
        agreed[encoding.response] = encoding.labels
    notes = []
    for name, levels in agreed.items():
        cells = table.columns.get(name)
        order = _levels(labels(cells)) if isinstance(cells, Text) and cells.ordered else ()
        if [level for level in levels if level in order] != [level for level in order if level in levels]:
            notes.append(
                f"column {name!r}: its order here ({some(order)}) is not that of the job ({some(levels)}), whose first level is "
                "what others are compared with: name another (reference)"
            )
    return notes


def _useless(table: Table, encoding: Encoding) -> list[str]:
    """Returns notes, if no row is usable, on columns none of whose cells is as the job file says."""
    notes = []
    for column in encoding.columns if encoding.formula is None else ():
        cells = table.columns[column.name]
        if column.levels is not None:
            usable = any(find(level, column.levels) in column.levels for level in labels(cells, column.levels).levels)
        else:
            usable = bool(np.isfinite(cells.numbers() if isinstance(cells, Text) else cells).any())
        if not usable:
            wanted = "a number" if column.levels is None else "one of its levels"
            notes.append(f"column {column.name!r}: none of its {table.n_rows} cells is {wanted}: every row counts as nothing")
    return notes
