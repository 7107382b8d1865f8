"""Where a site's column may be in another unit, as its variance says beside the others' (docs/methods/sparse.md, section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ...algorithms.exchanges import spreads
from ...algorithms.exchanges.scales import ColumnMoments
from ...algorithms.exchanges.values import MORE
from .keys import against_student
from .model import SparseModel

UNIT = 12.0  # times the others' standard deviation: few columns have that by chance, whatever their tail (section 7)
STUDENT = '; model.errors = "student" gives cells that are far away next to no weight'


@dataclass
class Said:
    """At the server: lines for a reader, and why no result of these files can stand."""

    notes: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


def said(model: SparseModel, moments: Sequence[ColumnMoments], values: NDArray[np.float64]) -> Said:
    """Sites whose standard deviation of a column is 5 times, or a fifth of, that of the others, are noted.

    At 12 times, or a twelfth, the result cannot stand; of a response with Student errors at 5 times, for a few cells that are far
    do not make its scale. Columns of two values are left out: their variance is that of a share.
    """
    squares, degrees = (np.array([getattr(one, name) for one in moments]) for name in ("squares", "degrees"))
    found = Said()
    for j, name in enumerate(model.scaled):
        own = spreads.compared(squares[:, j], degrees[:, j])
        several = values[:, j] >= MORE
        if not own.odd[several].any() or (own.torn and not own.agree[several].any()):
            continue
        own = replace(own, odd=own.odd & several)
        of_response = model.scales_response and j == len(model.scaled) - 1
        remedy = STUDENT if of_response and not model.is_student and not against_student(model.config) else ""
        found.notes += spreads.notes(own, name, model.names, remedy)
        ratio = np.nan_to_num(np.maximum(own.ratio, 1 / own.ratio))
        sure = own.odd if of_response and model.is_student else own.odd & (ratio > UNIT)
        found.doubts += filter(None, [spreads.doubt(own, sure, name, model.names)])
    return found
