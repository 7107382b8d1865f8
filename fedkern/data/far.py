"""Finds cells that are far away from all others of their column, for the holder of the rows alone.

Far is more than 20 standard deviations from the median. The standard deviation is that of the median absolute deviation, which no
few cells can move; if more than half of the cells are one value it is that of the other cells in the same way.

Nearer ones are looked at if they are a code that many programs write for a missing value, as -9 or 999.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..kernels.families import FAMILIES
from ..models.encoding import Encoding
from .cells import Text, floats
from .isolated import FAR, LEAST, Cells, coded, distances, find_codes, find_codes_of_times, finite, has_far, robust
from .table import Table

__all__ = ["FAR", "any_thousandths", "coded", "distances", "notes", "numbers", "robust"]

LISTED = 10  # cells of a column
EARLY = 12.0  # robust standard deviations of logarithms of times: of constant hazards about one row in a million is earlier
THOUSAND = 1000.0
FIRST = 1000  # cells of a column that say whether the others need a look
EARLIER = 20.0  # times below the median time all entries are, where they may be in another unit
LEAVE_OUT = "leave these rows out of the file"
MOST_ROWS, PATTERNS = 200_000, 12  # of a file that is looked through for rows that stand twice; and different ones


def notes(table: Table, encoding: Encoding, response: Array | None, offset: Array | None = None) -> list[str]:
    """Returns lines for rows.json: each cell that is far away, with its place, and values that look like a code for a missing
    one.

    Parameters
    ----------
    table : a party's rows
    encoding : of the columns; categorical ones are left out
    response, offset : (n,) of the same rows; looked at where it is a measurement, or a count by its exposure
    """
    lines = _twice(table)
    for name, values in columns(table, encoding).items():
        codes = coded(values)
        lines += _of(name, np.where(np.isin(values, codes), np.nan, values) if codes else values, table)
        if any_thousandths(values):
            lines.append(
                f"column {name!r}: all numbers above 999 are missing, and others have three digits after a point, as 1.234: if "
                "the point stands for thousands, write plain numbers into the file"
            )
        lines += (_code(name, code, int((values == code).sum()), _way(name, code, table)) for code in codes)
    if response is not None and encoding.response is not None and FAMILIES[encoding.family].counted:
        lines += count_notes(table, encoding.response, encoding.family, response, offset)
    if response is None or encoding.response is None or not (FAMILIES[encoding.family].continuous or encoding.family == "beta"):
        return lines
    codes = coded(response)
    lines += _of(encoding.response, np.where(np.isin(response, codes), np.nan, response), table, FAMILIES[encoding.family].link)
    return [*lines, *(_code(encoding.response, code, int((response == code).sum()), LEAVE_OUT) for code in codes)]


def columns(table: Table, encoding: Encoding, rows: np.ndarray | slice = slice(None)) -> dict[str, Array]:
    """Returns the numeric columns of a file, or those of which a formula makes the model's; `rows`: those that are looked at."""
    formula, covariates = encoding.formula, encoding.columns
    names = [column.name for column in covariates if column.levels is None] if formula is None else formula.numbers
    return {name: numbers(table, name)[rows] for name in names}


def count_notes(table: Table, name: str, family: str, y: Array, offset: Array | None = None) -> list[str]:
    """Returns lines for rows.json on counts that are a code for a missing value.

    Parameters
    ----------
    name, family : of the response
    y, offset : (n,) counts, and the logarithm of each row's exposure; NaN where a row has none
    """
    if FAMILIES[family].link != "log":
        return []
    return _coded(table, name, y, find_codes(np.asarray(y, np.float64), offset))


def coded_times(table: Table, time: str) -> list[str]:
    """Returns lines for rows.json on survival times that are a code for a missing value."""
    values = numbers(table, time)
    return _coded(table, time, values, find_codes_of_times(values))


def early_entries(table: Table, time: str, entry: str | None) -> list[str]:
    """Returns a line for rows.json on entries that are all so small beside the times that they may be in a larger unit."""
    if entry is None:
        return []
    begins, ends = numbers(table, entry), numbers(table, time)
    late = begins[begins > 0]
    middle = float(np.nanmedian(ends)) if np.isfinite(ends).any() else 0.0
    if len(late) < LEAST or not late.max() * EARLIER < middle:
        return []
    return [
        f"column {entry!r}: the {len(late)} entries above 0 are at most {late.max():.4g}, while half of the times ({time!r}) are "
        f"above {middle:.4g}: are entries in a larger unit (years beside days)? Both count from a row's beginning, in one unit"
    ]


def _coded(table: Table, name: str, values: Array, found: NDArray[np.bool_]) -> list[str]:
    """Returns a line for each code, and one for each of the first of these cells."""
    rows = np.flatnonzero(found)
    lines = [_code(name, code, int((values[rows] == code).sum()), LEAVE_OUT) for code in np.unique(values[rows]).tolist()]
    return [*lines, *(f"{table.place(row)}, column {name!r}: {values[row]:g} is such a cell" for row in rows[:LISTED].tolist())]


