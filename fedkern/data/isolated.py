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

Zeros may be measured: a dose is 0 for those who got none, and about 100 for all others; a cholesterol of 0 never was. One file
looks like the other. But a dose is 0 for some at every site, and a code stands where a site did not measure. So each client tells
the shares of zeros in such columns, in whole percents, and the server compares them (`exchanges.column_notes`).

Counts and survival times have no spread by which one is far: counts vary with their exposure, and some far more than Poisson's.
Of them a cell is a code if all of these hold:

- it is one of the values that many programs write for a missing one (99, 999), which are ordinary ones elsewhere;
- among the logarithms (of counts by their exposure) nothing stands between it and the others: of one or two such cells they are
  three times as large as any other, and of more 1.5 times;
- it is more than 4 standard deviations of these logarithms above their median, or 3 where there are more than two such cells;
  standard deviations are those of the upper half, for counts of 0 make the lower one wide.

Counts matter if they move the client's level by a standard error, times if they are a twentieth of all others together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from .standardised import MANY, SAMPLE, middle, sample, smallest

Cells = NDArray[np.bool_]

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

# Of zeros
DIFFERENT = 3  # values beside 0 that a measured column has: a column of 0 and 1 is of another kind
ONE_SIDE = 0.95  # of the other cells are above zero, or below: a few cells of a wide column may not be
FEWER, MORE = 2, 1  # how many zeros stand apart: so few that they may be slips, or more
# Of counts and times
NINES = (99.0, 999.0, 9999.0, 99999.0)
CODES_OF_COUNTS = (*NINES, *(float(f"{one}"[:1] * width + f"{one}"[1:]) for one in (77, 88, 97, 98) for width in (1, 2, 3)))
FEW_COUNTS = 2  # cells: what is asked of more is less, for chance makes no heavy tail have one value several times
FOLD, FOLD_OF_SEVERAL = 3.0, 1.5  # as large as any other, by the exposure
APART_OF_FEW, APART_OF_SEVERAL = 4.0, 3.0  # standard deviations of the others' logarithms from their median
LEAST_SD = 0.1
PART = 0.05  # of all other times together


def decide(values: Array) -> bool:
    """Tells whether few cells of a column are isolated, or a value in several stands apart from the others, and they matter.
    `values`: (n,) in the column's own unit; NaN where there is no cell."""
    values = finite(values)
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
    if not has_far(values):
        return False
    away = distances(values)
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


