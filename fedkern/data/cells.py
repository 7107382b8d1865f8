"""Reads cells of columns that are not all numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..labels import TRUTHS, by_number, label
from .dialect import has_decimal_comma, read
from .plain_text import canonical

_THOUSANDS = re.compile(r"[+-]?\d{1,3}(\.\d{3})+(,\d*)?")
UNIT = re.compile(r"[+-]?\d*[.,]?\d+ ?([^\d\s.,:;-]\S*)")  # a number, and a unit behind it
# A number, and marks about it: 1,234 or (3.5) or $ 12; no interval.
MARKED = re.compile(r"[^\w\[\]]*\d[\d.,'\u2019\s]*[^\w\[\]]*")
EPOCH = datetime(1970, 1, 1)
TRUTH = {"False": 0.0, "True": 1.0}
PADDED = re.compile(r"0(?<![\d.eE+-]0)\d")  # a number with a zero before it, anywhere in a text; no decimals, and no exponent
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none"})  # compared in lower case, in numeric columns only (`incomplete`)

SINGLE = 7  # significant digits of a float of 32 bits
FEW = 20  # values of a column that are categories if one of them is no number
EACH = 3  # rows of each such value, on average
MOST = 1e150  # of a number's size: beyond, squares and their sums are no numbers
TOO_LARGE = "correct the cell, or give the column in another unit: its size must be at most 1e150, so that it can be squared"
LEAST = 1e-150  # between a column's smallest and largest value, if they are two: below, squares of what differs are no numbers
TOO_SMALL = "give the column in another unit: values must differ by at least 1e-150, so that what differs can be squared"
MOST_OFF = 100.0  # of an offset on a log or logit scale: e^100 is no rate, and with it e^(x'theta) leaves the finite numbers
TOO_FAR = "correct the cell: an offset is added on the log (or logit) scale, within 100 of 0; of an exposure give the logarithm"
MOST_COUNTED = 2.0**53  # of a count: beyond, not every whole number has a float of its own


@dataclass(frozen=True)
class Text:
    """Holds a column of cells as they were written: cell i is `levels[codes[i]]`.

    Levels stand by first appearance, as `canonical` writes them.
    """

    codes: NDArray[np.int64]  # (n,)
    levels: tuple[str, ...]
    decimal: str = "."  # "." or ",", as the file's numbers have it
    truths: bool = False  # whether the column's type is of truth values, which are the numbers 0 and 1 where numbers are wanted
    ordered: bool = False  # whether the column's type gives its levels an order, in which they stand
    category: bool = False  # whether the column's type says that its cells are labels, whatever they look like
    texts: bool = False  # whether the column's type says that its cells are texts (csv files have no types)
    before: Text | None = None  # the cells of the file, where rare levels of theirs have joined (`joined`)

    @property
    def values(self) -> NDArray[np.float64]:
        """Each level as a number; NaN if it is none."""
        if self.truths:
            return np.array([TRUTH.get(level, number(level)) for level in self.levels], dtype=np.float64)
        return np.array([number(level, self.decimal) for level in self.levels], dtype=np.float64)

    def numbers(self) -> NDArray[np.float64]:
        """Returns the values (n,); NaN for a cell that is no number."""
        return self.values[self.codes]

    def select(self, rows: np.ndarray | slice) -> Text:
        """Returns the cells of these rows."""
        before = None if self.before is None else self.before.select(rows)
        return replace(self, codes=self.codes[rows], before=before)

    def shown(self, row: int) -> str:
        """Returns a cell for its holder, with the reason why it is no number if that cannot be seen."""
        level = self.levels[self.codes[row]]
        pointed = self.decimal == "," and "." in level and (_THOUSANDS.fullmatch(level) or not math.isnan(number(level)))
        return f"{level} (a point, where decimals have commas)" if pointed else level

    def kind(self) -> Literal["numeric", "categorical"]:
        """Tells whether the column is of numbers or of categories, which are labels.

        Codes are of categories. With a cell that is no number it is, too: where less than half of its cells are numbers, or few
        values are (0, 1, 2, 3+), each in `EACH` rows on average. Of more values such a cell is a mistake, and so is one without
        letter and digit (?). Missing cells do not count, and numbers with a decimal comma are numbers.
        """
        if self.truths or self.category or self.coded:
            return "categorical"
        counts = np.bincount(self.codes, minlength=len(self.levels))
        present = np.array([level.lower() not in MISSING for level in self.levels], dtype=bool) & (counts > 0)
        numbers = present & (~np.isnan(self.values) | np.array([*map(has_decimal_comma, self.levels)], dtype=bool))
        words = present & ~numbers & np.array([any(map(str.isalnum, level)) for level in self.levels], dtype=bool)
        rows = int(counts[present].sum())
        if 2 * counts[numbers].sum() < rows:
            return "categorical"
        return "categorical" if words.any() and present.sum() <= min(FEW, rows // EACH) else "numeric"

    @property
    def coded(self) -> bool:
        """Whether its whole numbers are written as codes are, with zeros before them: 01234, or 01 where all have two digits."""
        digits = [level for level in self.levels if level.isdecimal()]
        padded = [len(level) for level in digits if level[0] == "0" and len(level) > 1]
        if not padded or (max(padded) == 2 and len({*map(len, digits)}) > 1):
            return False
        return all(level.lstrip("-").isalnum() for level in self.levels if level.lower() not in MISSING)  # without decimals

    @property
    def marked(self) -> bool:
        """Whether all cells hold numbers with one unit, "%" or other marks about them; not where they are few, as categories."""
        present = [level for level in self.levels if level.lower() not in MISSING]
        units = {match.group(1) if (match := UNIT.fullmatch(level)) else "" for level in present}
        if len(units) == 1 and "" not in units:
            return len(present) > FEW or units == {"%"}
        return len(present) > FEW and not (self.coded or self.category) and all(map(MARKED.fullmatch, present))

    @property
    def mixed(self) -> bool:
        """Whether some of its labels are numbers, as in a column of categories at whose other clients all may be."""
        return self.kind() == "categorical" and not self.truths and bool((~np.isnan(self.values)).any())


Cells = np.ndarray | Text


def floats(cells: Cells) -> NDArray[np.float64]:
    """Returns a column's numbers (n,); NaN for a cell that is none."""
    return cells.numbers() if isinstance(cells, Text) else np.asarray(cells, np.float64)


