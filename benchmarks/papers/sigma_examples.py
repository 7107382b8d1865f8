"""The simulated data of docs/spec/sigma.md, section 8: a curve on a grid, and a map with a known truth."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedkern.kernels import rng

Array = NDArray[np.float64]
Index = NDArray[np.int64]

N_GRID, N_SEEN, ERROR_SD = 100, 15, 0.2


def process(seed: int = 1) -> tuple[Array, Index, Array]:
    """y = sin(x) + 0.2 e at 15 of 100 equidistant points of [0, 1].

    Returns
    -------
    x : (100,) the grid
    seen : (15,) which points have a row, evenly spread
    y : (15,)
    """
    x = np.linspace(0.0, 1.0, N_GRID)
    seen = np.round(np.linspace(3, N_GRID - 4, N_SEEN)).astype(np.int64)
    e = rng.normal(N_SEEN, key=rng.key(seed, "simulate"))
    return x, seen, np.sin(x[seen]) + ERROR_SD * e
