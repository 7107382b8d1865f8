"""Reads a column's cells as numbers, as labels, or as a formula's rows, and marks faulty ones."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..labels import find, label
from ..models.encoding import Column
from .cells import MISSING, TOO_LARGE, TRUTH, Text, floats, labels, too_large
from .dialect import has_decimal_comma
from .faults import COMMA, LEFT_OUT, NO_VALUE, Marks
from .table import Table

MISSING_WORD = "what stands for a missing value belongs into [data.dialect] missing"
INFINITE = "correct or remove the row; an infinite number is no missing cell"


def read_numbers(table: Table, name: str, marks: Marks, missing: bool = False, instead: str | None = None) -> NDArray[np.float64]:
    """Returns the values (n,) of a numeric column.

    If values may be missing, an empty cell is NaN; any other cell that is no number stays a fault. `instead`: the remedy for a
    cell without a number, in a column that is no covariate.
    """
    no_value = ("correct or remove the row", NO_VALUE) if instead is None else (instead,)
    column = table.columns[name]
    if isinstance(column, Text) and all(
        level in TRUTH or level.lower() in MISSING for level in (label(cell, column.decimal) for cell in column.levels)
    ):  # ends at the first number: a column with an empty cell has as many levels as rows
        column = replace(labels(column), truths=True)  # TRUE and FALSE, where another client has 1 and 0
    values = floats(column)
    if not isinstance(column, Text):
        if np.isfinite(last := ends(values)).all() and not too_large(last).any():  # as of most columns
            return values
        empty = np.isnan(values) & missing
    else:
        empty = np.array([level.lower() in MISSING for level in column.levels], dtype=bool)[column.codes]
        if not missing:
            written = np.array([level.lower() != "nan" for level in column.levels], dtype=bool)[column.codes]
            others = NO_VALUE if instead is None else LEFT_OUT
            reason = "is missing" if instead is None else "is empty"  # a column that a job names as a role is no missing one
            marks.mark(empty & written, name, reason, "fill in the value or remove the row", others)
        none = np.isnan(column.values)
        keys: tuple[str, ...] = (COMMA,) if any(no and has_decimal_comma(level) for no, level in zip(none, column.levels)) else ()
        if instead is None:
            keys += (MISSING_WORD, f'or, if these are categories, set kind = "categorical" in [data.columns.{name}]')
        marks.mark(none[column.codes] & ~empty, name, "is not a number", instead or "correct or remove the row", *keys)
        empty &= missing
    marks.mark(np.isnan(values) & ~empty, name, "is not finite", *no_value)
    marks.mark(np.isinf(values), name, "is not finite", INFINITE)
    marks.mark(too_large(values), name, "is too large", TOO_LARGE)
    return values


def ends(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the least and the largest number of a column, NaN where a cell is; none of no rows."""
    return np.array([values.min(), values.max()]) if len(values) else values


NAMED = ('remove the row, or give missing cells a name ("?")', LEFT_OUT)
UNNAMED = ("remove the row", LEFT_OUT)


def categories(
    table: Table, name: str, marks: Marks, empty_cell: tuple[str, ...] = NAMED, levels: Collection[str] | None = None
) -> Text:
    """Returns the cells of a categorical column, and marks empty ones: a missing value needs a name to be a level.

    `empty_cell` is the remedy, with keys of a job; of a response, whose levels are the job's, it is `UNNAMED`. `levels`: those
    that are agreed on.
    """
    column = labels(table.columns[name], levels or ())
    empty = np.array([level == "" for level in column.levels], dtype=bool)[column.codes]
    marks.mark(empty, name, "is empty", *empty_cell)
    return column


def hot(cells: Text, column: Column, marks: Marks) -> NDArray[np.int64]:
    """Returns which of a column's levels each cell (n,) is, -1 for a bad one."""
    assert column.levels is not None
    position = {level: j for j, level in enumerate(column.levels)}
    which = np.array([position.get(find(level, position), -1) for level in cells.levels], dtype=np.int64)[cells.codes]
    remedy = f"the levels are {some(column.levels)}; correct the cell, or leave the row out"
    marks.mark(which < 0, column.name, "is an unknown level", remedy, f"or add it to [data.columns.{column.name}] levels")
    return which


def some(texts: tuple[str, ...], most: int = 8) -> str:
    """Names the first few texts, and how many they are in all."""
    return ", ".join(texts[:most]) + (f", ... ({len(texts)} in all)" if len(texts) > most else "")


@dataclass(frozen=True)
class Reader:
    """Reads rows of a table for a formula, and marks faulty ones. `missing`: whether an empty cell is NaN, and no fault."""

    table: Table
    marks: Marks
    missing: bool = False
    kept: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Returns the numbers (n,) of a column; NaN for a cell that holds none."""
        if name not in self.kept:
            self.kept[name] = read_numbers(self.table, name, self.marks, self.missing)
        return self.kept[name]

    def codes(self, name: str, levels: tuple[str, ...]) -> NDArray[np.int64]:
        """Returns which of these levels each cell (n,) is; -1 for another one."""
        return hot(categories(self.table, name, self.marks, levels=levels), Column(name, "categorical", levels), self.marks)

    def fault(self, bad: NDArray[np.bool_], column: str, reason: str, remedy: str) -> None:
        """Marks rows."""
        self.marks.mark(bad, column, reason, remedy)
