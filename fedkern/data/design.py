"""From a table to the arrays that kernels read, and what happens to a row that can't be used.

In a job that is not private the first bad row ends the job with an error that names it. In a private job a stop that depends on a
row would itself be a leak: the row becomes NaN, which every kernel skips, and only the client's own side is told, in `faults`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..algorithms.agreement import Summary
from ..errors import JobError
from ..models.encoding import Column, Encoding, Spec
from .cells import MISSING, Text, number, plain
from .table import Table

__all__ = ["Column", "Design", "Encoding", "Fault", "Faults", "Spec", "check_header", "describe", "encode"]

LISTED = 1000  # faults that are kept one by one; the others are only counted


@dataclass(frozen=True)
class Fault:
    """A cell, or a whole row (`column` is None), that can't be used."""

    place: str  # "line 17" of a csv file, "row 16" of an array
    column: str | None
    value: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        if self.column is None:
            return f"{self.place}: {self.reason}; {self.remedy}"
        return f"{self.place}, column {self.column!r}: {self.value!r} {self.reason}; {self.remedy}"


@dataclass(frozen=True)
class Faults:
    """For the client's own side: how many rows count as nothing, how many for each "column: reason", and the first ones."""

    rows: int = 0
    counts: tuple[tuple[str, int], ...] = ()
    first: tuple[Fault, ...] = ()


@dataclass(frozen=True)
class Design:
    """What one party's kernels read.

    X (n, d) float64 (or the memory map itself, float64 or float32), y (n,), offset and weights (n,) or None, row_ids (n,) or
    None: 64-bit hashes of the row ids' texts. `notes` and `faults` stay with the client.
    """

    X: NDArray[Any]
    y: NDArray[np.float64]
    offset: NDArray[np.float64] | None = None
    weights: NDArray[np.float64] | None = None
    row_ids: NDArray[np.uint64] | None = None
    faults: Faults = Faults()
    notes: tuple[str, ...] = ()


