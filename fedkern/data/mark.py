"""Computes a table's fingerprint from its cells, whatever holds them.

A data frame, arrays and a file with the same cells have the same one, in whatever order their columns come. It shows that two
tables are the same, and no more: one cell that was changed, or two rows that were exchanged, make another.
"""

from __future__ import annotations

import json
from hashlib import blake2b

import numpy as np

from .cells import MISSING, Cells, Text
from .table import Table

OF_ROWS = "rows-"  # with which a fingerprint of rows begins; that of a file's bytes has hexadecimal digits alone
RESPONSE = "y"  # what the response of arrays is called here, whatever a job calls it
BLOCK = 1 << 20  # cells that are hashed at a time


def of_rows(table: Table) -> str:
    """Returns the BLAKE2b-128 digest of a table's names and cells."""
    state = blake2b(digest_size=16, person=b"fedkern rows")
    state.update(json.dumps([sorted(table.names), table.n_rows]).encode())
    for name in sorted(table.names):
        levels, values = _values(table.columns[name])
        state.update(json.dumps(levels).encode())
        for begin in range(0, len(values), BLOCK):
            part = np.asarray(values[begin : begin + BLOCK], dtype="<f8") + 0.0  # one zero
            part[np.isnan(part)] = np.nan  # and one kind of what is missing
            state.update(part.tobytes())
    return OF_ROWS + state.hexdigest()


def _values(column: Cells) -> tuple[list[str], np.ndarray]:
    """Returns levels in their order, and codes; for numbers, also if they are written as texts, no levels, and the numbers
    themselves."""
    if not isinstance(column, Text):
        return [], np.asarray(column)
    none = np.isnan(column.values)
    if all(level.lower() in MISSING or not no for level, no in zip(column.levels, none)):
        return [], column.numbers()
    written = [level if no else level.replace(column.decimal, ".") for level, no in zip(column.levels, none)]
    levels = sorted(written)
    place = {level: k for k, level in enumerate(levels)}
    return levels, np.array([place[level] for level in written], dtype=np.int64)[column.codes]
