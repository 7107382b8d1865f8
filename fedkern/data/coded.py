"""Finds counts, and survival times, that are a code for a missing value: 99 events in a file whose others are below 20.

They have no spread by which one is far: counts vary with their exposure, and some far more than Poisson's. So a cell is a code if
all of these hold:

- it is one of the values that many programs write for a missing one (99, 999), which are ordinary ones elsewhere;
- among the logarithms (of counts by their exposure) nothing stands between it and the others: of one or two such cells they are
  three times as large as any other, and of more 1.5 times;
- it is more than 4 standard deviations of these logarithms above their median, or 3 where there are more than two such cells;
  standard deviations are those of the upper half, for counts of 0 make the lower one wide.

Counts matter if they move the client's level by a standard error, times if they are a twentieth of all others together.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .isolated import LEAST, MOST

Array = NDArray[np.float64]
Cells = NDArray[np.bool_]

NINES = (99.0, 999.0, 9999.0, 99999.0)
CODES = (*NINES, *(float(f"{one}"[:1] * width + f"{one}"[1:]) for one in (77, 88, 97, 98) for width in (1, 2, 3)))
FEW = 2  # cells: what is asked of more is less, for chance makes no heavy tail have one value several times
TIMES, TIMES_OF_SEVERAL = 3.0, 1.5  # as large as any other, by the exposure
APART, APART_OF_SEVERAL = 4.0, 3.0  # standard deviations of the others' logarithms from their median
LEAST_SD = 0.1
PART = 0.05  # of all other times together


def find_codes(y: Array, offset: Array | None = None) -> Cells:
    """Returns (n,) which counts are a code for a missing value, and matter.

    Parameters
    ----------
    y : (n,) counts; NaN where a row has none
    offset : (n,) the logarithm of each row's exposure
    """
    rate = np.log(np.maximum(y, 0.0) + 0.5) if offset is None else np.log(np.maximum(y, 0.0) + 0.5) - offset
    there = np.isfinite(rate)
    for found in _highest(y, rate):
        others = there & ~found
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
    there = np.isfinite(logs)
    usual = there & np.isin(values, CODES)
    if not usual.any():
        return
    # A code's value may be an ordinary one as well (a count where exposures are large): only the highest are looked at.
    order = np.argsort(np.where(there, -logs, np.inf), kind="stable")
    run = int(np.argmin(np.append(usual[order], False)))
    falls = -np.diff(np.append(logs[order], -np.inf))[:run]
    for n in 1 + np.flatnonzero(falls > np.log(TIMES_OF_SEVERAL))[::-1]:
        found = np.zeros(len(values), bool)
        found[order[:n]] = True
        if _stands_apart(values, logs, found, there & ~found):
            yield found


def _stands_apart(values: Array, logs: Array, found: Cells, others: Cells) -> bool:
    """Tells whether the cells that are found are so far above all others."""
    n = int(found.sum())
    few = n <= FEW
    if others.sum() < LEAST or n > MOST * (n + others.sum()) or (few and not np.isin(values[found], NINES).all()):
        return False
    lowest, highest = logs[found].min(), logs[others].max()
    centre, *ends = np.quantile(logs[others], (0.5, 0.84, 0.975))
    sd = max(ends[0] - centre, (ends[1] - centre) / 1.96, LEAST_SD)
    gap, apart = (TIMES, APART) if few else (TIMES_OF_SEVERAL, APART_OF_SEVERAL)
    return bool(lowest - highest > np.log(gap) and lowest - centre > apart * sd)
