"""Where a site's column may be in another unit, as its variance says beside the others' (docs/methods/sparse.md, section 7)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy
from numpy.typing import NDArray

from ...algorithms.exchanges.scales import APART, ColumnMoments, common_variance
from ...algorithms.exchanges.values import MORE
from .keys import against_student
from .model import SparseModel

STUDENT = '; model.errors = "student" gives cells that are far away next to no weight'
SURE = 0.999  # quantile of F beyond which a ratio of variances is no chance


def notes(model: SparseModel, moments: Sequence[ColumnMoments], values: NDArray[np.float64]) -> list[str]:
    """For the server: a site's standard deviation of a column that is 5 times, or a fifth of, the median of the sites'.

    Columns of two values are left out: their variance is that of a share.
    """
    squares, degrees = (np.array([getattr(one, name) for one in moments]) for name in ("squares", "degrees"))
    lines = []
    for j, name in enumerate(model.scaled):
        varies = (squares[:, j] > 0) & (degrees[:, j] > 0)
        if varies.sum() < 2:
            continue
        of_response = model.scales_response and j == len(model.scaled) - 1 and not model.is_student
        remedy = STUDENT if of_response and not against_student(model.config) else ""
        middle = common_variance(squares[:, j], degrees[:, j])
        for k in np.flatnonzero(varies & (values[:, j] >= MORE)):
            ratio, own = squares[k, j] / degrees[k, j] / middle, degrees[k, j]
            others = degrees[varies, j].sum() - own
            ends = (own, others, ratio) if ratio > 1 else (others, own, 1 / ratio)
            if ends[2] > APART and ends[2] > scipy.special.fdtri(ends[0], ends[1], SURE):
                lines.append(
                    f"{model.names[k]}: the standard deviation of {name} is {np.sqrt(ratio):.3g} times that of the sites' "
                    "median: is it in another unit there (mg/dl for mmol/l), or is a cell wrong? rows.json of that client names "
                    f"cells that are far away{remedy}"
                )
    return lines
