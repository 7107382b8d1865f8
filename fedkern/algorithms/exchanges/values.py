"""Asks, before a sparse job's scales, how many different values each column has at each client. Source: sparse.md, section 7.

A client says, of each column, whether it has no value, one, two, or more; it sends no value and no count beyond two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import once, tells
from ..core.messages import Message
from .scales import column_moments

Array = NDArray[np.float64]
MORE = 3  # what stands for more than two


@dataclass(frozen=True)
class AskValues(Message, kind=130):
    """Server to client: how many different values have your columns?"""

    round: int


@dataclass(frozen=True)
class ColumnValues(Message, kind=131, tells=tells.Fact("whether each column has no value, one, two or more different ones")):
    """Client to server: 0, 1, 2, or 3 for more, of each column."""

    round: int
    values: Annotated[NDArray[np.float64], "w"]


def count_values(values: Array) -> Array:
    """Returns 0, 1, 2 or `MORE` different values (w,) for each column of (n, w).

    NaN is no value, and rounding of a constant column is one.
    """
    out = np.zeros(values.shape[1])
    _, squares = column_moments(values)
    for j, column in enumerate(values.T):
        there = column[~np.isnan(column)]
        if not squares[j] > 0:
            out[j] = min(len(there), 1)
        else:  # most columns show it in their first rows, and need not be sorted
            out[j] = MORE if len(np.unique(there[:100])) >= MORE else min(len(np.unique(there)), MORE)
    return out


def _wrong(reply: ColumnValues) -> str:
    possible = np.isin(reply.values, np.arange(MORE + 1.0)).all()
    return "" if possible else "its ColumnValues have a number that is not 0, 1, 2 or 3"


NEEDS = "the columns' values are not counted yet; start again when it is back"
QUESTION = once.Question("values", AskValues, ColumnValues, _wrong, needs=NEEDS)
PROTOCOL = QUESTION.protocol
