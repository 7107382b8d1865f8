"""Checks, after a job of survival times, whether hazards are proportional, and whether rows at higher risk have the event
earlier.

Each client has computed sums over its events at the mean of the draws that it was sent, and sends them, to three digits; a client
with fewer than five events answers with zeros. Source: docs/spec/likelihood.md, section 9.
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

Array = NDArray[np.float64]

DIGITS = 3  # significant, of each sum


@dataclass(frozen=True)
class AskSurvival(Message, kind=230):
    """Server to client."""

    round: int


@dataclass(frozen=True)
class SurvivalSums(Added, Message, kind=231, tells=tells.Sums()):
    """Client to server: number of events; pairs of a row that has its event and one that is at risk after it, and in how many of
    them the first has the higher risk; of each coefficient the score of a slope in time, and its information."""

    round: int
    events: int
    pairs: float
    right: float
    score: Annotated[Array, "d"]
    information: Annotated[Array, "d"]


@dataclass(frozen=True)
class MaskedSurvivalSums(Masked, Message, kind=287, tells=tells.Sums().masked):
    """Client to server: `SurvivalSums`, masked."""

    words: Annotated[bytes, "masked_survival"]


SUMS = (Sum(SurvivalSums, MaskedSurvivalSums, ONCE),)


def dims(coefficients: int) -> dict[str, int]:
    """Returns the sizes of the messages' arrays."""
    return {"d": coefficients}


def make_reply(events: int, pairs: float, right: float, score: Array, information: Array) -> SurvivalSums:
    """Returns the sums, or zeros if they are of too few events."""
    if events < LEAST:
        return SurvivalSums(0, 0, 0.0, 0.0, np.zeros_like(score), np.zeros_like(score))
    return SurvivalSums(
        0, events, *shortened(pairs, right), *(np.array([*map(_rounded, one.tolist())]) for one in (score, information))
    )


def shortened(pairs: float, right: float) -> tuple[float, float]:
    """Returns the number of pairs and of the right ones among them: the number and the share to three digits."""
    share = round(right / pairs, DIGITS) if pairs else 0.0
    return _rounded(pairs), share * _rounded(pairs)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _wrong(answer: SurvivalSums) -> str:
    """Returns the reason why these are no client's sums, or "" if they can be."""
    if not (answer.events == 0 or LEAST <= answer.events <= MOST_ROWS):
        return f"its SurvivalSums are of {answer.events} events"
    if not 0 <= answer.right <= answer.pairs <= MOST_ROWS**2:
        return "its SurvivalSums count pairs that are not there"
    if not (bounded(answer.score, LARGEST) and bounded(answer.information, LARGEST)) or (answer.information < 0).any():
        return "its SurvivalSums are too large to be any, or an information is below 0"
    return ""


QUESTION = once.Question("survival-sums", AskSurvival, SurvivalSums, _wrong, drops=True, judges=True)
PROTOCOL = QUESTION.protocol
