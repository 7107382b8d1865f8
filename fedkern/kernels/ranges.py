"""Tells whether the numbers of an array are in their range, in one pass and without another array."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedkern import _core


def finite(a: NDArray[np.float64]) -> bool:
    """Tells whether all numbers are finite.

    Parameters
    ----------
    a : float64 array of any shape
        In C order.

    Raises
    ------
    TypeError
        Another type or order.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import ranges
    >>> ranges.finite(np.array([1.0, 2.0])), ranges.finite(np.array([1.0, np.nan]))
    (True, False)
    """
    return _core.ranges.finite(a)


def within(a: NDArray[np.float64], least: float, most: float) -> bool:
    """Tells whether every number is at least `least` and at most `most`; a NaN is not.

    Parameters
    ----------
    a : float64 array of any shape
        In C order.
    least, most : float
        The ends, which are allowed.

    Raises
    ------
    TypeError
        Another type or order.

    Examples
    --------
    >>> import numpy as np
    >>> from fedkern.kernels import ranges
    >>> ranges.within(np.array([0.0, 0.5, 1.0]), 0.0, 1.0)
    True
    """
    return _core.ranges.within(a, least, most)
