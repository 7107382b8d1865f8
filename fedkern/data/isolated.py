"""Finds cells that stand alone: so far from all others of their column that a slip is likelier than a heavy tail.

In skewed measurements (costs, lengths of stay, enzymes) some cells are 20 robust standard deviations from the median, and right.
A lost decimal point is more: nothing lies between it and the others. So few cells are isolated if each of them

- is more than 20 robust standard deviations from the median,
- and four times as far as the next cell that is not among them,
- and, if no cell of the column is negative, more than 5 robust standard deviations away among the logarithms of its cells
  above zero, and 2 farther than the next.

They matter if their squares are large beside the root of the number of rows: with an effect f of the column (in standard
deviations of the response for one of the column), wrong cells at distances D move a slope by about f sum(D^2) / sqrt(n) of its
standard deviations.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FAR = 20.0  # robust standard deviations
FAR_OF_LOGS, BESIDE_LOGS = 5.0, 2.0
BESIDE = 4.0  # times as far from the median as the next cell
FEW, OF_ROWS = 3, 0.01  # isolated cells, at most: so many, or this part of all
MATTERS = 0.1  # standard deviations of a slope, of an effect of 0.1
CODES = (-9999.0, -999.0, -99.0, -9.0, 9.0, 99.0, 888.0, 999.0, 8888.0, 9999.0)  # that may stand for a missing value
SHARE = 0.2  # of a column's cells, at most, that have such a code
GAP = 3.0  # robust standard deviations of the others between it and the nearest of them
LEAST = 10  # other cells
NORMAL = 1.482602218505602  # standard deviation of a normal variable over its median absolute deviation


def decide(values: Array) -> bool:
    """Tells whether few cells of a column are isolated, and matter.

    Parameters
    ----------
    values : (n,) in the column's own unit; NaN where there is no cell
    """
    values = values[np.isfinite(values)]
    most = max(FEW, int(OF_ROWS * len(values)))
    if len(values) < LEAST + most:
        return False
    away = distances(values)
    if not away.max() > FAR:
        return False
    order = np.argsort(-away)
    top = away[order[: most + 1]]
    with np.errstate(over="ignore"):
        ends = np.flatnonzero((top[:-1] > FAR) & (top[:-1] >= BESIDE * top[1:]))
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
    """Returns codes that a few cells of a column have, far from all others."""
    there = values[np.isfinite(values)]
    known = np.isin(there, CODES)
    others = there[~known]
    if len(others) < LEAST or not known.any():
        return []
    sd = robust(others)[1] or float(others.std())
    low, high = others.min() - GAP * sd, others.max() + GAP * sd
    counts = {code: int((there == code).sum()) for code in CODES if not low <= code <= high}
    return [code for code, n in counts.items() if 0 < n <= SHARE * len(there)]


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
