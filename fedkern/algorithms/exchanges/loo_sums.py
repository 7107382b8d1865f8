"""Sums, after a job that asks for it, how well rows are foreseen without themselves.

A sum is of at least five rows, whatever the job's least number: a client with fewer answers with zeros. Sums are in thousandths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ...privacy.masks import ONCE
from ..core import once, tells
from ..core.masked import Masked, Sum
from ..core.messages import Message
from .added import Added
from .rounding import DIGITS, LARGEST, bounded, rounded

BINS = 4
DIMS: dict[str, int] = {"bins": BINS}
LEAST = 5  # rows of a sum
MOST_ROWS = 10**15  # counted exactly, with those of other clients


@dataclass(frozen=True)
class AskLoo(Message, kind=147):
    """Server to client."""

    round: int


@dataclass(frozen=True)
class LooSums(Added, Message, kind=148, tells=tells.Sums()):
    """Client to server: number of rows; sums of their leave-one-out log predictive densities, of the squares of those, and of
    their effective numbers of parameters; how many rows have a k-hat of at most 0.5, 0.7, 1, and more."""

    round: int
    rows: int
    density: float
    squares: float
    effective: float
    bins: Annotated[NDArray[np.float64], "bins"]


@dataclass(frozen=True)
class MaskedLooSums(Masked, Message, kind=264, tells=tells.Sums().masked):
    """Client to server: `LooSums`, masked."""

    words: Annotated[bytes, "masked_loo"]


SUMS = (Sum(LooSums, MaskedLooSums, ONCE),)


def make_reply(sums: LooSums | None) -> LooSums:
    """Returns the sums, or zeros if a client has none or too few rows."""
    if sums is None or sums.rows < LEAST:
        return LooSums(0, 0, 0.0, 0.0, 0.0, np.zeros(BINS))
    density, effective = rounded([sums.density, sums.effective]).tolist()
    squares = float(np.round(min(sums.squares, LARGEST**2), DIGITS))
    return replace(sums, density=density, squares=squares, effective=effective)


def _wrong(sums: LooSums) -> str:
    """Returns the reason why these are no client's sums, or "" if they can be."""
    if not (sums.rows == 0 or LEAST <= sums.rows <= MOST_ROWS):
        return f"its LooSums are of {sums.rows} rows"
    if (sums.bins < 0).any() or (sums.bins > sums.rows).any() or (sums.bins % 1).any() or sums.bins.sum() != sums.rows:
        return "its LooSums count rows that are not there"
    if not (bounded([sums.density, sums.effective]) and 0 <= sums.squares and bounded(sums.squares, LARGEST**2)):
        return "its LooSums are too large to be any"
    # Cauchy-Schwarz, with what rounding has taken
    if abs(sums.density) > (1 + 1e-9) * math.sqrt(sums.rows * (sums.squares + 10**-DIGITS)) + 10**-DIGITS:
        return "its LooSums have squares that are too small for their sum"
    return ""


QUESTION = once.Question("loo-sums", AskLoo, LooSums, _wrong, drops=True)
PROTOCOL = QUESTION.protocol