def time_notes(table: Table, time: str, others: Sequence[str] = ()) -> list[str]:
    """Returns lines for rows.json on survival times far from all others, or so near 0 that a slip is likelier.

    Parameters
    ----------
    time : the column of when rows end; those below the median are looked at by their logarithms too
    others : columns of entries and of ends of intervals, which may be 0 or empty
    """
    lines = [line for name in (time, *others) for line in _of(name, numbers(table, name), table)]
    return [*lines, *_of(time, numbers(table, time), table, "log", small=True)]


def _twice(table: Table) -> list[str]:
    """Returns a line if every row stands twice, in all of its columns, as in a file that was pasted into itself."""
    if not 0 < table.n_rows <= MOST_ROWS:
        return []
    cells = [column.codes if isinstance(column, Text) else column for column in table.columns.values()]
    codes = list[NDArray[np.int64]]()
    for each in cells:
        _, code, counts = np.unique(each, return_inverse=True, return_counts=True)
        if np.gcd.reduce(counts) == 1:  # as of most files already in the first column
            return []
        codes.append(code.ravel())
    counts = np.unique(np.column_stack(codes), axis=0, return_counts=True)[1]
    times = int(np.gcd.reduce(counts)) if len(counts) >= PATTERNS else 1
    return [f"every row stands in the file {times} times: leave one of them where they are one"] if times > 1 else []


def repeated_ids(table: Table, row_id: str | None) -> list[str]:
    """Returns a line if a column that names rows has one name for several."""
    if row_id is None:
        return []
    column = table.columns[row_id]
    codes = column.codes if isinstance(column, Text) else np.unique(column, return_inverse=True)[1].ravel()
    again = np.bincount(codes)[codes] > 1
    if not again.any():
        return []
    n, first = len(np.unique(codes[again])), table.place(int(np.flatnonzero(again)[0]))
    return [
        f"column {row_id!r} is to name rows (data.row_id), and {n} name{'s' * (n > 1)} {'stand' if n > 1 else 'stands'} in "
        f"{int(again.sum())} rows, the first in {first}: where rows are in the file twice leave one of each out; where they are "
        "of one patient, who is in several rows, they are alike, and intervals too narrow unless the model has an effect of it"
    ]


def any_thousandths(values: Array) -> bool:
    """Tells whether a column looks as if 1,234 were written 1.234: whole numbers up to some hundreds, and a few with three
    digits."""
    known = finite(values)
    if not _written(known[:FIRST]).all():  # as of most measurements, which then need no sorting
        return False
    known = np.unique(known)
    whole = known == np.rint(known)
    split = known[~whole]
    if len(split) == 0 or whole.sum() < LEAST or not THOUSAND / 2 <= known[whole].max() < THOUSAND:
        return False
    written = _written(split)
    short = np.abs(100 * split - np.rint(100 * split)) < 1e-6
    return bool((written & (split >= 1)).all() and short.mean() < 0.5 and np.median(known[whole]) > split.min())


def _written(values: Array) -> Cells:
    """Tells which numbers have three digits after the point, at most."""
    thousandfold = THOUSAND * values
    return np.abs(thousandfold - np.rint(thousandfold)) < 1e-6


def _of(name: str, values: Array, table: Table, link: str = "identity", *, small: bool = False) -> Iterator[str]:
    """Yields notes on cells far from all others, on the scale of the link: a positive response is looked at by its logarithm.

    With `small` only cells below the median are named, from `EARLY` on.
    """
    with np.errstate(all="ignore"):
        scaled = np.log(values) if link == "log" else np.log(values) - np.log1p(-values) if link == "logit" else values
    if not (small or has_far(scaled)):
        return
    away = distances(np.where(np.isfinite(scaled), scaled, np.nan))
    rows = np.flatnonzero((away > EARLY) & (values < np.nanmedian(values)) if small else away > FAR)
    for row in rows[:LISTED]:
        yield (
            f"{table.place(row)}, column {name!r}: {values[row]:.6g} is {away[row]:.3g} robust standard deviations away from the "
            "median: is the cell wrong, or in another unit?"
        )
    if len(rows) > LISTED:
        yield f"column {name!r}: {len(rows) - LISTED} more cells are that far away"


def _code(name: str, code: float, n: int, way: str) -> str:
    return (
        f"column {name!r}: {code:g} stands in {n} row{'s' * (n > 1)}, far from all other cells: if it is a code for a "
        f"missing value, {way}"
    )


def _way(name: str, code: float, table: Table) -> str:
    """Says how cells of a covariate with a code come to count as missing: [data.dialect] is for text files, and all columns."""
    elsewhere = (other for other in table.columns if other != name)
    of_text = table.lines is not None and not any((numbers(table, other) == code).any() for other in elsewhere)
    way = f'count it as one ([data.dialect] missing = ["{code:g}"])' if of_text else "make these cells empty (in arrays NaN)"
    return f"{way}, and say what becomes of the rows (model.missing)"


def numbers(table: Table, name: str) -> Array:
    """Returns the values (n,) of a column; nan for a cell that is no number."""
    return floats(table.columns[name])
