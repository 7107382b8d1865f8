"""Finds sites whose column may be in another unit, by its variance or mean beside the others' (sparse.md, section 7)."""

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
BOTH = 6.0  # times the others' mean and standard deviation, geometric mean: of a column that is far from 0 (section 7)
STUDENT = '; model.errors = "student" gives cells that are far away next to no weight'


@dataclass
class UnitNotes:
    """Holds, at the server, lines for a reader, and reasons why no result of these files can stand."""

    notes: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)


def check_units(model: SparseModel, moments: Sequence[ColumnMoments], values: Array, means: Array | None) -> UnitNotes:
    """Notes sites whose standard deviation of a column is 5 times that of the others, or a fifth, or whose mean is far.

    At 12 times, or a twelfth, the result cannot stand. Of a column that is far from 0 beside its spread, as a pressure is, 6
    times is enough where its mean is so many times the others', too (kPa for mmHg is 7.5): a tail makes no mean so large. For a
    response with Student errors 5 times is enough, since a few far cells do not make its scale. Nor can it stand where a mean is
    as far as in another unit (`centres`). Columns of two values are left out, since their variance is that of a share; so are
    columns of which the job file gives center and scale.

    Parameters
    ----------
    values : (M, w) number of different values of each client's columns
    means : (M, u) of the measured columns, in steps as they are told
    """
    squares, degrees = (np.array([getattr(one, name) for one in moments]) for name in ("squares", "degrees"))
    result, place = UnitNotes(), {int(j): i for i, j in enumerate(model.measured)}
    for j in np.flatnonzero(model.undeclared).tolist():
        name, several = model.scaled[j], values[:, j] >= MORE
        what = model.public(name)
        own = spreads.compare_spreads(squares[:, j], degrees[:, j])
        variances = np.where(degrees[:, j] > 0, squares[:, j], 0.0) / np.maximum(degrees[:, j], 1.0)
        at = column_means.means(means[:, place[j]], variances) if means is not None and j in place else None
        declared = f"[data.columns.{model.owner(name)}]"
        right = f"; where it is right so, give center and scale of it in {declared}, and nothing more is said"
        # A column whose sites fall into two groups counts only if both have sites with more than two values.
        if own.odd[several].any() and not (own.torn and not own.agree[several].any()):
            seen = replace(own, odd=own.odd & several)
            of_response = model.scales_response and j == len(model.scaled) - 1
            remedy = STUDENT if of_response and not model.is_student and not against_student(model.config) else ""
            result.notes += spreads.notes(seen, what, model.names, remedy + right)
            ratio = np.nan_to_num(np.maximum(seen.ratio, 1 / seen.ratio))
            multiplied = np.zeros(len(ratio), bool) if at is None else spreads.multiplied(seen, at, variances, BOTH)
            sure = seen.odd if of_response and model.is_student else seen.odd & ((ratio > UNIT) | multiplied)
            result.doubts += filter(None, [spreads.doubt(seen, sure, what, model.names)])
        if at is not None:
            there = column_means.is_compared(values[:, j], degrees[:, j]) & ~own.odd
            moved = centres.compare_centres(at, variances, degrees[:, j], there)
            result.notes += centres.notes(moved, what, model.names, right)
            result.doubts += filter(None, [centres.doubt(moved, what, model.names)])
    return result