class _Marks:
    """Bad rows of one table, by reason."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.bad = np.zeros(table.n_rows, dtype=bool)
        self.found: list[tuple[NDArray[np.int64], str | None, str, str]] = []
        for reason in dict.fromkeys(table.broken.values()):
            rows = np.array([row for row, why in table.broken.items() if why == reason], dtype=np.int64)
            self._add(rows, None, reason, "correct or remove the line")

    def mark(self, bad: NDArray[np.bool_], column: str, reason: str, remedy: str) -> None:
        rows = np.flatnonzero(bad & ~self.bad)  # a row is named once, by its first fault
        if rows.size:
            self._add(rows, column, reason, remedy)

    def _add(self, rows: NDArray[np.int64], column: str | None, reason: str, remedy: str) -> None:
        self.bad[rows] = True
        self.found.append((rows, column, reason, remedy))

    def faults(self) -> Faults:
        counts = Counter({f"{column or 'row'}: {reason}": len(rows) for rows, column, reason, _ in self.found})
        first = sorted((int(row), column, reason, remedy) for rows, column, reason, remedy in self.found for row in rows[:LISTED])
        listed = tuple(
            Fault(self.table.place(row), column, "" if column is None else self.table.text(column, row), reason, remedy)
            for row, column, reason, remedy in first[:LISTED]
        )
        return Faults(int(self.bad.sum()), tuple(sorted(counts.items())), listed)

    def refuse(self, client: str) -> None:
        """Raises the first fault of a job that is not private."""
        faults = self.faults()
        if faults.rows:
            others = f" ({faults.rows - 1} more rows have faults; `fedkern check --local` lists them)" if faults.rows > 1 else ""
            raise JobError(f"{_who(client)}{self.table.source}, {faults.first[0]}{others}")


def _who(client: str) -> str:
    return f"client {client!r}, " if client else ""


def check_header(names: tuple[str, ...], wanted: Spec | Encoding, source: str, client: str = "") -> None:
    """Whether a file has the columns that the job names: a fault of the file, not of a row.

    Raises
    ------
    JobError
        A column is missing, or nothing is left to learn from.
    """
    if isinstance(wanted, Encoding):
        needed = wanted.needed
    else:
        roles = (wanted.response, wanted.offset, wanted.weight, wanted.row_id)
        needed = tuple(dict.fromkeys([*(name for name in roles if name is not None), *wanted.columns]))
    for name in needed:
        if name not in names:
            there = ", ".join(names)
            raise JobError(f"{_who(client)}{source}: column {name!r} is missing; there are {there}; correct the file, or [data]")
    if isinstance(wanted, Spec) and not wanted.covariates(names) and not wanted.intercept:
        raise JobError(f"{_who(client)}{source}: no covariate is left beside {', '.join(needed)}; add columns, or an intercept")


def describe(table: Table, spec: Spec, client: str = "") -> Summary:
    """What a client's part in the agreement works from: names, kinds, levels, and its numeric columns as one array.

    In a private job that is the names alone: kinds come from the job file, and no row is looked at.

    Raises
    ------
    JobError
        A fault of the file; in a job that is not private also the first bad row.
    """
    check_header(table.names, spec, table.source, client)
    names = spec.covariates(table.names)
    for name in names:
        declared = spec.columns.get(name)
        if name in table.texts and ((spec.private and declared is None) or (declared and declared.kind == "numeric")):
            raise JobError(
                f"{_who(client)}{table.source}: column {name!r} is stored as text, not as numbers; give levels = [...] in "
                f"[data.columns.{name}], ignore it in [data], or store numbers"
            )
    if spec.private:
        kinds = tuple(spec.columns[name].kind if name in spec.columns else "numeric" for name in names)
        return Summary(names, kinds)
    if not table.n_rows:
        raise JobError(f"{_who(client)}{table.source}: no rows; remove the client from [data] clients, or give it data")
    marks = _Marks(table)
    _roles(table, spec.encoding(()), marks, spec.missing)
    if table.matrix is not None and spec.standardise == "exchange":
        _mark_matrix(table, marks)
    kinds_found, levels, numeric = [], {}, []
    for name in names:
        column = table.columns[name]
        declared = spec.columns.get(name)
        kind = declared.kind if declared else column.kind() if isinstance(column, Text) else "numeric"
        kinds_found.append(kind)
        if kind == "numeric":
            if name not in table.matrix_names:
                numeric.append(_numeric(table, name, marks, spec.missing))
        else:
            levels[name] = tuple(sorted({*_categories(table, name, marks).levels}))
    labels: tuple[str, ...] = ()
    if spec.positive is not None and spec.response is not None:
        labels = tuple(sorted(_categories(table, spec.response, marks).levels))
    marks.refuse(client)
    values = _stacked(table, names, kinds_found, numeric)
    return Summary(names, tuple(kinds_found), levels, labels, values if spec.standardise == "exchange" else None)


def _stacked(table: Table, names: tuple[str, ...], kinds: list[Any], numeric: list[NDArray[np.float64]]) -> NDArray[Any]:
    """Numeric columns as one (n, p): the file's own array where it holds just these."""
    wanted = tuple(name for name, kind in zip(names, kinds) if kind == "numeric")
    if table.matrix is not None and wanted == table.matrix_names:
        return table.matrix
    rest = iter(numeric)
    out = np.empty((table.n_rows, len(wanted)))
    for j, name in enumerate(wanted):
        out[:, j] = table.columns[name] if name in table.matrix_names else next(rest)  # type: ignore[assignment]
    return out


