"""Counts the rows of a table in an open job, and makes a sketch of them.

By the sketch their holder sees that two jobs differ by a few rows. A row is known by its line in the file, as it stands there:
how a job reads a file, and which of its columns, changes no line. A row that comes from no line of text is known by its cells.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data.cells import MISSING, Cells, Text, floats
from ..data.incomplete import marked
from ..data.rare import effective
from ..data.rounded import join_rounded
from ..data.table import Table, as_written
from ..kernels.survival import arranged
from ..models.encoding import Spec
from ..privacy.sketch import Sketch, mix_bits
from .secret import mark_of

Floats = NDArray[np.float64]
Numbers = NDArray[np.uint64]
_WORD = np.dtype("<u8")
LEAST_AT_RISK = 5  # rows at the time of an event that counts as one: of two, the term is a function of one difference of rows
MOST_LOOKED = 1000  # rows that are at risk, first
SHORT = 1e-9  # what sums of weights lose


def weights(table: Table, spec: Spec) -> Floats:
    """Returns (n,) the weight of each row: 1 without weights, and 0 where a job learns nothing of it, for it has no response.

    (A cell that cannot be read is a fault, and counts.)
    """
    there = np.ones(table.n_rows, dtype=bool)
    cells, weight = (table.columns.get(name) if name else None for name in (spec.response, spec.weight or spec.trials))
    if isinstance(cells, Text):
        words = {""} if spec.labelled else MISSING
        there &= np.array([level.lower() not in words for level in cells.levels], dtype=bool)[cells.codes]
    elif cells is not None:
        there &= ~np.isnan(np.asarray(cells, np.float64))
    there[[*table.broken]] = True
    if weight is None:
        return there.astype(np.float64)
    values = floats(weight)
    return np.where(there & (values != 0), np.nan_to_num(np.abs(values), posinf=0.0), 0.0)


def counted(table: Table, spec: Spec) -> int:
    """Returns how many rows an open job learns from: those with a response.

    For weighted rows it is the effective number, (sum w)^2 / sum w^2, for a row that weighs nearly all is nearly alone; for
    successes of trials likewise, by trials, so that a row is never more than one.
    """
    return int(effective(weights(table, spec)) + 1e-9)


class Events(NamedTuple):
    """Counts survival times by their weights: effective numbers of rows with their event, in all and where enough are at risk."""

    events: int
    covered: int


def covered_events(table: Table, spec: Spec, rows: Floats, event: Floats) -> Events | None:
    """Counts the events of survival times; None where times cannot be read, which is a fault of its own.

    Parameters
    ----------
    rows : (n,) `weights`
    event : (n,) 1 where a row ends with its event
    """
    time, *entry = join_rounded((), *(floats(table.columns[name]) for name in spec.times))
    if spec.upper is not None and spec.upper in table.columns:  # of an event in an interval its end
        upper = floats(table.columns[spec.upper])
        time = np.where(np.isfinite(upper), np.maximum(time, upper), time)
    # Of a hazard that all share a group is a frailty, and no stratum.
    stratified = not spec.exposed and spec.group is not None and spec.group in table.columns
    strata = np.array(table.cells(str(spec.group))) if stratified else None
    there = rows > 0
    dying = there & (event == 1)
    try:
        sets = arranged(time[there], dying[there], entry[0][there] if entry else None, None if strata is None else strata[there])
    except ValueError:
        return None
    weight, covered = rows[there][sets.order], np.zeros(int(there.sum()))
    until = np.full(len(covered), len(sets.ends)) if sets.until is None else sets.until
    most = float(weight.max(initial=0.0))
    for k, (first, end, deaths) in enumerate(zip(sets.first.tolist(), sets.ends.tolist(), sets.deaths.tolist())):
        if _enough_at_risk(weight[first:end], until[first:end], k, most):
            covered[end - deaths : end] = weight[end - deaths : end]
    return Events(int(effective(rows * dying) + 1e-9), int(effective(covered) + 1e-9))


def _enough_at_risk(weight: Floats, until: NDArray[np.int64], k: int, most: float) -> bool:
    """Tells whether the rows at risk at a time, by the effective number of their weights, are enough for its events to count.

    Parameters
    ----------
    weight, until : (n,) of rows that came in time, and the number of the time from which on each is no more at risk
    k : the number of this time
    most : the largest weight of all rows. No effective number is below the sum of weights over the largest, by which the first
        rows decide most sets
    """
    some = weight[:MOST_LOOKED][until[:MOST_LOOKED] > k]
    return float(some.sum()) >= LEAST_AT_RISK * most or effective(weight[until > k]) >= LEAST_AT_RISK * (1 - SHORT)


def sketch(table: Table, spec: Spec, key: bytes) -> Sketch:
    """Makes a sketch of the rows that count, each with its weight, by a holder's secret.

    Other weights of a few rows are other rows too.
    """
    row_weights = weights(table, spec)
    there = row_weights > 0
    weight = np.ascontiguousarray(_relative(row_weights[there]))
    written = as_written(table)
    if written is None:
        rows = _of_cells(table, key)
    else:
        rows = np.frombuffer(b"".join(_digest(line.strip(), key) for line in written), _WORD).astype(np.uint64)
    return Sketch.of(mark_of(key), rows[there], weight.view(np.uint64))


def _relative(weight: Floats) -> Floats:
    """Returns weights, of which more than half are 1 if so many are the same: twice the weight of all is no other weight."""
    if not len(weight):
        return weight
    usual = np.partition(weight, (len(weight) - 1) // 2)[(len(weight) - 1) // 2]
    return weight / usual if 2 * np.count_nonzero(weight == usual) > len(weight) else weight


def _of_cells(table: Table, key: bytes) -> Numbers:
    """Returns (n,) a number for the cells of each row, in whatever order the columns come."""
    total = np.zeros(table.n_rows, np.uint64)
    marks = {marked(name) for name in table.names}
    for name in table.names:
        if name not in marks:
            of_column = np.frombuffer(_digest(name.encode("utf-8", "surrogatepass"), key), _WORD)
            total += mix_bits(_values(table.columns[name], key) ^ of_column)
    return mix_bits(total)


def _values(cells: Cells, key: bytes) -> Numbers:
    """Returns (n,) a number for each cell: a number is one however it is written, and all missing cells are the same."""
    if not isinstance(cells, Text):
        values = np.asarray(cells, np.float64) + 0.0  # one zero
        return np.where(np.isnan(values), np.nan, values).view(np.uint64)
    numbers = cells.values + 0.0
    levels = numbers.view(np.uint64)
    for at, level in enumerate(cells.levels):
        if np.isnan(numbers[at]) and level.lower() not in MISSING:
            levels[at] = int.from_bytes(_digest(level.encode("utf-8", "surrogatepass"), key), "little")
    return levels[cells.codes]


def _digest(content: bytes, key: bytes) -> bytes:
    return blake2b(content, key=key, digest_size=_WORD.itemsize).digest()
