"""Checks, after the last round of structural equations, whether the errors are Laplace, as the model says.

The law of the errors alone tells which way an effect goes, so a client sends, of each equation, the mean size of its residuals
over their root mean square: 1/sqrt(2) for Laplace errors, sqrt(2/pi) for normal ones, sqrt(3)/2 for uniform ones. Source:
sparse.md, section 9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import tells
from ..core.exchange import Added, Conditions

Array = NDArray[np.float64]

LAPLACE = float(np.sqrt(0.5))
SPREAD = float(np.sqrt(0.125))  # of the ratio of n Laplace errors, times sqrt(n), by the delta method
SURE, APART = 4.0, 0.03  # standard errors, and the least difference, from which errors are said to have another law


@dataclass(frozen=True)
class ErrorShape(
    Added,
    kind=134,
    tells=tells.Sums("of each equation a ratio of moments of its residuals, and its number of rows"),
    name="error-shape",  # the draws are made: the note lacks who is lost
    ask=("AskShape", 133),
    masked=("masked_error_shape", 269),
    least=0,
    means={"ratio": LAPLACE},
):
    """Client to server: mean size over root mean square of each equation's residuals, at its posterior means."""

    rows: int
    ratio: Annotated[Array, "w"]

    def honest(self) -> Conditions:
        yield self.rows >= 0, "has a number of rows below 0"
        possible = ((self.ratio >= 0) & (self.ratio <= 1 + 1e-12)).all()
        yield possible, "has a ratio that is not from 0 to 1, as a mean size over a root mean square is"


def ratio(residuals: Array) -> Array:
    """Returns the ratio (...) of residuals (..., n); that of Laplace errors where all residuals are zero."""
    square = np.mean(residuals**2, axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(square > 0, np.mean(np.abs(residuals), axis=-1) / np.sqrt(square), LAPLACE)


def departures(replies: Sequence[ErrorShape]) -> list[tuple[int, float]]:
    """Returns the equations whose errors, over all clients, are surely not Laplace, each with its ratio."""
    rows = np.array([reply.rows for reply in replies], float)
    if not rows.sum() > 0:
        return []
    mean = np.average([reply.ratio for reply in replies], axis=0, weights=rows)
    away = np.abs(mean - LAPLACE)
    which = np.flatnonzero((away > APART) & (away * np.sqrt(rows.sum()) > SURE * SPREAD))
    return [(int(j), float(mean[j])) for j in which]
