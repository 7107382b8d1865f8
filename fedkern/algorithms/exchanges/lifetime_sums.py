"""Checks, after a job of survival times whose baseline hazard all share, whether the hazard has the right shape.

Each client has computed sums over its rows with the draws that it was sent, and sends them, to three digits; a client with fewer
than five rows answers with zeros. Source: docs/spec/likelihood.md, section 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ...privacy.masks import ONCE
from ..core import once, tells
from ..core.masked import Masked, Sum
from ..core.messages import Message
from .added import Added
from .loo_sums import LEAST, MOST_ROWS
from .rounding import LARGEST, bounded
from .survival_sums import AskSurvival, shortened

Array = NDArray[np.float64]

TENTHS, SCORES = 10, 5


@dataclass(frozen=True)
class LifetimeSums(Added, Message, kind=233, tells=tells.Sums()):
    """Client to server: number of rows, of events, and of events whose time is known exactly; pairs of a row that has its event
    and one that is at risk after it, and in how many of them the first has the higher risk; in which tenth of their predictive
    distributions times are; score and information of a level and of a shape in which the hazard is wrong; events in each piece of
    the hazard."""

    round: int
    rows: int
    events: int
    exact: int
    pairs: float
    right: float
    tenths: Annotated[Array, "tenths"]
    scores: Annotated[Array, "scores"]
    pieces: Annotated[Array, "pieces"]


@dataclass(frozen=True)
class MaskedLifetimeSums(Masked, Message, kind=288, tells=tells.Sums().masked):
    """Client to server: `LifetimeSums`, masked."""

    words: Annotated[bytes, "masked_lifetimes"]


SUMS = (Sum(LifetimeSums, MaskedLifetimeSums, ONCE),)


def dims(pieces: int) -> dict[str, int]:
    """Returns the sizes of the messages' arrays."""
    return {"tenths": TENTHS, "scores": SCORES, "pieces": pieces}


def make_reply(
    rows: int, events: int, exact: int, pairs: float, right: float, tenths: Array, scores: Array, pieces: Array
) -> LifetimeSums:
    """Returns the sums, or zeros if they are of too few rows."""
    if rows < LEAST:
        return LifetimeSums(0, 0, 0, 0, 0.0, 0.0, np.zeros(TENTHS), np.zeros(SCORES), np.zeros(len(pieces)))
    pairs, right = shortened(pairs, right)
    tenths, scores = (np.array([float(f"{value:.3g}") for value in one.tolist()]) for one in (tenths, scores))
    return LifetimeSums(0, rows, events, exact, pairs, right, tenths, scores, pieces)


def _wrong(answer: LifetimeSums) -> str:
    """Returns the reason why these are no client's sums, or "" if they can be."""
    if not (answer.rows == 0 or LEAST <= answer.rows <= MOST_ROWS) or not 0 <= answer.events <= answer.rows:
        return f"its LifetimeSums are of {answer.rows} rows and {answer.events} events"
    if not 0 <= answer.exact <= answer.events:
        return f"its LifetimeSums have {answer.exact} exact times of {answer.events} events"
    if not 0 <= answer.right <= answer.pairs <= MOST_ROWS**2:
        return "its LifetimeSums count pairs that are not there"
    tenths, pieces = answer.tenths, answer.pieces
    if not bounded(answer.scores, LARGEST) or (tenths < 0).any() or abs(tenths.sum() - answer.rows) > 0.1 * answer.rows:
        return "its LifetimeSums are too large to be any, or their tenths are no parts of its rows"
    if (pieces < 0).any() or pieces.sum() != answer.events:
        return "its LifetimeSums count other events in pieces than in all"
    return ""


QUESTION = once.Question("lifetime-sums", AskSurvival, LifetimeSums, _wrong, drops=True, judges=True)
PROTOCOL = QUESTION.protocol
