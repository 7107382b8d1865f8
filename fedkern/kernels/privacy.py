"""Clipping and noise for differentially private sums."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ._registry import F64, Array, Kernel

CLIP_SUM = Kernel(
    "privacy.clip_sum",
    purpose="Sum of rows, each scaled to a Euclidean norm of at most `bound`.",
    source="dp-pvi.md, section 4, steps 2-3",
    inputs=(Array("rows", ("n", "p")),),
    outputs=(Array("out", ("p",), F64),),
)


def clip_sum(
    rows: NDArray[np.float64] | NDArray[np.float32],
    bound: float,
    *,
    out: NDArray[np.float64] | None = None,
    n_threads: int = 1,
    backend: str | None = None,
) -> NDArray[np.float64]:
    """Sum of rows, each scaled to a Euclidean norm of at most `bound`.

    Parameters
    ----------
    rows : (n, p) array, float32 or float64
        One vector for each example. A row with a number that is not finite counts as nothing.
    bound : float
        The clipping norm, > 0, in the units of `rows`.
    out : (p,) float64 array, optional
        Filled and returned; never converted.

    Returns
    -------
    (p,) float64 array
        sum_i min(1, bound / ||rows_i||) rows_i: replacing one row moves it by at most 2 bound, adding one by at most bound.

    Raises
    ------
    TypeError, ValueError
        Wrong type or shape, `bound` not positive, `out` read-only or overlapping `rows`.

    Source: Abadi et al. (2016), Algorithm 1.
    """
    if not bound > 0:
        raise ValueError(f"privacy.clip_sum: bound must be > 0, got {bound}")
    rows, total = CLIP_SUM.prepare({"rows": rows}, out)
    CLIP_SUM.implementation(backend, (rows, total))(rows, float(bound), total, n_threads)
    return total
