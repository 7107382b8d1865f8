"""Where a site's column may be in another unit, as its variance or its mean says beside the others' (sparse.md, section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ...algorithms.exchanges import centres, column_means, spreads
from ...algorithms.exchanges.scales import ColumnMoments
from ...algorithms.exchanges.values import MORE
from .keys import against_student
from .model import SparseModel

Array = NDArray[np.float64]

UNIT = 12.0  # times the others' standard deviation: few columns have that by chance, whatever their tail (section 7)
STUDENT = '; model.errors = "student" gives cells that are far away next to no weight'


@dataclass
class Said:
    """At the server: lines for a reader, and why no result of these files can stand."""

    notes: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


def said(model: SparseModel, moments: Sequence[ColumnMoments], values: Array, means: Array | None) -> Said:
    """Sites whose standard deviation of a column is 5 times, or a fifth of, that of the others, or whose mean is far, are noted.

    At 12 times, or a twelfth, the result cannot stand; of a response with Student errors at 5 times, for a few cells that are far
    do not make its scale; nor where a mean is as far as in another unit (`centres`). Columns of two values are left out: their
    variance is that of a share; and those of which the job file gives center and scale.

    Parameters
    ----------
    values : (M, w) how many different ones each client's columns have
    means : (M, u) of the measured columns, in steps as they are told
    """
    squares, degrees = (np.array([getattr(one, name) for one in moments]) for name in ("squares", "degrees"))
    found, place = Said(), {int(j): i for i, j in enumerate(model.measured)}
    for j in np.flatnonzero(model.undeclared).tolist():
        name, several = model.scaled[j], values[:, j] >= MORE
        what = model.public(name)
        own = spreads.compare_spreads(squares[:, j], degrees[:, j])
        declared = f"[data.columns.{model.owner(name)}]"
        right = f"; where it is right so, give center and scale of it in {declared}, and nothing more is said"
        if own.odd[several].any() and not (own.torn and not own.agree[several].any()):
            seen = replace(own, odd=own.odd & several)
            of_response = model.scales_response and j == len(model.scaled) - 1
            remedy = STUDENT if of_response and not model.is_student and not against_student(model.config) else ""
            found.notes += spreads.notes(seen, what, model.names, remedy + right)
            ratio = np.nan_to_num(np.maximum(seen.ratio, 1 / seen.ratio))
            sure = seen.odd if of_response and model.is_student else seen.odd & (ratio > UNIT)
            found.doubts += filter(None, [spreads.doubt(seen, sure, what, model.names)])
        if means is not None and j in place:
            variances = np.where(degrees[:, j] > 0, squares[:, j], 0.0) / np.maximum(degrees[:, j], 1.0)
            at = column_means.means(means[:, place[j]], variances)
            there = column_means.is_compared(values[:, j], degrees[:, j]) & ~own.odd
            moved = centres.compare_centres(at, variances, degrees[:, j], there)
            found.notes += centres.notes(moved, what, model.names, right)
            found.doubts += filter(None, [centres.doubt(moved, what, model.names)])
    return found