def encode(table: Table, encoding: Encoding, *, private: bool = False, missing: bool = False, client: str = "") -> Design:
    """The arrays of one party's rows.

    Parameters
    ----------
    table
        As loaded with `text=encoding.texts`.
    encoding
        What all parties agreed on.
    private
        Whether a bad row becomes NaN (and nothing else changes) instead of ending the job.
    missing
        Whether an empty numeric cell, or one of the response, is NaN and no fault.
    client
        For the texts of errors.

    Returns
    -------
    Design
        X (n, d) C-order, in the order of `encoding.names`. Where all covariates are one array already in this order and nothing
        is to be standardised or added, X is that array itself, memory-mapped or not.

    Raises
    ------
    JobError
        A needed column is missing; if not private, the first bad row: not finite, no number, an unknown level, a label outside
        the domain, a weight below zero, or no rows at all.
    """
    check_header(table.names, encoding, table.source, client)
    marks = _Marks(table)
    if not table.n_rows and not private:
        raise JobError(f"{_who(client)}{table.source}: no rows; remove the client from [data] clients, or give it data")
    y, offset, weights = _roles(table, encoding, marks, missing)
    with np.errstate(all="ignore"):
        X = _matrix(table, encoding, marks, missing)
    if not private:
        marks.refuse(client)
    y[marks.bad] = np.nan
    for values in (offset, weights):
        if values is not None:
            values[marks.bad] = 0.0
    if X is not table.matrix:  # a map is read-only, and NaN in y alone makes every kernel skip the row
        X[marks.bad] = np.nan
    return Design(X, y, offset, weights, _row_ids(table, encoding), marks.faults(), _notes(y, encoding))


_Values = NDArray[np.float64]


def _roles(
    table: Table, encoding: Encoding, marks: _Marks, missing: bool = False
) -> tuple[_Values, _Values | None, _Values | None]:
    """y, offset and weights (n,), each an array of its own."""
    y = _response(table, encoding, marks, missing).copy()
    offset = None if encoding.offset is None else _numeric(table, encoding.offset, marks).copy()
    weights = None
    if encoding.weight is not None:
        weights = _numeric(table, encoding.weight, marks).copy()
        marks.mark(weights < 0, encoding.weight, "is below zero", "weights must be >= 0")
    return y, offset, weights


def _matrix(table: Table, encoding: Encoding, marks: _Marks, missing: bool = False) -> NDArray[Any]:
    """X; bad cells are marked, and what stands in their place does not matter."""
    names = tuple(column.name for column in encoding.columns)
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
    at = int(encoding.intercept)
    X[:, :at] = 1.0
    for column in encoding.columns:
        if column.levels is None:
            center, scale = column.constants
            values = _numeric(table, column.name, marks, missing)
            np.subtract(values, center, out=X[:, at])
            X[:, at] /= scale
            marks.mark(
                ~np.isfinite(X[:, at]) & ~(missing & np.isnan(values)),
                column.name,
                "is too large",
                "correct the cell, or the column's scale",
            )
            at += 1
            continue
        cells = _categories(table, column.name, marks)
        position = {level: j for j, level in enumerate(column.levels)}
        hot = np.array([position.get(level, -1) for level in cells.levels], dtype=np.int64)[cells.codes]
        remedy = f"the levels are {_some(column.levels)}; correct the cell, or add it to [data.columns.{column.name}] levels"
        marks.mark(hot < 0, column.name, "is an unknown level", remedy)
        block = X[:, at : at + len(column.levels)]
        block[:] = 0.0
        known = np.flatnonzero(hot >= 0)
        block[known, hot[known]] = 1.0
        at += len(column.levels)
    return X


def _mark_matrix(table: Table, marks: _Marks, block: int = 16384) -> None:
    """Rows of the whole array that are not finite, found block by block: the array may be larger than memory."""
    matrix = table.matrix
    assert matrix is not None
    for begin in range(0, len(matrix), block):
        part = np.isfinite(matrix[begin : begin + block])
        if part.all():
            continue
        for j, name in enumerate(table.matrix_names):
            bad = np.zeros(len(matrix), dtype=bool)
            bad[begin : begin + block] = ~part[:, j]
            marks.mark(bad, name, "is not finite", "correct or remove the row")


