"""Reads new rows as the job's files were read, for the methods whose server can predict by a released posterior."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..data import incomplete, memory, table
from ..data.cells import MISSING
from ..data.faults import of_new_rows
from ..data.formula import with_calculated, with_group
from ..data.plain_text import is_there
from ..data.table import Table
from ..errors import JobError, OwnFault
from ..labels import label
from ..models.encoding import Column, Encoding
from ..plain import Record
from .keys import DialectSection

FAR = 10.0  # scales of a column, from its center, beyond which a new row is worth a note
SHOWN = 5  # rows in a note
EXACT = 1e-6  # part of a scale by which it may differ from that of a column of two values


@contextmanager
def own() -> Iterator[None]:
    """Says faults of rows in full: whoever predicts holds the rows, and the job is over."""
    try:
        yield
    except OwnFault as fault:
        raise JobError(of_new_rows(fault)) from None


def responded(table: Table, encoding: Encoding) -> list[bool]:
    """Tells for each row whether it has a response: an empty one, as of patients to be predicted, is unknown."""
    labels = {name for text in (*encoding.labels, encoding.positive) if text is not None for name in (text, label(text))}
    cells = (cell.strip() for cell in table.cells(str(encoding.response)))
    return [cell in labels or cell.lower() not in MISSING for cell in cells]


def read(job: Record, encoding: Encoding, rows: object, *labels: str) -> tuple[Table, NDArray[np.bool_]]:
    """Reads the rows as the job's files were read; `labels`: columns of texts that are looked at beside the encoding's.

    Also returns which rows (n,) lack a cell that the model needs: others' cells stand there, so that the rest can be computed.
    """
    texts = encoding.texts | {name for name in labels if name}
    response = encoding.response or "y"
    check_there(rows)
    dialect = DialectSection.model_validate(job["data"].get("dialect") or {}).dialect
    if not isinstance(rows, str | Path):
        read = {*encoding.needed, *labels, response}
        loaded = memory.table(
            rows, "rows", text=texts, response=response, used=lambda name: any(name in names for names in read if names)
        )
    else:
        loaded = table.load(rows, text=texts, response=response, dialect=dialect)
    if loaded.lines is None:  # a table with types; of a file of text the job's words are empty since it was read
        loaded = incomplete.with_empty(loaded, dialect, {})
    loaded = with_calculated(loaded, encoding)
    for name in filter(None, labels):
        loaded = with_group(loaded, name)
    centers = _centers(job, encoding)
    return completed(incomplete.fill_cells(loaded, centers) if centers else loaded, encoding)


def completed(rows: Table, encoding: Encoding) -> tuple[Table, NDArray[np.bool_]]:
    """Returns the rows with their empty cells filled, and which rows (n,) had some."""
    beside = {encoding.response, encoding.weight, encoding.row_id, encoding.trials}
    levels = {column.name: column.levels for column in encoding.columns}
    levels |= {} if encoding.formula is None else {name: variable.levels for name, variable in encoding.formula.known.items()}
    lacking, columns = np.zeros(rows.n_rows, bool), dict(rows.columns)
    for name in columns.keys() & {*encoding.needed} - beside:
        known = (levels.get(name) or ()) if name in encoding.texts else None
        empty = incomplete.lacking_cells(columns[name], known)
        empty[[*rows.broken]] = False
        if empty.any():
            columns[name] = incomplete.filled(columns[name], empty, known[0] if known else 1.0)
            lacking |= empty
    return replace(rows, columns=columns, matrix=None, matrix_names=()) if lacking.any() else rows, lacking


def check_there(rows: object) -> None:
    """Refuses the path of new rows that do not exist (JobError)."""
    if isinstance(rows, str | Path) and not is_there(Path(rows)):
        raise JobError(f"{rows}: no such file; give the path of the rows that are to be predicted")


def _centers(job: Record, encoding: Encoding) -> dict[str, float]:
    """Returns the columns whose empty cells were filled and marked (`model.missing = "indicator"`), each with its filling."""
    centers, names = {}, {column.name for column in encoding.columns}
    for name, keys in (job["data"].get("columns") or {}).items():
        if incomplete.marked(name) in names:
            given = {key: value for key, value in keys.items() if value is not None and key not in ("reference", "shape")}
            centers[name] = Column.declared(name, given).center or 0.0
    return centers


def notes(columns: Mapping[str, Record] | None, encoding: Encoding, X: NDArray[np.float64]) -> tuple[str, ...]:
    """Returns a note for each numeric column in which new rows are far from the job's.

    No smallest or largest cell of the job's rows has been told; the columns' centers and scales have. Where the job has neither,
    as with standardise = "none", nothing is said. `columns`: [data.columns] of the job; `X`: (n, d) the rows, as the encoding has
    them.
    """
    return tuple(_notes(columns or {}, encoding, X))


def _notes(columns: Mapping[str, Record], encoding: Encoding, X: NDArray[np.float64]) -> Iterator[str]:
    j = int(encoding.intercept)
    for column in encoding.columns:
        if column.levels is not None:
            j += len(column.levels)
            continue
        values = X[:, j]
        j += 1
        given = {key for key, value in columns.get(column.name, {}).items() if value is not None}
        if column.constants == (0.0, 1.0) and not given & {"center", "lower"}:
            continue
        low, high, what = _ends(*column.constants, bounded="lower" in given)
        far = np.flatnonzero((values < low - EXACT) | (values > high + EXACT)) + 1
        if len(far):
            rows = ", ".join(map(str, far[:SHOWN].tolist())) + (f", .. ({len(far)} in all)" if len(far) > SHOWN else "")
            yield (
                f"column {column.name!r}, row{'s' if len(far) > 1 else ''} {rows}: {what}; a prediction there is the model's "
                "line, drawn on beyond all rows: is it another unit, or a code for a missing cell?"
            )


def _ends(center: float, scale: float, *, bounded: bool) -> tuple[float, float, str]:
    """Returns within which ends a column's cells are ordinary, in scales from the center, and the words for others.

    Whole numbers a and a + 1 with the mean m have the variance (m - a) (a + 1 - m), and all other whole numbers a larger one.
    """
    low = math.floor(center)
    if abs(math.sqrt((center - low) * (low + 1 - center)) - scale) <= EXACT * scale:
        what = f"neither {low} nor {low + 1}, as all rows of the job are"
        return (low - center) / scale, (low + 1 - center) / scale, what
    if bounded:
        return -1.0, 1.0, f"not between lower = {center - scale:.6g} and upper = {center + scale:.6g} of the job"
    return -FAR, FAR, f"more than {FAR:g} times the column's scale ({scale:.4g}) from its center ({center:.4g}) in the job"
