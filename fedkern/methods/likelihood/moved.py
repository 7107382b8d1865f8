"""Moves a column that stands in a formula, in all its terms at once and in random slopes.

The change with a number is a difference of two predictions a little apart, whose error is that of a third derivative. The change
with labels, and with columns of 0 and 1, is the difference between two of them.

Source: docs/spec/likelihood.md, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...arrays import Array
from ...data.faults import Marks
from ...data.reading import Reader
from ...data.table import Table
from ...models.encoding import Encoding
from ...models.formula.expansion import Formula
from ...models.mixed.marginal import Moved

STEP = 1e-4  # of a column's standard deviation, or of the number itself where that is nearer to 0


@dataclass(frozen=True)
class Of:
    """Names a column of a file; `between`: two of its numbers or labels, where the derivative is not asked for."""

    name: str
    between: tuple[float, float] | tuple[str, str] | None = None


@dataclass(frozen=True)
class _Instead:
    """Reads rows in which one column holds something else."""

    reader: Reader
    name: str
    numbers_of_it: Array = field(default_factory=lambda: np.zeros(0))
    label: str = ""

    def numbers(self, name: str) -> Array:
        return self.numbers_of_it if name == self.name else self.reader.numbers(name)

    def codes(self, name: str, levels: tuple[str, ...]) -> NDArray[np.int64]:
        if name != self.name:
            return self.reader.codes(name, levels)
        return np.full(self.reader.table.n_rows, levels.index(self.label))

    def fault(self, bad: NDArray[np.bool_], column: str, reason: str, remedy: str) -> None:
        """Tells nothing: the values are none of a row."""


def move_rows(encoding: Encoding, formula: Formula, table: Table, order: NDArray[np.int64], of: Of) -> Moved:
    """Returns the rows at both ends of the change; `order`: the file's row of each."""
    reader = Reader(table, Marks(table))
    if of.between is None:
        x = reader.numbers(of.name)
        sd = float(x.std()) or 1.0
        step = STEP * np.where(x == 0, sd, np.minimum(sd, np.abs(x)))
        ends = [_Instead(reader, of.name, x + step), _Instead(reader, of.name, x - step)]
        moved_to = [x + step, x - step]
        high, low = (_rows(encoding, formula, end, table.n_rows) for end in ends)
        here = _rows(encoding, formula, reader, table.n_rows)
        # A term may have no value on one side, as log(x - 25) next to 25: the difference is then from here to the other side.
        for X, where in ((high, moved_to[0]), (low, moved_to[1])):
            none = ~np.isfinite(X).all(axis=1)
            X[none], where[none] = here[none], x[none]
        return Moved(low[order], high[order], (moved_to[0] - moved_to[1])[order])
    whole, (first, second) = np.ones(table.n_rows), of.between
    if isinstance(first, str):
        both = [_Instead(reader, of.name, label=str(level)) for level in (second, first)]
    else:
        both = [_Instead(reader, of.name, float(number) * whole) for number in (second, first)]
    high, low = (_rows(encoding, formula, instead, table.n_rows) for instead in both)
    return Moved(low[order], high[order], whole[order])


def is_binary(table: Table, name: str) -> bool:
    """Returns whether all cells of a column of numbers are 0 or 1."""
    return bool(np.isin(Reader(table, Marks(table)).numbers(name), (0.0, 1.0)).all())


def _rows(encoding: Encoding, formula: Formula, rows: Reader | _Instead, n: int) -> Array:
    """(n, p) columns of the coefficients."""
    center, scale = np.array([column.constants for column in encoding.columns]).reshape(-1, 2).T
    X = (formula.matrix(rows, n) - center) / scale
    return np.column_stack([np.ones((n, int(encoding.intercept))), X])