def _numeric(table: Table, name: str, marks: _Marks, missing: bool = False) -> NDArray[np.float64]:
    """Values (n,) of a numeric column. Where values may be missing, an empty cell is NaN; anything else that is no number stays a
    fault.
    """
    column = table.columns[name]
    values = column.numbers() if isinstance(column, Text) else np.asarray(column, dtype=np.float64)
    empty = np.zeros(len(values), dtype=bool)
    if isinstance(column, Text):
        if missing:
            empty = np.array([level.lower() in MISSING for level in column.levels], dtype=bool)[column.codes]
        shown = np.array([np.isnan(number(level)) for level in column.levels], dtype=bool)[column.codes]
        remedy = f'correct or remove the row (or, if these are categories, set kind = "categorical" in [data.columns.{name}])'
        marks.mark(shown & ~empty, name, "is not a number", remedy)
    elif missing:
        empty = np.isnan(values)
    marks.mark(~np.isfinite(values) & ~empty, name, "is not finite", "correct or remove the row")
    return values


def _categories(table: Table, name: str, marks: _Marks) -> Text:
    """Cells of a categorical column; an empty one is a fault, since a missing value needs a name to be a level."""
    column = table.columns[name]
    if not isinstance(column, Text):
        values, codes = np.unique(np.asarray(column), return_inverse=True)
        column = Text(codes.astype(np.int64), tuple(map(plain, values.tolist())))
    empty = np.array([level == "" for level in column.levels], dtype=bool)[column.codes]
    marks.mark(empty, name, "is empty", 'remove the row, or give missing cells a name ("?")')
    return column


def _response(table: Table, encoding: Encoding, marks: _Marks, missing: bool = False) -> NDArray[np.float64]:
    if encoding.response is None:
        return np.zeros(table.n_rows)
    if missing and encoding.positive is None and encoding.family == "gaussian":
        return _numeric(table, encoding.response, marks, missing)
    name, column = encoding.response, table.columns[encoding.response]
    if encoding.positive is not None:
        cells = _categories(table, name, marks)
        if encoding.labels:
            known = np.array([level in encoding.labels for level in cells.levels], dtype=bool)[cells.codes]
            marks.mark(~known, name, "is not a label", f"the labels are {_some(encoding.labels)}; correct the cell")
        return np.array([level == encoding.positive for level in cells.levels], dtype=np.float64)[cells.codes]
    y = column.numbers() if isinstance(column, Text) else np.asarray(column, dtype=np.float64)
    if encoding.family == "bernoulli":
        remedy = 'correct the cell, or name the label that counts as 1: [data] positive = "..."'
        marks.mark((y != 0) & (y != 1), name, "is not 0 or 1", remedy)
    elif encoding.family == "poisson":
        counts = (y >= 0) & (y == np.floor(y)) & np.isfinite(y)
        marks.mark(~counts, name, "is not a count (0, 1, 2, ...)", "correct the cell, or choose another [model] family")
    else:
        marks.mark(~np.isfinite(y), name, "is not a finite number", "correct or remove the row")
    return y


def _row_ids(table: Table, encoding: Encoding) -> NDArray[np.uint64] | None:
    if encoding.row_id is None:
        return None
    column = table.columns[encoding.row_id]
    cells = column if isinstance(column, Text) else Text(np.arange(table.n_rows), tuple(map(plain, np.asarray(column).tolist())))
    digests = b"".join(blake2b(level.encode("utf-8", "replace"), digest_size=8).digest() for level in cells.levels)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)[cells.codes]


def _notes(y: NDArray[np.float64], encoding: Encoding) -> tuple[str, ...]:
    """What is legitimate but worth knowing, for the client's own side."""
    present = y[np.isfinite(y)]
    notes = []
    if not present.size:
        return ("no usable rows: this client adds nothing",)
    if present.size == 1:
        notes.append("one usable row")
    elif encoding.response is not None and encoding.family == "bernoulli" and (present == present[0]).all():
        notes.append(f"one class only: every {encoding.response} is {int(present[0])}")
    if present.size < encoding.size:
        notes.append(f"fewer usable rows ({present.size}) than coefficients ({encoding.size}): the prior decides the rest")
    return tuple(notes)


def _some(texts: tuple[str, ...], most: int = 8) -> str:
    return ", ".join(texts[:most]) + (f", ... ({len(texts)} in all)" if len(texts) > most else "")
