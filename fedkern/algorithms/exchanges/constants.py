"""Finds clients that have one value in a column, far from what the others have: a code for a value that was never measured.

A file in which every cholesterol is 0 looks harmless alone. Beside the others it says that the patients of one hospital have a
cholesterol of 0, and what is special there becomes an effect of cholesterol. As in `spreads` and `centres` the clients where the
column varies count once each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from . import centres, spreads

Array = NDArray[np.float64]
Sites = NDArray[np.bool_]

FAR = 3.0  # standard deviations of the others
FEWEST = 4.0  # degrees of freedom of the client: fewer rows have one value by chance
WIDER = 0.25  # of the higher of two middle standard deviations, which the scale has at least
MAD = 1.4826  # standard deviation of normal variables over their median absolute deviation
ALIKE = 1e-9  # of a distance, by which rounding moves it


@dataclass(frozen=True)
class Constants:
    """Says which clients have one value of a column, far from the others.

    Attributes
    ----------
    distance : (m,) from the median client's mean, in standard deviations; nan where the column is not constant
    odd : (m,) clients that are far away
    """

    distance: Array
    odd: Sites


def find_constants(means: Array, variances: Array, degrees: Array) -> Constants:
    """Compares the clients (m,) where a column has one value with those where it varies.

    Not odd is a value of two that others have as well (a dose that one client gives to all, and others rarely), nor are clients
    that have each another value: then the column is of places (an altitude, a year).
    """
    constant = (variances <= 0) & (degrees >= FEWEST) & np.isfinite(means)
    varied = (variances > 0) & (degrees >= centres.LEAST)
    nothing = Constants(np.full(len(means), np.nan), np.zeros(len(means), bool))
    if not (constant.any() and varied.any()):
        return nothing
    theirs, own = means[varied], variances[varied]
    middle = float(np.median(theirs))
    between = MAD * float(np.median(np.abs(theirs - middle)))
    away = np.where(constant, means - middle, np.nan)
    # The lower of two middle spreads: the code may stand in a part of the other's cells.
    spread = np.sort(np.sqrt(own))
    within = max(spread[(len(own) - 1) // 2], WIDER * spread[len(own) // 2])
    distance = np.abs(away) / max(within, between)
    odd = np.nan_to_num(distance) > FAR
    if not odd.any():
        return nothing
    value = float(means[odd][0])
    if not np.allclose(away[odd], value - middle, rtol=ALIKE, atol=0) or _one_of_two(value, theirs, own):
        return nothing
    return Constants(distance, odd)


def _one_of_two(value: float, means: Array, variances: Array) -> bool:
    """Tells whether columns with these means and variances have two values, of which this is one.

    With values v and a the variance is (v - m) (m - a), which gives a. It is the same a at all clients; of one client alone it
    has to be 0.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        other = means - variances / (value - means)
    size = np.abs(means).max() + np.sqrt(variances.max())
    return bool(np.abs(other - (other[0] if len(other) > 1 else 0.0)).max() < 1e-6 * size)


WHY = "does it stand for one that is missing (0, -9, 999)?"
REMEDY = (
    "make such cells empty in its file, and say what becomes of the rows (model.missing), or leave the client or the column out"
)


def notes(constants: Constants, what: str, sites: Sequence[str], right: str = "") -> Iterator[str]:
    """Yields one note a client for the reader of the result. `what`: the column; `right`: the way out where it is right."""
    for k in np.flatnonzero(constants.odd).tolist():
        far = f"{constants.distance[k]:.2g} standard deviations from the others' mean"
        yield f"{sites[k]}: {what} has one value there, {far}: {WHY} {REMEDY}; {right}"


def doubt(constants: Constants, what: str, sites: Sequence[str]) -> str:
    """Returns the reason why a result cannot stand, or "" if it can."""
    if not constants.odd.any():
        return ""
    where = spreads.some(sites, constants.odd)
    return f"{what} has one value at {where}, far from what the others have: {WHY} (a note says what to do)"
