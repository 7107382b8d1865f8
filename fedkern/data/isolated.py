"""Finds cells that stand alone: so far from all others of their column that a slip is likelier than a heavy tail.

In skewed measurements (costs, lengths of stay, enzymes) some cells are 20 robust standard deviations from the median, and right.
A lost decimal point is more: nothing lies between it and the others. So few cells are isolated if each of them

- is more than 20 robust standard deviations from the median,
- and four times as far as the next cell that is not among them; where that one is more than 1.5 times as far as the farthest
  of as many normal cells the column has a tail, as of costs and enzymes, and by so much the gap has to be wider,
- and, if no cell of the column is negative, more than 5 robust standard deviations away among the logarithms of its cells
  above zero, and 2 farther than the next.

A value in several cells, up to half of all, may be a code for a missing one: cholesterol is 0 in a quarter of a file, and all
other cells are above 99. Such codes are 0, a number below zero where no other is, and sevens, eights or nines alone (777, 99.9);
any other number that many rows share is the tax rate of a town, or a fixed dose. (More cells have an ordinary value, as a loss
that most people never had; a usual code, -9 or 999, may stand in up to 95 %.) It is one of the outermost values, far from the
others' median, with a gap between it and the nearest of them; where all others are above zero, both of their logarithms too.

They matter if their squares are large beside the root of the number of rows: with an effect f of the column (in standard
deviations of the response for one of the column), wrong cells at distances D move a slope by about f sum(D^2) / sqrt(n) of its
standard deviations.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FAR = 20.0  # robust standard deviations
FAR_OF_LOGS, BESIDE_LOGS = 5.0, 2.0
BESIDE = 4.0  # times as far from the median as the next cell
OF_NORMAL = 1.5  # times as far as the farthest of as many normal cells the next one is where a column has no tail
FEW, OF_ROWS = 3, 0.01  # isolated cells, at most: so many, or this part of all
MATTERS = 0.1  # standard deviations of a slope, of an effect of 0.1
CODES = (-9999.0, -999.0, -99.0, -9.0, 9.0, 99.0, 888.0, 999.0, 8888.0, 9999.0)  # that may stand for a missing value
SHARE = 0.2  # of a column's cells, at most, that have such a code
GAP = 3.0  # robust standard deviations of the others between it and the nearest of them
LEAST = 10  # other cells
ENDS = 3  # different codes at one end of a column, at most (-9, -8, -7)
TIMES, OF_ALL = 3, 0.01  # cells with a value that is no usual code, at least: so many, and this part of all
APART, BESIDE_IT = 3.5, 1.5  # standard deviations of the others from their median, and from the nearest of them
NEARER_CODES = 1.0  # the gap of a usual code that stands in several cells
DIGIT = 9.0  # a code that is an ordinary count as well: it has the wide gap
MOST = 0.5  # of all cells: a value in more of them is no code that a client can tell by itself
MOST_OF_A_CODE = 0.95  # the same of a usual code, which is nothing else
TAIL = 0.01  # of the others at each end, which do not make their standard deviation
NORMAL = 1.482602218505602  # standard deviation of a normal variable over its median absolute deviation


def decide(values: Array) -> bool:
    """Tells whether few cells of a column are isolated, or a value in several stands apart from the others, and they matter.

    Parameters
    ----------
    values : (n,) in the column's own unit; NaN where there is no cell
    """
    values = values[np.isfinite(values)]
    return _few_decide(values) or _codes_decide(values)


def _codes_decide(values: Array) -> bool:
    """Tells whether cells with a repeated value that stands apart matter."""
    codes = repeated(values)
    if not codes:
        return False
    known = np.isin(values, codes)
    centre, sd = _middle(values[~known])
    return bool(MATTERS * (((values[known] - centre) / sd) ** 2).sum() > np.sqrt(len(values)))


def _few_decide(values: Array) -> bool:
    """Tells whether few cells stand alone, and matter."""
    most = max(FEW, int(OF_ROWS * len(values)))
    if len(values) < LEAST + most:
        return False
    away = distances(values)
    if not away.max() > FAR:
        return False
    order = np.argsort(-away)
    top = away[order[: most + 1]]
    reach = OF_NORMAL * np.sqrt(2 * np.log(len(values)))
    needed = BESIDE * top[1:] * np.maximum(1.0, top[1:] / reach)
    with np.errstate(over="ignore"):
        ends = np.flatnonzero((top[:-1] > FAR) & (top[:-1] >= needed))
    codes = np.isin(values[order], coded(values)) & (away[order] > FAR)  # one slip, of many rows
    n = int(ends[-1]) + 1 if len(ends) else int(codes.sum()) if codes[: codes.sum()].all() else 0
    if n == 0 or not _far_of_logs(values[order], n):
        return False
    with np.errstate(over="ignore"):
        return bool(MATTERS * (away[order[:n]] ** 2).sum() > np.sqrt(len(values)))


def _far_of_logs(values: Array, n: int) -> bool:
    """Tells whether the first n are far among the logarithms as well; true if a column has no logarithms."""
    if (values < 0).any():
        return True
    with np.errstate(divide="ignore"):
        logs = np.log(values)
    centre, sd = robust(logs[np.isfinite(logs)])
    if not sd > 0:
        return True
    away = np.abs(logs - centre) / sd  # a zero is farther than all others
    nearest, beside = away[:n].min(), away[n] if np.isfinite(away[n]) else 0.0
    return bool(nearest > FAR_OF_LOGS and nearest - beside >= BESIDE_LOGS)


def distances(values: Array) -> Array:
    """Returns robust standard deviations (n,) from the median; 0 if the column has none, and for a cell that is no number."""
    centre, sd = robust(values[np.isfinite(values)])
    if not sd > 0:
        return np.zeros(len(values))
    with np.errstate(invalid="ignore", over="ignore"):
        return np.nan_to_num(np.abs(values - centre) / sd, nan=0.0)


def coded(values: Array) -> list[float]:
    """Returns usual codes that a few cells of a column have far from all others, and values in several cells that stand apart."""
    return sorted({*_usual(values), *repeated(values)})


def _usual(values: Array) -> list[float]:
    """Returns usual codes that a few cells of a column have, far from all others."""
    there = values[np.isfinite(values)]
    known = np.isin(there, CODES)
    others = there[~known]
    if len(others) < LEAST or not known.any():
        return []
    sd = robust(others)[1] or float(others.std())
    low, high = others.min() - GAP * sd, others.max() + GAP * sd
    counts = {code: int((there == code).sum()) for code in CODES if not low <= code <= high}
    return [code for code, n in counts.items() if 0 < n <= SHARE * len(there)]


def repeated(values: Array) -> list[float]:
    """Returns values in several cells of a measured column, at its ends, that stand apart from all others."""
    there = values[np.isfinite(values)]
    if len(there) < LEAST + TIMES or not _ends_repeat(there):
        return []
    different, counts = np.unique(there, return_counts=True)
    many = max(TIMES, int(np.ceil(OF_ALL * len(there))))
    least = np.where(np.isin(different, CODES), TIMES - 1, many)
    # A code above zero that many cells have needs no gap among logarithms. 9 is an ordinary count, and so is -9 where others are
    # below zero.
    odd = (counts >= many) & np.isin(different, CODES)
    odd &= (different != DIGIT) & ((different != -DIGIT) | (different[min(ENDS, len(different) - 1)] >= 0))
    if len(different) < LEAST + 1:
        return []
    found = _at_low_end(different, counts, least, odd)
    found += [-value for value in _at_low_end(-different[::-1], counts[::-1], least[::-1], odd[::-1])]
    return sorted(value for value in found if _may_be_code(value, different))


def _may_be_code(value: float, different: Array) -> bool:
    """Tells whether people write this number for a missing one, among others of a column (sorted, with their codes)."""
    if value == 0 or (value < 0 <= different[min(ENDS, len(different) - 1)]):
        return True
    digits = set(f"{abs(value):.10g}".replace(".", ""))
    return len(digits) == 1 and digits <= set("789")


def _ends_repeat(there: Array) -> bool:
    """Tells whether one of the outermost values stands in several cells: of most columns none does, and they need no sorting."""
    few = min(len(there) - 1, ENDS + 1)
    part = np.partition(there, (few, len(there) - 1 - few))
    return any(len(np.unique(end)) <= few for end in (part[: few + 1], part[-few - 1 :]))


def _at_low_end(different: Array, counts: NDArray[np.int64], least: NDArray[np.int64], odd: NDArray[np.bool_]) -> list[float]:
    """Returns the repeated values that stand apart below all others, of the sorted different values of a column.

    `odd`: those that are usual codes, and nothing else.
    """
    most = min(ENDS, len(different) - LEAST)
    for k in range(most, 0, -1):
        enough = (counts[:k] >= least[:k]) & (counts[:k] <= np.where(odd[:k], MOST_OF_A_CODE, MOST) * counts.sum())
        rest, n = different[k:], counts[k:]
        if enough.any() and n.sum() >= 2 * LEAST and _is_apart(different[k - 1], rest, n, bool(odd[k - 1])):
            return [float(value) for value in different[:k][enough]]
    return []


def _is_apart(value: float, rest: Array, n: NDArray[np.int64], odd: bool) -> bool:
    """Tells whether a value below all others is far from them, with a gap; `rest`: sorted, each `n` times."""
    gap = NEARER_CODES if odd else GAP if abs(value) == DIGIT else BESIDE_IT
    for scaled in [np.concatenate([[value], rest])] if odd else _scales(value, rest):
        others = np.repeat(scaled[1:], n)
        centre, sd = _middle(others)
        if not (sd > 0 and centre - scaled[0] > APART * sd and scaled[1] - scaled[0] > gap * sd):
            return False
    return True


def _scales(value: float, rest: Array) -> Iterator[Array]:
    """Yields a value and the others, and their logarithms where all are above zero: the order may be turned round."""
    both = np.concatenate([[value], rest])
    yield both
    if (both > 0).all():
        yield np.log(both)
    elif (both < 0).all():  # above zero, turned round
        yield -np.log(-both)


def _middle(values: Array) -> tuple[float, float]:
    """Returns the median, and a standard deviation that a peak of the column makes no smaller and its ends no larger."""
    sd = robust(values)[1]
    return float(np.median(values)), max(sd, float(np.clip(values, *np.quantile(values, (TAIL, 1 - TAIL))).std()))


def robust(values: Array) -> tuple[float, float]:
    """Returns the median, and a standard deviation that a few values cannot move; 0 if no more than two values are different."""
    if not len(values):
        return 0.0, 0.0
    centre = float(np.median(values))
    sd = NORMAL * float(np.median(np.abs(values - centre)))
    if sd > 0 and len(np.unique(values[:100])) > 2:  # as of most columns, which then need not be sorted
        return centre, sd
    different, count = np.unique(values, return_counts=True)
    if len(different) <= 2:
        return 0.0, 0.0
    if sd > 0:
        return centre, sd
    others = values[values != different[np.argmax(count)]]
    sd = NORMAL * float(np.median(np.abs(others - np.median(others))))
    return centre, sd if sd > 0 else float(others.std())
