"""Asks the clients of a sparse job, once it has its scales, for the means of their columns.

Means show a unit that a standard deviation does not.

A mean is sent as a whole number of quarters of the client's standard deviation, which its moments have told before: enough to
compare it, and for so many rows (`LEAST` + 1 at least) a sum that is known to some standard deviations only. So it adds no row to
the moments, also where two sums are over rows of which one has a row more (EM beside complete rows, two jobs). Source:
sparse.md, section 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import once, tells
from ..core.messages import Message
from .apart import LEAST
from .values import MORE

Array = NDArray[np.float64]
STEP = 0.25  # standard deviations


@dataclass(frozen=True)
class AskMeans(Message, kind=135):
    """Server to client: where are your columns?"""

    round: int


@dataclass(frozen=True)
class ColumnMeans(Message, kind=136, tells=tells.Sums("means of columns, to a quarter of a standard deviation")):
    """Client to server: means in steps of a quarter of its standard deviation, rounded; 0 for a column that is not compared."""

    round: int
    steps: Annotated[NDArray[np.float64], "u"]


def is_compared(values: Array, degrees: Array) -> NDArray[np.bool_]:
    """Returns which columns are compared: those with three different values or more, and with enough rows."""
    return np.asarray((values >= MORE) & (degrees >= LEAST))


def make_reply(means: Array, degrees: Array, squares: Array, values: Array) -> ColumnMeans:
    """Returns one client's answer from the means (u,) of its columns, its moments and its numbers of different values."""
    there = is_compared(values, degrees) & (squares > 0)
    step = STEP * np.sqrt(np.where(there, squares, 1.0) / np.where(there, degrees, 1.0))
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.rint(np.where(there, means, 0.0) / step)
    return ColumnMeans(0, np.where(np.isfinite(steps), steps, 0.0) + 0.0)  # and no -0


def means(steps: Array, variances: Array) -> Array:
    """Returns the means that were sent, from the variances that were."""
    return np.asarray(steps * STEP * np.sqrt(variances))


def _wrong(reply: ColumnMeans) -> str:
    whole = (reply.steps == np.rint(reply.steps)).all()
    return "" if whole else "its ColumnMeans have steps that are no whole numbers"


NEEDS = "the columns' means are not compared yet; see why it ended, and start the job again"
QUESTION = once.Question("column-means", AskMeans, ColumnMeans, _wrong, needs=NEEDS)
PROTOCOL = QUESTION.protocol
