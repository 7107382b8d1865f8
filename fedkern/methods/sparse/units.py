"""Where a site's column may be in another unit, as its variance says beside the others' (docs/methods/sparse.md, section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...algorithms.exchanges import spreads
from ...algorithms.exchanges.scales import ColumnMoments
from ...algorithms.exchanges.values import MORE
from .keys import against_student
from .model import SparseModel

STUDENT = '; model.errors = "student" gives cells that are far away next to no weight'


def notes(model: SparseModel, moments: Sequence[ColumnMoments], values: NDArray[np.float64]) -> list[str]:
    """For the server: sites whose standard deviation of a column is 5 times, or a fifth of, that of the others.

    Columns of two values are left out: their variance is that of a share.
    """
    squares, degrees = (np.array([getattr(one, name) for one in moments]) for name in ("squares", "degrees"))
    lines = list[str]()
    for j, name in enumerate(model.scaled):
        found = spreads.compared(squares[:, j], degrees[:, j])
        several = values[:, j] >= MORE
        if not found.odd[several].any() or (found.torn and not found.agree[several].any()):
            continue
        of_response = model.scales_response and j == len(model.scaled) - 1 and not model.is_student
        remedy = STUDENT if of_response and not against_student(model.config) else ""
        lines += spreads.notes(replace(found, odd=found.odd & several), name, model.names, remedy)
    return lines
