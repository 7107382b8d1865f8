"""Declares what clients tell of their rows in a job that describes columns: values, which cells they join, counts, and sums.

The first question leads to the ends of bins, which the server tells with the second, in which each client says which cells it
tells together (`disclosure.cells`). All clients tell the same parts with the third, so that neither what all have less a client's
nor a group's complement is another number. Sums of numbers are masked: no client's own ever leave it. A private job has counts
alone, with noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ...arrays import Array
from ..core import tells
from ..core.exchange import MOST_ROWS, Added, Answer, Ask, Conditions, small

NEEDED = "its counts had not come; start the job again"
LARGEST = 1e30  # of a sum of squares


@dataclass(frozen=True)
class FewValues(
    Answer,
    kind=331,
    tells=tells.Fact("values of columns of numbers that have few, each in many rows; of others mean and sd to about one sd"),
    name="few-values",
    ask=("AskFewValues", 330),
    dims={"three": 3},
    needs=NEEDED,
):
    """Client to server: of each column of numbers how many different values it has, and these; of n values beside others in few
    rows -1 - n. Of many values there is one more than can stand here, and `scale` is 1 (-1 where some are below 0), with mean and
    sd to about one sd. Where all rows are in one process a column of many values has quantiles here.
    """

    n: Annotated[Array, "columns"]
    values: Annotated[Array, "columns values"]
    scale: Annotated[Array, "columns three"]

    def honest(self) -> Conditions:
        counts = (np.where(self.n < 0, -1 - self.n, self.n - 1) <= self.values.shape[1]) & (self.n % 1 == 0)
        yield counts.all() and small(self.values, self.scale), "has values that cannot be"


@dataclass(frozen=True)
class AskParts(Ask, kind=335):
    """Server to client: which cells would you tell by themselves? Of columns of numbers these are the inner ends of bins.

    `scale`: about which numbers sums will be taken, and the standard deviations to whose tenths they are rounded; 0: not at all.
    """

    ends: Annotated[Array, "columns ends"]
    scale: Annotated[Array, "columns two"]


@dataclass(frozen=True)
class OwnParts(
    Answer,
    kind=336,
    tells=tells.Fact("which cells it tells with others, for few rows are in them", "that it has few rows in such cells"),
    name="parts",
    ask=AskParts,
    dims={"two": 2},
    needs=NEEDED,
):
    """Client to server: of each cell the first cell of its part; -1 where it tells nothing of a table. `sums`: of each sum 1
    where it may be one of several that add their rows, 0 where it has none, else -1.
    """

    first: Annotated[Array, "parts"]
    sums: Annotated[Array, "sums"]

    def honest(self) -> Conditions:
        flags = bool((np.abs(self.sums) <= 1).all())
        yield flags and bool(((self.first >= -1) & (self.first % 1 == 0)).all()) and small(self.first), "has parts that cannot be"


@dataclass(frozen=True)
class AskCells(Ask, kind=337):
    """Server to client: how many rows are in each part?"""

    told: Annotated[Array, "parts"]


@dataclass(frozen=True)
class Cells(
    Added,
    kind=338,
    tells=tells.Sums("numbers of rows in cells of many rows", private=tells.NOISED),
    name="cells",
    ask=AskCells,
    masked=("masked_cells", 339),
    least=0,
    needs=NEEDED,
):
    """Client to server: its rows in each part, at the part's first cell, which all clients tell alike."""

    counts: Annotated[Array, "cells"]

    def honest(self) -> Conditions:
        whole = bool((self.counts % 1 == 0).all()) and small(self.counts, largest=MOST_ROWS)  # they may have noise
        yield whole, "has numbers that cannot be"


@dataclass(frozen=True)
class AskSums(Ask, kind=332):
    """Server to client: what are these sums? Of each column and group the first group of its part, and 0 for a column in all rows
    and for a pair; -1 of what is not told.
    """

    told: Annotated[Array, "sums"]


@dataclass(frozen=True)
class Moments(
    Added,
    kind=333,
    tells=tells.Sums("means, sds and correlations of numbers"),
    name="moments",
    ask=AskSums,
    masked=("masked_moments", 334),
    dims={"three": 3, "six": 6},
    least=0,
    needs=NEEDED,
):
    """Client to server, masked: of each column in the rows of each group, and last in all rows, these, sum and sum of squares.

    `pairs`: of two columns rows, two sums, two sums of squares, sum of products. All are about the centre, and each client rounds
    its own to a tenth of their standard errors.
    """

    each: Annotated[Array, "columns groups three"]
    pairs: Annotated[Array, "pairs six"]

    def honest(self) -> Conditions:
        yield small(self.each, self.pairs, largest=LARGEST), "has numbers that cannot be"
        yield bool((self.each[..., 0] >= 0).all() and (self.pairs[:, 0] >= 0).all()), "has fewer rows than none"


MAY_SEND = (*FewValues.may_send, *OwnParts.may_send, *Cells.may_send, *Moments.may_send)
