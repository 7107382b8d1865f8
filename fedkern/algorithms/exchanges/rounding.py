"""Log-likelihoods and sums of them, as they leave a client: rounded, and within bounds that sums of them keep.

Importance weights need no more digits, and what is left out tells nothing of rows. Source: docs/concepts/convergence.md, "What
weights are worth".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

DIGITS = 3  # after the point: thousandths of a nat
LARGEST = 1e100  # of such a number: the log-likelihood of a draw that cannot be, with the other sign


def rounded(values: ArrayLike) -> NDArray[np.float64]:
    """What a client sends of these; a draw that cannot be is not its fault, and no number is NaN."""
    finite = np.nan_to_num(np.asarray(values, np.float64), nan=-LARGEST, posinf=LARGEST, neginf=-LARGEST)
    out: NDArray[np.float64] = np.round(np.clip(finite, -LARGEST, LARGEST), DIGITS)
    return out + 0.0  # and none is -0


def bounded(values: ArrayLike, largest: float = LARGEST) -> bool:
    """Whether these can have come of it."""
    return bool((np.abs(np.asarray(values, np.float64)) <= largest * (1 + 1e-9)).all())
