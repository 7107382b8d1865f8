"""Looks at the columns of files, for a draft or a fit that nobody has written a job file for: kinds, gaps, codes and slips.

No value of a cell is said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..algorithms.exchanges.compare import one_but_for, spellings
from ..data import isolated
from ..data.cells import EACH, MISSING, TRUTH, UNIT, Text, floats, labels, number
from ..data.design import LEAST_OF_LEVEL
from ..data.far import FAR, coded, distances
from ..data.table import Table

THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:([,.' \u00a0\u202f\u2019])\d{3})(?:\1\d{3})*(?:[.,]\d+)?")
GROUPS = re.compile(
    r"(.*_)?(ward|unit|clinic|hospital|department|dept|centre|center|site|doctor|physician|surgeon|room|district|county)s?"
)
DATES = re.compile(
    r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/. ](\d{1,2}|[A-Za-z]{3,9})[-/. ](\d{4}|\d{2}))([T ]\d{1,2}:\d{2}.*)?"
)
DAYS = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")  # 20240601
TRUTH_OF = {name: str(int(value)) for name, value in TRUTH.items()}
MANY = 10  # levels: of fewer nobody asks whether they are too many
CODES = 50  # values at most of a column of numbers that may be codes
LEAST_CODE = 10  # below are counts, grades and stages
ROWS_OF_A_CODE = 10  # of a file, on average


@dataclass(frozen=True)
class Seen:
    """Holds the look of files."""

    names: tuple[str, ...]  # of the columns, in order
    kinds: dict[str, str]  # name -> "binary", "count", "real", "text" or "names" (each cell another text, or all cells empty)
    gaps: frozenset[str] = frozenset()  # columns that lack cells
    two: frozenset[str] = frozenset()  # columns of numbers with two values that are not 0 and 1
    dates: frozenset[str] = frozenset()  # columns of dates
    crowded: frozenset[str] = frozenset()  # columns of text with nearly as many levels as rows, that do not name each row
    numbered: frozenset[str] = frozenset()  # columns of few whole numbers that may number wards, or the like
    zeros: frozenset[str] = frozenset()  # columns of numbers of which some are 0, as counts are
    several: frozenset[str] = frozenset()  # columns of text with three labels or more

    def family(self, response: str, *, levels: bool = False) -> str:
        """Returns the family of a response: whole numbers are counts where some are 0, and else measurements.

        `levels`: whether the method takes a response of several.
        """
        kind = self.kinds[response]
        if kind in ("count", "real") and response not in self.two:
            return "poisson" if kind == "count" and response in self.zeros else "gaussian"
        return "multinomial" if levels and response in self.several else "bernoulli"


def look_at(tables: Sequence[Table]) -> Seen:
    """Looks at all columns of the files; a column has the widest kind over the files that have it."""
    order = ("binary", "count", "real", "text")
    names = tuple(dict.fromkeys(name for table in tables for name in table.names))
    kinds, gaps, two, zeros, several = dict[str, str](), set[str](), set[str](), set[str](), set[str]()
    for name in names:
        holding = [table for table in tables if name in table.names]
        own_kinds = [kind for kind in (_kind(table, name) for table in holding) if kind != "empty"]
        if all(kind == "names" for kind in own_kinds):  # or there is no cell at all
            kinds[name] = "names"
        else:
            kinds[name] = max(("text" if kind == "names" else kind for kind in own_kinds), key=order.index)
        gaps |= {name} if any(_lacks(table, name) for table in holding) else set()
        if kinds[name] in ("count", "real") and len(np.unique(np.concatenate([_numbers(table, name) for table in holding]))) == 2:
            two.add(name)
        zeros |= {name} if any((_numbers(table, name) == 0).any() for table in holding) else set()
        if kinds[name] == "text" and len({label for table in holding for label in _labels(table, name)}) > 2:
            several.add(name)
    having = {name: [table for table in tables if name in table.names] for name in names}
    dates = {name for name in names if all(_are_dates(table, name) for table in having[name])}
    crowded = {
        name for name in names if kinds[name] == "text" and any(_is_crowded(table, name) for table in having[name])
    } - dates
    numbered = {
        name for name in names if kinds[name] == "count" and all(_are_codes(table, name) for table in having[name])
    } - dates
    sets = (gaps, two, dates, crowded, numbered, zeros, several)
    return Seen(names, kinds, *map(frozenset, sets))


def _labels(table: Table, name: str) -> set[str]:
    """Returns the labels of a column; truth values are 0 and 1, as which another file may have them."""
    return {TRUTH_OF.get(level, level) for level in labels(table.columns[name]).levels if level}


def coded_apart(tables: Sequence[Table], name: str) -> bool:
    """Tells whether a column of numbers has two values in each file, and not the same two in all: 0 and 1 here, 1 and 2 there."""
    values = [_numbers(table, name) for table in tables]
    pairs = [set(np.unique(numbers).tolist()) for numbers in values]
    rows = sum(len(numbers) for numbers in values)
    return all(len(pair) == 2 for pair in pairs) and len(set().union(*pairs)) > 2 and rows >= sum(map(len, pairs)) * EACH


def codes_beside_two(tables: Sequence[Table], name: str) -> list[float]:
    """Returns the usual codes for missing values (-9, 999) in a column that has two neighbouring whole numbers beside them."""
    values = {*np.unique(np.concatenate([_numbers(table, name) for table in tables])).tolist()}
    codes = values.intersection(isolated.CODES)
    others = values - codes
    return sorted(codes) if len(others) == 2 and max(others) - min(others) == 1 else []


def _are_dates(table: Table, name: str) -> bool:
    """Returns whether all cells are dates, but for empty ones."""
    column = table.columns[name]
    if isinstance(column, Text):
        present = [level.strip() for level in column.levels if level.lower() not in MISSING]
        return bool(present) and all(map(DATES.fullmatch, present))
    values = np.unique(_numbers(table, name))
    return bool(values.size) and all(DAYS.fullmatch(f"{value:.15g}") for value in values)


def _is_crowded(table: Table, name: str) -> bool:
    """Returns whether it is text of more levels than a job would accept for a category."""
    column = table.columns[name]
    if not isinstance(column, Text) or _kind(table, name) not in ("text", "names") or _spoilt(_unread(column)):
        return False
    return MANY < len(column.levels) and table.n_rows < LEAST_OF_LEVEL * len(column.levels)


def _are_codes(table: Table, name: str) -> bool:
    """Returns whether whole numbers may number wards, or the like: few, none of them small, or called as such."""
    values = np.unique(_numbers(table, name))
    few = 2 < len(values) <= min(CODES, table.n_rows // ROWS_OF_A_CODE)
    return few and (bool(GROUPS.fullmatch(name.lower())) or float(values[0]) >= LEAST_CODE)


def has_code(tables: Sequence[Table], seen: Seen, name: str) -> bool:
    """Returns whether a few cells of a numeric column have a code as for missing values."""
    numeric = seen.kinds[name] in ("binary", "count", "real")
    return numeric and any(bool(coded(_numbers(table, name))) for table in tables if name in table.names)


def _lacks(table: Table, name: str) -> bool:
    """Returns whether a cell is empty, in a row that can be read."""
    column, read = table.columns[name], np.array([row not in table.broken for row in range(table.n_rows)], np.bool_)
    if isinstance(column, Text):
        missing = {""} if column.kind() == "categorical" else MISSING
        return any(column.levels[code].lower() in missing for code in np.unique(column.codes[read]))
    return bool(np.isnan(np.asarray(column, np.float64)[read]).any())


def _numbers(table: Table, name: str) -> NDArray[np.float64]:
    """Returns the finite numbers of a column."""
    column = table.columns[name]
    values = floats(column)
    return values[np.isfinite(values)]


def slips(tables: Sequence[Table], seen: Seen) -> Iterator[str]:
    """Yields lines about columns that fit a model without an error, and are perhaps a mistake; no cell is said."""
    for name in seen.names:
        holding = [table for table in tables if name in table.names]
        texts = [cells for table in holding if isinstance(cells := table.columns[name], Text)]
        levels = {level for cells in texts for level in cells.levels}
        column = f"column {name}"
        if what := _spoilt({level for cells in texts for level in _unread(cells)}):
            yield f"{column}: its cells look like numbers with {what}, and are taken for text; write plain numbers into the file"
        if seen.kinds[name] == "text" and (same := spellings(levels)):
            yield f"{column}: levels {one_but_for(same[0])}, and are taken for different ones; write them alike"
        if seen.kinds[name] not in ("binary", "count", "real"):
            continue
        if any(
            level.lower() not in MISSING for cells in texts for level in _unread(cells) if np.isnan(number(level, cells.decimal))
        ):
            yield (
                f"{column}: a few cells are no numbers; what stands for a missing value (some programs write a point) "
                "belongs into [data.dialect] missing"
            )
        values = [_numbers(table, name) for table in holding]
        pairs = {tuple(np.unique(cells).tolist()) for cells in values if len(np.unique(cells)) == 2}
        if len(pairs) > 1:
            yield f"{column}: two values in each file, and not the same two in all; code it alike"
        if has_code(tables, seen, name):
            yield (
                f"{column}: some cells have one value as programs write for a missing one (0, -9, 99, ..), far from all "
                "others; if it is one, give it to [data.dialect] missing, or make its cells empty"
            )
        elif any((distances(cells) > FAR).any() for cells in values):
            yield (
                f"{column}: a cell is more than {FAR:g} robust standard deviations from the median of its file; is it wrong, or "
                "in another unit? `fedkern check JOB.toml --local FILE` shows its holder which"
            )


def _unread(cells: Text) -> list[str]:
    """Returns levels other than numbers with decimal commas, where the file has such: 1,234 are no thousands there."""
    return [level for level, value in zip(cells.levels, cells.values) if cells.decimal == "." or np.isnan(value)]


def _spoilt(levels: Collection[str]) -> str:
    """Returns the addition to numbers that at least half of a column's different cells share; "" where they share none."""
    present = [level for level in levels if level.lower() not in MISSING]
    least = max(2, -(-len(present) // 2))
    if sum(THOUSANDS.fullmatch(level) is not None for level in present) >= least:
        return "separators of thousands"
    units = Counter(match.group(1) for level in present if (match := UNIT.fullmatch(level)))
    return "a unit behind" if units and max(units.values()) >= least else ""


def _kind(table: Table, name: str) -> str:
    """Returns the kind of a column, as `Seen.kinds` has it, or "empty"."""
    column = table.columns[name]
    if isinstance(column, Text) and _spoilt(_unread(column)):  # numbers, once the file is mended: no name of a row, and not empty
        return "text"
    if isinstance(column, Text) and column.kind() == "categorical":
        return "names" if len(column.levels) == table.n_rows > 2 else "text"
    values = _numbers(table, name)
    if not values.size:
        return "empty"
    if not (values >= 0).all() or not (values == np.floor(values)).all():
        return "real"
    return "binary" if (values <= 1).all() else "count"
