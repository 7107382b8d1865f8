"""Collects, after the rounds of a Cox model, each client's cumulative baseline hazard at the times that the job names.

Each client has drawn it at the draws of the posterior that it was sent, with random numbers of its own, and sends it to three
digits, with the number of its rows; of a client without an event they are 0. Source: docs/spec/likelihood.md, section 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import tells
from ..core.exchange import MOST_ROWS, Answer, Conditions, small
from ..core.rounding import digits
from .sums import SurvivalSums

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CumulativeHazards(
    Answer,
    kind=232,
    tells=tells.Sums(),
    name="hazard-curves",
    ask=SurvivalSums.ask,
    rounding={"hazards": digits(3)},
    drops=True,
    judges=True,
):
    """Client to server: number of its rows; its cumulative baseline hazard at the job's times (output.survival_at), drawn at each
    draw of the posterior."""

    rows: int
    hazards: Annotated[Array, "t times"]

    def honest(self) -> Conditions:
        """They are no more than a hundredth lower at a later time."""
        h = self.hazards
        possible = 0 <= self.rows <= MOST_ROWS and small(h) and (h >= 0).all()
        yield possible and (np.diff(h, axis=1) >= -0.01 * h[:, 1:]).all(), "are too large to be any, or fall with time"
