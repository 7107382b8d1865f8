"""Makes sketches of the rows that count in an open job, and of the columns that the job makes of them.

By these their holder sees that two jobs differ by a few rows, or by a column in a few rows. A row is known by its line in the
file, as it stands there: how a job reads a file, and which of its columns, changes no line. A row that comes from no line of text
is known by its cells. A column is known by its numbers as the job uses them.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..data.cells import MISSING, Cells, Text, floats, labels, plain
from ..data.design import column_of, with_event
from ..data.formula import looked_at
from ..data.incomplete import marked
from ..data.joined import gone_of
from ..data.rare import without_faults
from ..data.table import Table, as_written
from ..disclosure.look import weights, with_splines
from ..disclosure.measures import MANY, n_values
from ..errors import FedkernError
from ..labels import OTHER
from ..models.encoding import Column, Spec
from ..privacy.sketch import Sketch, mix_bits
from .holding.columns import Columns, Rows
from .keys import JobConfig
from .secret import mark_of

Numbers = NDArray[np.uint64]
_WORD = np.dtype("<u8")


def rows_of(config: JobConfig, table: Table, spec: Spec, key: bytes) -> Rows:
    """Makes, by a holder's secret, sketches of the rows that count in a job, and of the columns that it makes of them.

    A row goes with its weight: other weights of a few rows are other rows too.
    """
    spec = with_event(spec, table)
    numbers, row_weights = _numbers(table, key), weights(table, spec)
    counted = row_weights > 0
    weight = np.ascontiguousarray(_relative(row_weights[counted]))
    columns = ((name, values[counted]) for name, values in _columns(config, table, spec, key))
    sketch = Sketch.of(mark_of(key), numbers[counted], weight.view(np.uint64))
    joined = {name: sorted(gone) for name, cells in table.columns.items() if (gone := gone_of(cells))}
    values = {} if config.requirement.cells else dict(_few_values(table, spec, counted))
    return Rows(sketch, Columns.of(numbers[counted], columns, joined, values), key)


def _few_values(table: Table, spec: Spec, counted: NDArray[np.bool_]) -> Iterator[tuple[str, list[tuple[list[str], int]]]]:
    """Yields the columns of levels, or of few values, with the values that are one in the job, and the rows with these."""
    for name in sorted({*spec.covariates(table.names), *spec.roles - {spec.row_id}} & {*table.columns}):
        cells = table.columns[name]
        if column_of(spec, table, name).levels is None and n_values(floats(cells)[counted], MANY + 1) > MANY:
            continue
        text, gone = labels(cells), sorted(gone_of(cells))
        counts = np.bincount(text.codes[counted], minlength=len(text.levels)).tolist()
        yield name, [(gone if gone and level == OTHER else [level], n) for level, n in zip(text.levels, counts) if n]


def _numbers(table: Table, key: bytes) -> Numbers:
    """Returns (n,) the number by which each row is known."""
    written = as_written(table)
    if written is None:
        return _of_cells(table, key)
    return np.frombuffer(b"".join(_digest(line.strip(), key) for line in written), _WORD).astype(np.uint64)


def _columns(config: JobConfig, table: Table, spec: Spec, key: bytes) -> Iterator[tuple[str, Array]]:
    """Yields the columns (n,) that a job makes of a table, with their names: each level of a column of labels is one."""
    try:
        table, spec = looked_at(table, spec)
    except FedkernError:  # a formula that does not fit the file ends the job, with a text of its own
        return
    columns = [column_of(spec, table, name) for name in spec.covariates(table.names)]
    for name in sorted(spec.roles - {spec.row_id, *spec.of_groups}):
        if name in table.columns:
            labels = name == spec.response and spec.labelled
            columns.append(Column(name, "categorical") if labels else Column(name, "numeric"))
    table, columns = with_splines(config.requirement.fit.splines, table, columns)
    for column in columns:
        cells = table.columns[column.name]
        if column.kind == "numeric":
            yield column.name, without_faults(floats(cells))
        else:
            codes = _values(cells, key)
            for code, first in zip(*np.unique(codes, return_index=True), strict=True):
                level = cells.levels[cells.codes[first]] if isinstance(cells, Text) else plain(float(cells[first]))
                yield f"{column.name}[{level}]", (codes == code).astype(np.float64)
    for name in spec.groups:  # their labels stay labels: other ones in a few rows are another column in these
        if name in table.columns:
            yield name, (_values(table.columns[name], key) >> np.uint64(11)).astype(np.float64)


def _relative(weight: Array) -> Array:
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
    for k, level in enumerate(cells.levels):
        if np.isnan(numbers[k]) and level.lower() not in MISSING:
            levels[k] = int.from_bytes(_digest(level.encode("utf-8", "surrogatepass"), key), "little")
    return levels[cells.codes]


def _digest(content: bytes, key: bytes) -> bytes:
    return blake2b(content, key=key, digest_size=_WORD.itemsize).digest()
