"""Checks, after the last round of structural equations, whether the errors are Laplace, as the model says.

The law of the errors alone tells which way an effect goes, so a client sends, of each equation, the mean size of its residuals
over their root mean square: 1/sqrt(2) for Laplace errors, sqrt(2/pi) for normal ones, sqrt(3)/2 for uniform ones. Source:
sparse.md, section 9.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ...privacy.masks import ONCE
from ..core import once, tells
from ..core.masked import Masked, Sum
from ..core.messages import Message

Array = NDArray[np.float64]

SHAPE = "of each equation a ratio of moments of its residuals, and its number of rows"
LAPLACE = float(np.sqrt(0.5))
SPREAD = float(np.sqrt(0.125))  # of the ratio of n Laplace errors, times sqrt(n), by the delta method
SURE, APART = 4.0, 0.03  # standard errors, and the least difference, from which errors are said to have another law


@dataclass(frozen=True)
class AskShape(Message, kind=133):
    """Server to client: how are your residuals distributed?"""

    round: int


@dataclass(frozen=True)
class ErrorShape(Message, kind=134, tells=tells.Sums(SHAPE)):
    """Client to server: mean size over root mean square of each equation's residuals, at its posterior means."""

    round: int
    rows: int
    ratio: Annotated[NDArray[np.float64], "w"]

    @classmethod
    def count(cls, dims: Mapping[str, int]) -> int:
        """Returns how many numbers are added."""
        return 1 + dims["w"]

    def numbers(self) -> Array:
        """Returns the number of rows, and each ratio times it."""
        return np.array([self.rows, *self.rows * self.ratio], np.float64)

    @classmethod
    def of_sum(cls, round: int, numbers: Array, dims: Mapping[str, int]) -> ErrorShape:
        """Returns the rows of all clients together, and the mean ratio of these."""
        rows = int(numbers[0])
        return cls(round, rows, numbers[1:] / rows if rows > 0 else np.full(dims["w"], LAPLACE))


@dataclass(frozen=True)
class MaskedErrorShape(Masked, Message, kind=269, tells=tells.Sums(SHAPE).masked):
    """Client to server: `ErrorShape`, masked."""

    words: Annotated[bytes, "masked_error_shape"]


SUMS = (Sum(ErrorShape, MaskedErrorShape, ONCE),)


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


def _wrong(reply: ErrorShape) -> str:
    if reply.rows < 0:
        return "its ErrorShape has a number of rows below 0"
    possible = ((reply.ratio >= 0) & (reply.ratio <= 1 + 1e-12)).all()
    return "" if possible else "its ErrorShape has a ratio that is not from 0 to 1, as a mean size over a root mean square is"


QUESTION = once.Question("error-shape", AskShape, ErrorShape, _wrong)  # the draws are made: the note lacks who is lost
PROTOCOL = QUESTION.protocol