def has_far(values: Array) -> bool:
    """Tells whether the largest of the `distances` is beyond `FAR`; most columns show that it is not before these are made."""
    present = finite(values)
    if not len(present):
        return False
    with np.errstate(over="ignore"):
        low, high, half = present.min(), present.max(), len(present) / 2
        if len(present) > MANY:
            # The median is between two numbers of a sample. With fewer than half of the cells so near to these two the median
            # absolute deviation is larger, and no cell of the column is far.
            left, right = sample(present)[[SAMPLE * 9 // 20, SAMPLE * 11 // 20]]
            near = (high - low) / (FAR * NORMAL)
            about = np.count_nonzero((present > left - near) & (present < right + near))
            if about < half and np.count_nonzero(present < left) < half < np.count_nonzero(present <= right):
                return False
        centre, sd = robust(present)
        return bool(sd > 0 and max(high - centre, centre - low) / sd > FAR)


def finite(values: Array) -> Array:
    """Returns the numbers of a column, the same array where all are."""
    return values if np.isfinite(values.sum()) else values[np.isfinite(values)]


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
    present = finite(values)
    if not len(present) or not {float(present.min()), float(present.max())} & {
        *CODES
    }:  # as far as it stands a code is the outermost
        return []
    known = np.isin(present, CODES)
    others = present[~known]
    if len(others) < LEAST or not known.any():
        return []
    sd = robust(others)[1] or float(others.std())
    low, high = others.min() - GAP * sd, others.max() + GAP * sd
    counts = {code: int((present == code).sum()) for code in CODES if not low <= code <= high}
    return [code for code, n in counts.items() if 0 < n <= SHARE * len(present)]


def repeated(values: Array) -> list[float]:
    """Returns values in several cells of a measured column, at its ends, that stand apart from all others."""
    known = finite(values)
    if len(known) < LEAST + TIMES or not _ends_repeat(known):
        return []
    different, counts = np.unique(known, return_counts=True)
    many = max(TIMES, int(np.ceil(OF_ALL * len(known))))
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


def _ends_repeat(known: Array) -> bool:
    """Tells whether one of the outermost values stands in several cells: of most columns none does, and they need no sorting."""
    few = min(len(known) - 1, ENDS + 1)
    return any(len(np.unique(smallest(numbers, few + 1))) <= few for numbers in (known, -known))


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
    apart = 0.0 if odd and value < 0 <= rest[0] else APART  # a usual code below zero, where no other is, is nothing else
    for scaled in [np.concatenate([[value], rest])] if odd else _scales(value, rest):
        others = np.repeat(scaled[1:], n)
        centre, sd = _middle(others)
        if not (sd > 0 and centre - scaled[0] > apart * sd and scaled[1] - scaled[0] > gap * sd):
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
    centre = middle(values)
    away = values - centre
    sd = NORMAL * middle(np.abs(away, out=away))
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


# Zeros --------------------


def judge(columns: Mapping[str, Array]) -> tuple[list[str], dict[str, tuple[int, int]]]:
    """Returns columns in which cells decide that are no zeros, or few of them; and name -> share of zeros.

    Parameters
    ----------
    columns : name -> values in the column's own unit; NaN where there is no cell

    Returns
    -------
    names; name -> percent, rounded down but 1 at least, and whether the zeros stand apart and matter (0, `MORE` or `FEWER`).
    Their share is then (sqrt(z) - 1)^2 / n of z zeros in n cells: less than the true one nearly always.
    """
    far, shares = list[str](), dict[str, tuple[int, int]]()
    for name, values in columns.items():
        known = finite(values)
        n, z = len(known), len(known) - np.count_nonzero(known)
        others = known[known != 0] if z else known
        matters = decide(known)
        if matters and (not z or decide(others)):
            far.append(name)
        elif z and max((others > 0).sum(), (others < 0).sum()) >= ONE_SIDE * len(others):
            if len(others) and len(np.unique(others)) < DIFFERENT:
                continue
            apart = 0 if not matters else FEWER if z <= max(FEW, int(OF_ROWS * n)) else MORE
            shares[name] = max(1, int(100 * (np.sqrt(z) - 1) ** 2 / n if matters else 100 * z / n)), apart
        elif matters:
            far.append(name)
    return far, shares


# Counts and times --------------------


def find_codes(y: Array, offset: Array | None = None) -> Cells:
    """Returns (n,) which counts are a code for a missing value, and matter.

    Parameters
    ----------
    y : (n,) counts; NaN where a row has none
    offset : (n,) the logarithm of each row's exposure
    """
    rate = np.log(np.maximum(y, 0.0) + 0.5) if offset is None else np.log(np.maximum(y, 0.0) + 0.5) - offset
    known = np.isfinite(rate)
    for found in _highest(y, rate):
        others = known & ~found
        level = y[others].sum() / ((y[others] + 0.5) @ np.exp(-rate[others]))
        excess = (y[found] - level * (y[found] + 0.5) * np.exp(-rate[found])).sum()
        if excess > np.sqrt(y[others].sum() + 1):
            return found
    return np.zeros(len(y), bool)


def find_codes_of_times(time: Array) -> Cells:
    """Returns (n,) which times are a code for a missing value, and matter; `time`: (n,), NaN where a row has none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(time > 0, np.log(time), np.nan)
    for found in _highest(time, logs):
        if time[found].sum() > PART * time[np.isfinite(logs) & ~found].sum():
            return found
    return np.zeros(len(time), bool)


def _highest(values: Array, logs: Array) -> Iterator[Cells]:
    """Yields cells that are codes and stand far above all others by their logarithms, the most first."""
    known = np.isfinite(logs)
    usual = known & np.isin(values, CODES_OF_COUNTS)
    if not usual.any():
        return
    # A code's value may be an ordinary one as well (a count where exposures are large): only the highest are looked at.
    order = np.argsort(np.where(known, -logs, np.inf), kind="stable")
    run = int(np.argmin(np.append(usual[order], False)))
    falls = -np.diff(np.append(logs[order], -np.inf))[:run]
    for n in 1 + np.flatnonzero(falls > np.log(FOLD_OF_SEVERAL))[::-1]:
        found = np.zeros(len(values), bool)
        found[order[:n]] = True
        if _stands_apart(values, logs, found, known & ~found):
            yield found


def _stands_apart(values: Array, logs: Array, found: Cells, others: Cells) -> bool:
    """Tells whether the cells that are found are so far above all others."""
    n = int(found.sum())
    few = n <= FEW_COUNTS
    if others.sum() < LEAST or n > MOST * (n + others.sum()) or (few and not np.isin(values[found], NINES).all()):
        return False
    lowest, highest = logs[found].min(), logs[others].max()
    centre, *ends = np.quantile(logs[others], (0.5, 0.84, 0.975))
    sd = max(ends[0] - centre, (ends[1] - centre) / 1.96, LEAST_SD)
    gap, apart = (FOLD, APART_OF_FEW) if few else (FOLD_OF_SEVERAL, APART_OF_SEVERAL)
    return bool(lowest - highest > np.log(gap) and lowest - centre > apart * sd)
