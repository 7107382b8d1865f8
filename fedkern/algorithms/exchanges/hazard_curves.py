"""Collects, after the rounds of a Cox model, each client's cumulative baseline hazard at the times that the job names.

Each client has drawn it at the draws of the posterior that it was sent, with random numbers of its own, and sends it to three
digits, with the number of its rows; of a client without an event they are 0. Source: docs/spec/likelihood.md, section 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import once, tells
from ..core.messages import Message
from .loo_sums import MOST_ROWS
from .rounding import LARGEST, bounded
from .survival_sums import AskSurvival

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CumulativeHazards(Message, kind=232, tells=tells.Sums()):
    """Client to server: number of its rows; its cumulative baseline hazard at the job's times (output.survival_at), drawn at each
    draw of the posterior."""

    round: int
    rows: int
    hazards: Annotated[Array, "t times"]


def dims(draws: int, times: int) -> dict[str, int]:
    """Returns the sizes of the messages' arrays."""
    return {"t": draws, "times": times}


def make_reply(rows: int, hazards: Array) -> CumulativeHazards:
    """Returns the answer with `hazards` (draws, times), rounded."""
    short = [[float(f"{value:.3g}") for value in row] for row in hazards.tolist()]
    return CumulativeHazards(0, rows, np.array(short).reshape(hazards.shape))


def _wrong(answer: CumulativeHazards) -> str:
    """Returns the reason why these are no client's hazards, or "" if they can be."""
    h = answer.hazards
    if (
        not 0 <= answer.rows <= MOST_ROWS
        or not bounded(h, LARGEST)
        or (h < 0).any()
        or (np.diff(h, axis=1) < -0.01 * h[:, 1:]).any()
    ):
        return "its CumulativeHazards are too large to be any, or fall with time"
    return ""


QUESTION = once.Question("hazard-curves", AskSurvival, CumulativeHazards, _wrong, drops=True, judges=True)
PROTOCOL = QUESTION.protocol
