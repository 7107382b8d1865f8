"""Tells apart columns whose zeros are measured from those where they stand for a missing value, as far as one party can.

A dose is 0 for those who got none, and about 100 for all others; a cholesterol of 0 was never measured. One file looks like the
other. But a dose is 0 for some at every site, and a code stands where a site did not measure. So each client tells the shares of
zeros in such columns, in whole percents, and the server compares them (`exchanges.column_zeros`).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .isolated import FEW, OF_ROWS, decide

Array = NDArray[np.float64]

DIFFERENT = 3  # values beside 0 that a measured column has: a column of 0 and 1 is of another kind
ONE_SIDE = 0.95  # of the other cells are above zero, or below: a few cells of a wide column may not be
FEWER, MORE = 2, 1  # how many zeros stand apart: so few that they may be slips, or more


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
        there = values[np.isfinite(values)]
        others = there[there != 0]
        n, z = len(there), len(there) - len(others)
        matters = decide(there)
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
