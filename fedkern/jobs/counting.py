"""Counts the rows of a table in an open job, and makes sketches of them, and of the columns that the job makes of them.

By these their holder sees that two jobs differ by a few rows, or by a column in a few rows. A row is known by its line in the
file, as it stands there: how a job reads a file, and which of its columns, changes no line. A row that comes from no line of text
is known by its cells. A column is known by its numbers as the job uses them.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data.cells import MISSING, Cells, Text, floats, plain
from ..data.design import column_of, with_event
from ..data.formula import looked_at
from ..data.incomplete import marked
from ..data.joined import gone_of
from ..data.rare import without_faults
from ..data.rounded import join_rounded
from ..data.table import Table, as_written
from ..errors import FedkernError
from ..kernels.survival import arranged
from ..models.encoding import Column, Spec
from ..models.weighing import effective
from ..privacy.sketch import Sketch, mix_bits
from .alike import with_splines
from .holding.columns import Columns, Rows
from .keys import JobConfig
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


def rows_of(config: JobConfig, table: Table, spec: Spec, key: bytes) -> Rows:
    """Makes, by a holder's secret, sketches of the rows that count in a job, and of the columns that it makes of them.

    A row goes with its weight: other weights of a few rows are other rows too.
    """
    spec = with_event(spec, table)
    numbers, row_weights = _numbers(table, key), weights(table, spec)
    there = row_weights > 0
    weight = np.ascontiguousarray(_relative(row_weights[there]))
    columns = ((name, values[there]) for name, values in _columns(config, table, spec, key))
    sketch = Sketch.of(mark_of(key), numbers[there], weight.view(np.uint64))
    joined = {name: sorted(gone) for name, cells in table.columns.items() if (gone := gone_of(cells))}
    return Rows(sketch, Columns.of(numbers[there], columns, joined), key)


def _numbers(table: Table, key: bytes) -> Numbers:
    """Returns (n,) the number by which each row is known."""
    written = as_written(table)
    if written is None:
        return _of_cells(table, key)
    return np.frombuffer(b"".join(_digest(line.strip(), key) for line in written), _WORD).astype(np.uint64)


def _columns(config: JobConfig, table: Table, spec: Spec, key: bytes) -> Iterator[tuple[str, Floats]]:
    """Yields the columns (n,) that a job makes of a table, with their names: each level of a column of labels is one."""
    try:
        table, spec = looked_at(table, spec)
    except FedkernError:  # a formula that does not fit the file ends the job, with a text of its own
        return
    columns = [column_of(spec, table, name) for name in spec.covariates(table.names)]
    for name in sorted(spec.roles - {spec.row_id, spec.group}):
        if name in table.columns:
            labels = name == spec.response and spec.labelled
            columns.append(Column(name, "categorical") if labels else Column(name, "numeric"))
    table, columns = with_splines(getattr(config.model, "splines", {}), table, columns)
    for column in columns:
        cells = table.columns[column.name]
        if column.kind == "numeric":
            yield column.name, without_faults(floats(cells))
        else:
            codes = _values(cells, key)
            for code, first in zip(*np.unique(codes, return_index=True), strict=True):
                level = cells.levels[cells.codes[first]] if isinstance(cells, Text) else plain(float(cells[first]))
                yield f"{column.name}[{level}]", (codes == code).astype(np.float64)
    if spec.group in table.columns:  # its labels stay labels: other ones in a few rows are another column in these
        yield str(spec.group), (_values(table.columns[str(spec.group)], key) >> np.uint64(11)).astype(np.float64)


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
            cells = table.columns[name]
            as_they_were = cells.before if isinstance(cells, Text) and cells.before is not None else cells  # whatever joins
            total += mix_bits(_values(as_they_were, key) ^ of_column)
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
