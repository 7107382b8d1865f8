"""Finds counts that are a code for a missing value: 99 events in a file whose others are below 20.

Counts have no spread of their own by which one is far: they vary with their exposure, and some far more than Poisson's.
So a cell is a code if all of these hold:

- it is one of the values that many programs write for a missing one (99, 999), which are ordinary counts elsewhere;
- among the logarithms of counts by their exposure nothing stands between it and the others: of one or two such cells they are
  three times as large as any other, and of more 1.5 times;
- it is more than 5 standard deviations of these logarithms from their median, or 3.5 where there are more than two such cells.

They matter if they move the client's level by a standard error.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .isolated import LEAST, MOST

Array = NDArray[np.float64]

NINES = (99.0, 999.0, 9999.0, 99999.0)
CODES = (*NINES, *(float(f"{one}"[:1] * width + f"{one}"[1:]) for one in (77, 88, 97, 98) for width in (1, 2, 3)))
FEW = 2  # cells: what is asked of more is less, for chance makes no heavy tail have one value several times
TIMES, TIMES_OF_SEVERAL = 3.0, 1.5  # as large as any other, by the exposure
APART, APART_OF_SEVERAL = 4.0, 3.0  # standard deviations of the others' logarithms from their median
LEAST_SD = 0.1


def find_codes(y: Array, offset: Array | None = None) -> NDArray[np.bool_]:
    """Returns (n,) which counts are a code for a missing value, and matter.

    Parameters
    ----------
    y : (n,) counts; NaN where a row has none
    offset : (n,) the logarithm of each row's exposure
    """
    nowhere = np.zeros(len(y), bool)
    there = np.isfinite(y) if offset is None else np.isfinite(y) & np.isfinite(offset)
    usual = there & np.isin(y, CODES)
    if not usual.any():
        return nowhere
    rate = np.log(np.where(there, np.maximum(y, 0.0), 0.0) + 0.5)
    rate = rate if offset is None else rate - np.where(there, offset, 0.0)
    # A code's value may be an ordinary count where exposures are large: only the highest rates are looked at.
    order = np.argsort(np.where(there, -rate, np.inf), kind="stable")
    run = int(np.argmin(np.append(usual[order], False)))
    ends = 1 + np.flatnonzero(rate[order[:run]] - rate[np.append(order, order[:1])[1 : run + 1]] > np.log(TIMES_OF_SEVERAL))
    for n in ends[::-1].tolist():
        found = nowhere.copy()
        found[order[:n]] = True
        if _stands_apart(y, rate, found, there & ~found) and _matters(y, rate, found, there & ~found):
            return found
    return nowhere


def _stands_apart(y: Array, rate: Array, found: NDArray[np.bool_], others: NDArray[np.bool_]) -> bool:
    """Tells whether the cells that are found are so far above all others."""
    n = int(found.sum())
    few = n <= FEW
    if others.sum() < LEAST or n > MOST * (n + others.sum()) or (few and not np.isin(y[found], NINES).all()):
        return False
    lowest, highest = rate[found].min(), rate[others].max()
    centre, *ends = np.quantile(rate[others], (0.5, 0.84, 0.975))
    sd = max(ends[0] - centre, (ends[1] - centre) / 1.96, LEAST_SD)
    gap, apart = (TIMES, APART) if few else (TIMES_OF_SEVERAL, APART_OF_SEVERAL)
    return bool(lowest - highest > np.log(gap) and lowest - centre > apart * sd)


def _matters(y: Array, rate: Array, found: NDArray[np.bool_], others: NDArray[np.bool_]) -> bool:
    """Tells whether these cells have more events above what their exposures say than chance makes in all other rows."""
    level = np.log(y[others].sum() + 0.5) - np.log((y[others] + 0.5) @ np.exp(-rate[others]))
    excess = (y[found] - np.exp(level) * (y[found] + 0.5) * np.exp(-rate[found])).sum()
    return bool(excess > np.sqrt(y[others].sum() + 1))