def no_number(cells: Cells) -> str:
    """Returns a clause for the holder on the first cell that makes a column one of categories; "" where all are numbers."""
    if not isinstance(cells, Text):
        return ""
    if cells.coded:
        first = next(level for level in cells.levels if PADDED.match(level))
        numbers = 'if they are numbers, set kind = "numeric" in [data.columns]'
        return f" (cells begin with 0, as codes do, so that it is of categories: the first is {first!r}; {numbers})"
    words = np.isnan(cells.values) & np.array([level != "" for level in cells.levels], dtype=bool)
    rows = np.flatnonzero(words[cells.codes])
    if not len(rows):
        return ""
    return f" (cells are no numbers, so that it is of categories: the first is {cells.levels[cells.codes[rows[0]]]!r})"


def number(cell: str, decimal: str = ".") -> float:
    """Returns the number that a cell holds, NaN if none ("1_000" is none)."""
    try:
        return math.nan if "_" in cell else read(cell, decimal)
    except ValueError:
        return math.nan


def too_large(values: np.ndarray) -> NDArray[np.bool_]:
    """Returns which finite numbers cannot be squared and summed."""
    if values.dtype.itemsize < 8:  # no number of these types is so large
        return np.zeros(values.shape, dtype=bool)
    return np.asarray(np.isfinite(values) & (np.abs(values) > MOST), np.bool_)


def too_far(offset: NDArray[np.float64], link: str) -> NDArray[np.bool_]:
    """Returns which finite offsets cannot be meant. With an identity link any may be."""
    return np.asarray(np.isfinite(offset) & (np.abs(offset) > MOST_OFF) & (link != "identity"), np.bool_)


