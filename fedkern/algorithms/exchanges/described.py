"""Declares what clients tell of their rows in a job that describes columns: values, moments, what they cannot tell, and counts.

The first two questions lead to the ends of bins, which the server tells with the third, in which each client says which cells it
tells together (`disclosure.cells`). All clients tell the same parts with the last, so that neither what all have less a client's
nor a group's complement is another number. A private job has the last alone, with noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import tells
from ..core.exchange import MOST_ROWS, Added, Answer, Ask, Conditions, small

Array = NDArray[np.float64]
NEEDED = "its counts had not come; start the job again"
LARGEST = 1e30  # of a sum of squares


@dataclass(frozen=True)
class FewValues(
    Answer,
    kind=331,
    tells=tells.Fact("values of columns of numbers that have few, each in many rows"),
    name="few-values",
    ask=("AskFewValues", 330),
    needs=NEEDED,
):
    """Client to server: of each column of numbers how many different values it has, and these; of n values beside others in few
    rows -1 - n. Of many values, whose mean may be told, there is one more than can stand here. Where all rows are in one process
    a column of many values has quantiles here.
    """

    n: Annotated[Array, "columns"]
    values: Annotated[Array, "columns values"]

    def honest(self) -> Conditions:
        counts = (np.where(self.n < 0, -1 - self.n, self.n - 1) <= self.values.shape[1]) & (self.n % 1 == 0)
        yield counts.all() and small(self.values), "has values that cannot be"


@dataclass(frozen=True)
class AskSpread(Ask, kind=332):
    """Server to client: what mean and sd have these columns (1), and not the others (0)?"""

    told: Annotated[Array, "columns"]


@dataclass(frozen=True)
class Spread(
    Added,
    kind=333,
    tells=tells.Sums("mean and sd of columns, rounded by their errors"),
    name="spread",
    ask=AskSpread,
    masked=("masked_spread", 334),
    dims={"three": 3},
    least=0,
    needs=NEEDED,
):
    """Client to server: of each column of many numbers its rows, times the mean, and times the mean square; 0 of others."""

    sums: Annotated[Array, "columns three"]

    def honest(self) -> Conditions:
        yield small(self.sums, largest=LARGEST) and bool((self.sums[:, 0] >= 0).all()), "has sums that cannot be"


@dataclass(frozen=True)
class AskParts(Ask, kind=335):
    """Server to client: which cells would you tell by themselves? Of columns of numbers these are the inner ends of bins."""

    ends: Annotated[Array, "columns ends"]


@dataclass(frozen=True)
class OwnParts(
    Answer,
    kind=336,
    tells=tells.Fact("which cells it tells with others, for few rows are in them", "that it has few rows in such cells"),
    name="parts",
    ask=AskParts,
    needs=NEEDED,
):
    """Client to server: of each cell the first cell of its part; -1 where it tells nothing of a table. Last, of each sum,
    0 where it tells it, else -1.
    """

    first: Annotated[Array, "parts"]

    def honest(self) -> Conditions:
        yield bool(((self.first >= -1) & (self.first % 1 == 0)).all()) and small(self.first), "has parts that cannot be"


@dataclass(frozen=True)
class AskCells(Ask, kind=337):
    """Server to client: how many rows are in each part? `centre`: about which sums of columns are taken."""

    told: Annotated[Array, "parts"]
    centre: Annotated[Array, "columns"]


@dataclass(frozen=True)
class Cells(
    Added,
    kind=338,
    tells=tells.Sums(
        "numbers of rows in cells of many rows; means, sds and correlations, rounded by their errors", private=tells.NOISED
    ),
    name="cells",
    ask=AskCells,
    masked=("masked_cells", 339),
    dims={"three": 3, "six": 6},
    least=0,
    needs=NEEDED,
):
    """Client to server: its rows in each part, at the part's first cell, which all clients tell alike.

    `each`: of each column in the rows of each group, and last in all rows, these, sum and sum of squares; `pairs`: of two columns
    rows, two sums, two sums of squares, sum of products. All are about the centre; of what may not be told they are 0.
    """

    counts: Annotated[Array, "cells"]
    each: Annotated[Array, "columns groups three"]
    pairs: Annotated[Array, "pairs six"]

    def honest(self) -> Conditions:
        whole = bool((self.counts % 1 == 0).all()) and small(self.counts, largest=MOST_ROWS)
        yield whole and small(self.each, self.pairs, largest=LARGEST), "has numbers that cannot be"
        rows = bool((self.each[..., 0] >= 0).all() and (self.pairs[:, 0] >= 0).all())  # counts may have noise
        yield rows, "has fewer rows than none"


MAY_SEND = (*FewValues.may_send, *Spread.may_send, *OwnParts.may_send, *Cells.may_send)
