"""Rounds log-likelihoods and sums of them before they leave a client, and keeps them within bounds that hold for their sums too.

Importance weights need no more digits, and the digits that are left out tell nothing of rows. Source:
docs/concepts/convergence.md, "What weights are worth".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

DIGITS = 3  # after the point: thousandths of a nat
ADDED = 1e70  # of a number in a masked sum over clients (`privacy.masks.ONCE`)
LARGEST = 1e100  # of such a number: the log-likelihood of a draw that cannot be, with the other sign


def rounded(values: ArrayLike) -> NDArray[np.float64]:
    """Returns the numbers as a client sends them. A draw that cannot be is not its fault, and no number is NaN."""
    finite = np.nan_to_num(np.asarray(values, np.float64), nan=-LARGEST, posinf=LARGEST, neginf=-LARGEST)
    return np.asarray(np.round(np.clip(finite, -LARGEST, LARGEST), DIGITS) + 0.0, np.float64)  # and none is -0


def summable(values: ArrayLike) -> NDArray[np.float64]:
    """Returns the numbers as a masked sum over clients takes them: a larger one, of a model that cannot be, counts as `ADDED`."""
    return np.clip(np.asarray(values, np.float64), -ADDED, ADDED)


def thousandths(value: float) -> float:
    """Rounds one number as `rounded` does."""
    return float(rounded(value))


def digits(n: int) -> Callable[[Any], Any]:
    """Returns the rounding of numbers, or of one, to n significant digits."""

    def shorten(values: Any) -> Any:
        each = np.array([float(f"{value:.{n}g}") for value in np.ravel(values)]).reshape(np.shape(values))
        return each if each.ndim else each.item()

    return shorten


def bounded(values: ArrayLike, largest: float = LARGEST) -> bool:
    """Tells whether `rounded` can have returned these."""
    return bool((np.abs(np.asarray(values, np.float64)) <= largest * (1 + 1e-9)).all())