def missing(value: object) -> bool:
    """Tells whether a typed value is none: None, NaN, NaT, or pandas' NA, which is neither equal nor unequal to anything."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except TypeError:
        return True
    except ValueError:  # an array among the cells
        return False


def plain(value: object) -> str:
    """Returns a typed value as a person would write it as a category: 3 rather than 3.0; missing is empty."""
    if missing(value):
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def as_text(cells: Sequence[str], decimal: str = ".") -> Text:
    """Codes the distinct cells by first appearance."""
    seen: dict[str, int] = {}
    codes = np.fromiter((seen.setdefault(cell, len(seen)) for cell in cells), dtype=np.int64, count=len(cells))
    return written(Text(codes, tuple(seen), decimal), [*map(canonical, seen)])


def typed(values: Sequence[object], single: bool = False) -> Text:
    """Codes typed values; `single`: these are floats of 32 bits, of which `SINGLE` significant digits say what was meant."""
    if single:
        values = [float(f"{value:.{SINGLE}g}") if isinstance(value, float) else value for value in values]
    return replace(as_text([*map(plain, values)]), texts=_are_texts(values))


def _are_texts(values: Sequence[object]) -> bool:
    return all(isinstance(value, str) or missing(value) for value in values)


def worded(text: Text) -> Text:
    """Returns a column whose type is of texts: of labels where its values are few, though all may look like numbers."""
    present = [level for level in text.levels if level.lower() not in MISSING]
    few = len(present) <= min(FEW, len(text.codes) // EACH)
    return replace(text, category=few and not any(map(has_decimal_comma, present)))


def days(cells: Sequence[object]) -> NDArray[np.float64]:
    """Returns a column whose type is of dates as days since 1970, as R has them; NaN where a cell is missing."""
    return np.array([_day(cell) for cell in cells], dtype=np.float64)


def as_days(cells: Cells) -> Cells:
    """Returns a column of texts that are dates (1985-03-01) as days since 1970; any other as it is."""
    if not isinstance(cells, Text):
        return cells
    written = [level for level in cells.levels if level.lower() not in MISSING]
    if not written or not all(level[4:5] == "-" for level in written):
        return cells
    day_of = {level: _date(level) for level in written}
    if None in day_of.values():
        return cells
    return days([day_of.get(level) for level in cells.levels])[cells.codes]


def _date(level: str) -> datetime | None:
    try:
        return datetime.fromisoformat(level)
    except ValueError:
        return None


def _day(cell: object) -> float:
    if not isinstance(cell, date) or missing(cell):
        return math.nan
    if not isinstance(cell, datetime):
        return float((cell - EPOCH.date()).days)
    moment = cell.astimezone(UTC).replace(tzinfo=None) if cell.tzinfo else cell
    return (moment - EPOCH).total_seconds() / 86_400


def truths(cells: Sequence[object]) -> Text:
    """Returns a column whose type is of truth values; a missing one is empty."""
    return replace(as_text([*map(plain, cells)]), truths=True)


def ordered(cells: Sequence[object], order: Sequence[object]) -> Text:
    """Returns a column whose type gives its levels this order; of levels, those that a cell has."""
    text = as_text([*map(plain, cells)])
    place = {canonical(plain(level)): k for k, level in enumerate(order)}
    new = sorted(range(len(text.levels)), key=lambda k: place.get(text.levels[k], -1))  # an empty cell is no level
    back = np.argsort(np.array(new, dtype=np.int64))
    return Text(back[text.codes], tuple(text.levels[k] for k in new), ordered=True, category=True, texts=_are_texts(order))


def labels(cells: Cells, known: Collection[str] = ()) -> Text:
    """Returns a column as labels, each in the one way in which it is compared (`label`), or as one of those that are known.

    Texts stand as they are written, as in R, and so do all cells beside one that is no number: 250.0 is another code than 250.00.
    """
    if not isinstance(cells, Text):
        values, codes = np.unique(np.asarray(cells), return_inverse=True)
        distinct = typed(values.tolist(), values.dtype.itemsize < 8)
        cells = replace(distinct, codes=distinct.codes[codes])
    as_written = cells.texts or _has_words(cells)
    the_same = by_number(known)

    def named(level: str) -> str:
        if level in known:
            return level
        return the_same.get(label(level, cells.decimal)) or label(level, cells.decimal, text=as_written)

    return written(cells, [named(level) for level in cells.levels])


def _has_words(cells: Text) -> bool:
    """Tells whether a cell is neither missing nor a number nor a truth value."""
    others = (level.lower() for level, value in zip(cells.levels, cells.values.tolist()) if math.isnan(value))
    return any(level not in MISSING and level not in TRUTHS for level in others)


def written(cells: Text, levels: Sequence[str]) -> Text:
    """Returns cells whose levels are written so; those that are written alike become one."""
    if tuple(levels) == cells.levels:
        return cells
    place: dict[str, int] = {}
    merged = np.array([place.setdefault(level, len(place)) for level in levels], dtype=np.int64)
    return replace(cells, codes=merged[cells.codes] if len(cells.codes) else cells.codes, levels=tuple(place))
