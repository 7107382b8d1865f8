"""Gives rare levels of a categorical covariate one name, `OTHER`, in the cells of a table."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from ..arrays import Array
from ..labels import OTHER
from ..models.encoding import Encoding
from .cells import Cells, Text, labels
from .table import Table


def find_rare(cells: Text, levels: Sequence[str], weights: Array, least: int) -> frozenset[str]:
    """Returns the levels that have to join: those that fewer than `least` rows have, and then the last ones.

    These join until `OTHER` has enough rows itself: the last in an order that all clients share, so that they choose the same. So
    each level that is left has enough, and each union of several. Rows count by their effective number, (sum w)^2 / sum w^2, as
    they do where rare levels are refused.

    Parameters
    ----------
    levels : that may join, in that order; a level of the cells that is none of these is a fault
    weights : (n,) of the rows, 0 of those that do not count
    """
    many, sums, squares = (np.bincount(cells.codes, w, len(cells.levels)) for w in (np.ones(len(weights)), weights, weights**2))
    number = np.divide(sums**2, squares, out=np.zeros(len(sums)), where=squares > 0)
    place = {level: k for k, level in enumerate(cells.levels)}
    present = [place[level] for level in levels if level in place and many[place[level]]]
    gone = [k for k in present if number[k] < least]
    for k in reversed(present) if gone else ():
        if sums[gone].sum() ** 2 >= least * squares[gone].sum() > 0:
            break
        gone += [k] if k not in gone else []
    return frozenset(cells.levels[k] for k in gone)


def with_other(cells: Text, gone: Collection[str]) -> Text:
    """Returns cells with `OTHER` in the place of these levels, last of all; `before` has them as they were."""
    kept = [level for level in cells.levels if level not in gone and level != OTHER]
    place = {level: k for k, level in enumerate(kept)}
    codes = np.array([place.get(level, len(kept)) for level in cells.levels], np.int64)[cells.codes]
    return replace(cells, codes=codes, levels=(*kept, OTHER), before=cells.before or cells)


def gone_of(cells: Cells) -> frozenset[str]:
    """Returns the levels of a column of a file that count as `OTHER` in these cells."""
    before = cells.before if isinstance(cells, Text) else None
    return frozenset() if before is None else frozenset(before.levels) - {*cells.levels}  # type: ignore[union-attr]


def as_before(table: Table) -> Table:
    """Returns the table with the cells of the file in the place of those whose rare levels have joined."""
    cells = {name: column.before or column if isinstance(column, Text) else column for name, column in table.columns.items()}
    return replace(table, columns=cells)


def as_agreed(table: Table, encoding: Encoding) -> Table:
    """Returns the table with `OTHER` in the place of every label that is no level of a column whose rare levels have joined."""
    columns = dict(table.columns)
    for name, levels in encoding.levels_joined.items():
        cells = labels(columns[name])
        if gone := {level for level in cells.levels if level} - {*levels}:
            columns[name] = with_other(cells, gone)
    return replace(table, columns=columns) if encoding.joined else table


def notes(table: Table) -> list[str]:
    """Returns, for the holder alone, which levels of its rows count as `OTHER`."""
    texts = {name: ", ".join(map(repr, sorted(gone_of(cells)))) for name, cells in table.columns.items()}
    return [
        f'column {name!r}: {gone} count as "{OTHER}", for some client has few rows of each'
        for name, gone in texts.items()
        if gone
    ]
