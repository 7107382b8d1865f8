"""Sends the server's verdict (`exchanges.verdicts`) with its figures of the unknowns that all share.

So clients' pages have the same numbers as the server's: clients know the posterior of these unknowns, but not by the same draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..core import once
from ..core.exchange import Ask
from . import verdicts
from .verdicts import TellVerdict, VerdictHeard

NAMES = ("mean", "q025", "q975")  # of the figures of an unknown

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TellFigures(Ask, kind=227):
    """Server to client: the fields of a verdict, and the figures; `known`: whether these are all numbers (0 or 1)."""

    word: int
    text: Annotated[bytes, "verdict"]
    worst: Annotated[bytes, "name"]
    known: int
    figures: Annotated[Array, "f q"]


def dims(unknowns: int) -> dict[str, int]:
    """Returns the lengths of the messages' fields."""
    return {**verdicts.DIMS, "f": max(unknowns, 1), "q": len(NAMES)}


def make_question(verdict: TellVerdict, figures: Array) -> TellFigures:
    """Returns the message; `figures` (f, q) are of the unknowns in the order that all know."""
    known = len(figures) > 0 and bool(np.isfinite(figures).all())
    told = figures if known else np.zeros((max(len(figures), 1), len(NAMES)))
    return TellFigures(verdict.round, verdict.word, verdict.text, verdict.worst, int(known), told)


def verdict(told: TellFigures) -> TellVerdict:
    """Returns the message without the figures."""
    return TellVerdict(told.round, told.word, told.text, told.worst)


def figures(told: TellFigures) -> Array | None:
    """Returns the server's figures (f, q), or None if it has none."""
    return np.array(told.figures) if told.known else None


def make_reply(told: TellFigures) -> VerdictHeard:
    """Returns a client's answer; raises RemoteFault if no verdict has this number."""
    return verdicts.make_reply(verdict(told))


QUESTION = once.Question("verdict", TellFigures, VerdictHeard)
PROTOCOL = QUESTION.protocol
